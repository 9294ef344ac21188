// Philox in the lanes. Read DropoutBits::words() first.
//
// A product of 32 by 32 bits takes a lane of 64, of which only the lower half is read again: so words
// are i64 whose upper halves may hold anything, and nothing has to be put together but results. What is
// alike in all lanes stays a scalar as long as it is: with queries in the lanes, most of the first two
// rounds.
#include "emit/llvm/dropout.h"

#include "base/philox.h"

namespace treadle::emit::llvm {

using base::Philox;
using plan::DropoutArgs;
using plan::TileArgs;

namespace {

constexpr std::uint64_t low_half = 0xffffffff;
constexpr std::uint32_t keys_of_group = 8;  // that share a call

}  // namespace

void DropoutBits::begin(Value* address) {
  const Arguments<DropoutArgs> args(build_, address);
  key_ = {args[&DropoutArgs::key_low], args[&DropoutArgs::key_high]};
  Value* threshold = build_.CreateTrunc(args[&DropoutArgs::threshold], build_.getInt32Ty());
  threshold_ = build_.splat(build_.CreateShl(threshold, 16));
  scale_ = build_.splat(build_.CreateFPCast(args[&DropoutArgs::scale], build_.real()));
}

// Of lower halves.
Value* DropoutBits::product(Value* x, std::uint32_t factor) {
  Value* low = build_.CreateAnd(x, ::llvm::ConstantInt::get(x->getType(), low_half));
  return build_.CreateMul(low, ::llvm::ConstantInt::get(x->getType(), factor));
}

// The upper half, in the lower one. Of vectors it is in both, by moving halves: from a shift LLVM would
// know that the upper half is 0, drop the mask of the next product, and no longer know it where code of
// several blocks meets, so that a product takes three instructions.
Value* DropoutBits::high(Value* x) {
  auto* type = ::llvm::dyn_cast<::llvm::FixedVectorType>(x->getType());
  if (type == nullptr) return build_.CreateLShr(x, 32);
  const int lanes = build_.lanes();
  ::llvm::SmallVector<int> upper;
  for (int lane = 0; lane < lanes; ++lane) upper.append({2 * lane + 1, 2 * lane + 1});
  auto* halves =
      ::llvm::FixedVectorType::get(build_.getInt32Ty(), static_cast<unsigned>(2 * lanes));
  Value* moved = build_.CreateShuffleVector(build_.CreateBitCast(x, halves), upper);
  return build_.CreateBitCast(moved, type);
}

// a ^ b, where one may be a scalar.
Value* DropoutBits::mix(Value* a, Value* b) {
  const bool vector = a->getType()->isVectorTy() || b->getType()->isVectorTy();
  return vector ? build_.CreateXor(build_.splat(a), build_.splat(b)) : build_.CreateXor(a, b);
}

DropoutBits::Words DropoutBits::words(const Words& counter) {
  ::llvm::Type* int64 = build_.getInt64Ty();
  Words x{};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool vector = counter[i]->getType()->isVectorTy();
    x[i] = build_.CreateZExt(counter[i], vector ? build_.vector(int64) : int64);
  }
  for (int round = 0; round < Philox::rounds; ++round) {
    const auto key = [&](std::size_t i) {
      const std::uint64_t step = std::uint64_t{Philox::key_steps[i]} * static_cast<unsigned>(round);
      return build_.CreateAdd(key_[i], build_.getInt64(step & low_half));
    };
    Value *a = product(x[0], Philox::factors[0]), *b = product(x[2], Philox::factors[1]);
    x = {mix(mix(x[1], key(0)), high(b)), b, mix(mix(x[3], key(1)), high(a)), a};
  }
  Words words{};
  for (std::size_t i = 0; i < x.size(); ++i)
    words[i] = build_.CreateTrunc(build_.splat(x[i]), build_.vector(build_.getInt32Ty()));
  return words;
}

Value* DropoutBits::mask(Value* bits) {
  return build_.CreateSExt(build_.CreateICmpUGE(bits, threshold_), masks());
}

Value* DropoutBits::masked(Value* numbers, Value* mask) {
  return build_.CreateBitCast(build_.CreateAnd(build_.CreateBitCast(numbers, masks()), mask),
                              build_.reals());
}

TileDropout::TileDropout(Builder& build, const plan::TilePlan& plan,
                         const Arguments<TileArgs>& args)
    : build_(build), plan_(plan), args_(args), bits_(build) {
  masks_ = build_.CreateAlloca(bits_.masks(), build_.getInt32(keys_of_group * plan.vectors));
  group_ = build_.CreateAlloca(build_.getInt32Ty());
}

void TileDropout::begin() {
  bits_.begin(args_[&TileArgs::dropout]);
  b_ = build_.CreateTrunc(args_[&TileArgs::b], build_.getInt32Ty());
  h_ = build_.CreateTrunc(args_[&TileArgs::h], build_.getInt32Ty());
  build_.CreateStore(build_.getInt32(~0U), group_);  // no key's
}

Value* TileDropout::masks_at(Value* place, Value* v) {
  Value* row = build_.CreateNSWMul(place, build_.index(plan_.vectors));
  return build_.element(bits_.masks(), masks_, build_.CreateNSWAdd(row, v));
}

void TileDropout::key(Value* kv) {
  ::llvm::Type* int32 = build_.getInt32Ty();
  Value* group = build_.CreateLShr(kv, 3);
  place_ = build_.CreateZExt(build_.CreateAnd(kv, keys_of_group - 1), build_.getInt64Ty());
  build_.when(build_.CreateICmpNE(group, build_.CreateLoad(int32, group_)), [&] {
    build_.CreateStore(group, group_);
    Value* positions = args_[&TileArgs::positions];
    build_.loop(build_.index(0), build_.index(plan_.vectors), 1, [&](Value* v) {
      Value* first = build_.CreateNSWMul(v, build_.index(build_.lanes()));
      Value* q = build_.load(build_.vector(int32), build_.element(int32, positions, first));
      const DropoutBits::Words words = bits_.words({group, h_, q, b_});
      for (unsigned place = 0; place < keys_of_group; ++place) {
        Value* bits = words[place / 2];
        if (place % 2 == 0)
          bits = build_.CreateShl(bits, ::llvm::ConstantInt::get(bits->getType(), 16));
        build_.CreateStore(bits_.mask(bits), masks_at(build_.index(place), v));
      }
    });
  });
}

Value* TileDropout::kept(Value* numbers, int v) {
  return bits_.masked(numbers, build_.CreateLoad(bits_.masks(), masks_at(place_, build_.index(v))));
}

Value* kept_keys(Builder& build, DropoutBits& bits, Value* numbers,
                 const std::array<Value*, 3>& bhq, Value* kv) {
  const auto number = [&](std::uint64_t value) {
    return ::llvm::ConstantInt::get(kv->getType(), value);
  };
  const auto& [b, h, q] = bhq;
  const DropoutBits::Words words = bits.words({build.CreateLShr(kv, number(3)), h, q, b});
  Value* place = build.CreateAnd(kv, number(keys_of_group - 1));
  Value* word = words[0];
  for (std::size_t i = 1; i < words.size(); ++i)
    word = build.CreateSelect(build.CreateICmpUGE(place, number(2 * i)), words[i], word);
  Value* is_odd = build.CreateICmpNE(build.CreateAnd(kv, number(1)), number(0));
  word = build.CreateSelect(is_odd, word, build.CreateShl(word, number(16)));
  return bits.masked(numbers, bits.mask(word));
}

}  // namespace treadle::emit::llvm
