// Weights times values, with values in their own type.
//
// In: where values, weights and sums are. Out: O and l go on. Read add_values() first.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "emit/llvm/convert.h"
#include "emit/llvm/decode_products.h"
#include "emit/llvm/fetch.h"

namespace treadle::emit::llvm {
namespace {

using Group = DecodeMemory::Group;
using Row = DecodeMemory::Row;
using Rows = DecodeMemory::Rows;

class WeightedValues {
 public:
  explicit WeightedValues(DecodeMemory& memory)
      : memory_(memory), build_(memory.build), spec_(memory.spec) {}

  void widen();
  void add_rows(const Rows& rows);

 private:
  void add_columns(const Rows& rows, Value* d, int vectors, bool with_weights);
  void add_column(Value* row, Value* d);
  // The keys whose next values some rows ask for.
  struct Asked {
    Value *begin, *end;
  };
  Asked asked_by(const Rows& rows);
  Row asked_row(const Asked& asked, Value* key, const Row& row);
  // Goes on with sums, value after value.
  Values for_values(Values sums,
                    const std::function<Values(Value* key, const Row&, const Values&)>& body);

  // Vectors of O that values are added to as words of so many numbers hold them: the first of all
  // words, then the second of them.
  [[nodiscard]] int per_word(int vectors) const;
  Value* every(int step, int first, const Values& vectors);
  Value* between(const Values& vectors, int part);

  DecodeMemory& memory_;
  Builder& build_;
  const plan::DecodeKernelSpec& spec_;
};

// Once for all rows, which would each convert them again.
void WeightedValues::widen() {
  const std::int64_t lanes = build_.lanes(), whole = spec_.value_dim - spec_.value_dim % lanes;
  const auto one = [&](Value* key, const Row& row, Value* d, bool vector) {
    build_.store(memory_.stored(row, d, vector),
                 memory_.real_at(memory_.wide, key, spec_.value_dim, d));
  };
  memory_.for_groups([&](Value* number) {
    const Group group = memory_.group_of(memory_.values, number);
    build_.loop(build_.index(0), memory_.keys_of(number), 1, [&](Value* lane) {
      Value* key = build_.CreateNSWAdd(memory_.first_key(number), lane);
      const Row row = memory_.row_of(group, lane);
      build_.loop(build_.index(0), build_.index(whole), lanes, [&](Value* d) {
        one(key, row, d, true);
        memory_.fetch_next(row, d);
      });
      build_.loop(build_.index(whole), build_.index(spec_.value_dim), 1,
                  [&](Value* d) { one(key, row, d, false); });
    });
  });
}

Values WeightedValues::for_values(
    Values sums, const std::function<Values(Value* key, const Row&, const Values&)>& body) {
  if (spec_.widens_values()) {
    return build_.loop(build_.index(0), memory_.count, 1, sums, [&](Value* key, const Values& now) {
      Value* row = memory_.real_at(memory_.wide, key, spec_.value_dim, build_.index(0));
      return body(key, {spec_.compute, row, nullptr, nullptr}, now);
    });
  }
  return build_.loop(build_.index(0), memory_.groups, 1, std::move(sums),
                     [&](Value* number, const Values& so_far) {
                       const Group group = memory_.group_of(memory_.values, number);
                       const auto each = [&](Value* lane, const Values& now) {
                         return body(build_.CreateNSWAdd(memory_.first_key(number), lane),
                                     memory_.row_of(group, lane), now);
                       };
                       return build_.loop(build_.index(0), memory_.keys_of(number), 1, so_far,
                                          each);
                     });
}

// Every four rows ask for a part, so that requests are spread over all products.
WeightedValues::Asked WeightedValues::asked_by(const Rows& rows) {
  if (!spec_.rows.fours) return {build_.index(0), memory_.count};
  Value* fours = build_.CreateUDiv(memory_.rows, build_.index(4));
  Value* number = build_.CreateUDiv(rows.first, build_.index(4));
  const auto part = [&](Value* n) {
    return build_.CreateUDiv(build_.CreateNSWMul(memory_.count, n), fours);
  };
  return {part(number), part(build_.CreateNSWAdd(number, build_.index(1)))};
}

// Others ask for what they read now.
Row WeightedValues::asked_row(const Asked& asked, Value* key, const Row& row) {
  if (!spec_.rows.fours || row.next == nullptr) return row;
  Value* inside = build_.CreateAnd(build_.CreateICmpSGE(key, asked.begin),
                                   build_.CreateICmpSLT(key, asked.end));
  return {row.type, row.address, row.scale, build_.CreateSelect(inside, row.next, row.address)};
}

void WeightedValues::add_rows(const Rows& rows) {
  const std::int64_t lanes = build_.lanes();
  const std::int64_t all = spec_.value_dim / lanes;  // vectors
  // The rows' sums and their l are in registers together, beside a weight and a vector of V.
  const int registers = spec_.target.registers - 2;
  const std::int64_t fit = std::clamp((registers - rows.count) / rows.count, 1, 8);
  const std::int64_t passes = (all + fit - 1) / fit;
  const std::int64_t at_once = passes == 0 ? 1 : (all + passes - 1) / passes;
  std::int64_t done = 0;
  const auto columns = [&](std::int64_t vectors, bool with_weights) {
    add_columns(rows, build_.index(done * lanes), static_cast<int>(vectors), with_weights);
    done += vectors;
  };
  // The first ones add up the weights, too.
  if (all > 0) columns(at_once, !spec_.dropout);
  const std::int64_t end = all - (all - done) % at_once;
  build_.loop(build_.index(done * lanes), build_.index(end * lanes), at_once * lanes,
              [&](Value* d) { add_columns(rows, d, static_cast<int>(at_once), false); });
  done = end;
  if (done < all) columns(all - done, false);
  for (int r = 0; r < rows.count; ++r) {
    Value* row = build_.CreateNSWAdd(rows.first, build_.index(r));
    if (all == 0 && !spec_.dropout) add_weights(memory_, row);
    build_.loop(build_.index(all * lanes), build_.index(spec_.value_dim), 1,
                [&](Value* d) { add_column(row, d); });
  }
}

int WeightedValues::per_word(int vectors) const {
  if (spec_.compute != DType::f32 || spec_.value_type != DType::bf16 || spec_.value_scales ||
      spec_.widens_values())
    return 1;
  const int numbers = numbers_per_word(spec_.value_type);
  return vectors % numbers == 0 ? numbers : 1;
}

// Elements first, first + step, ... of some vectors, one after the other; and back again.
Value* WeightedValues::every(int step, int first, const Values& vectors) {
  ::llvm::SmallVector<int> mask;
  for (int i = 0; i < build_.lanes(); ++i) mask.push_back(first + i * step);
  return build_.CreateShuffleVector(vectors[0], vectors[1], mask);
}

Value* WeightedValues::between(const Values& vectors, int part) {
  ::llvm::SmallVector<int> mask;
  const int lanes = build_.lanes();
  for (int i = part * lanes; i < (part + 1) * lanes; ++i) mask.push_back(i / 2 + i % 2 * lanes);
  return build_.CreateShuffleVector(vectors[0], vectors[1], mask);
}

// `vectors` vectors of O of some rows, from element d on.
void WeightedValues::add_columns(const Rows& rows, Value* d, int vectors, bool with_weights) {
  const auto row_at = [&](int r) { return build_.CreateNSWAdd(rows.first, build_.index(r)); };
  const auto column = [&](int v) {
    return build_.CreateNSWAdd(d, build_.index(v * build_.lanes()));
  };
  const int per = per_word(vectors);
  Values sums;  // of a row: O, then l in every lane
  for (int r = 0; r < rows.count; ++r) {
    for (int v = 0; v < vectors; v += per) {
      Values plain;
      for (int i = 0; i < per; ++i)
        plain.push_back(build_.load(build_.reals(), memory_.sums_of(row_at(r), column(v + i))));
      for (int i = 0; i < per; ++i) sums.push_back(per == 1 ? plain[0] : every(per, i, plain));
    }
    if (with_weights)
      sums.push_back(build_.splat(build_.CreateLoad(build_.real(), memory_.total_of(row_at(r)))));
  }
  const Asked asked = asked_by(rows);
  const auto step = [&](Value* k, const Row& value, const Values& so_far) {
    const Row row = asked_row(asked, k, value);
    Values values, next;
    for (int v = 0; v < vectors; v += per) {
      if (per == 1) {
        values.push_back(memory_.stored(row, column(v), true));
      } else {
        Value* word = memory_.words_of(row, column(v));
        for (int i = 0; i < per; ++i)
          values.push_back(number_in_word(build_, word, i, spec_.value_type));
      }
      const auto bytes = static_cast<std::int64_t>(size_of(spec_.value_type));
      if (v * build_.lanes() * bytes % line_bytes == 0) memory_.fetch_next(row, column(v));
    }
    for (int r = 0; r < rows.count; ++r) {
      Value* weight = build_.splat(memory_.weight_of(row_at(r), k));
      for (int v = 0; v < vectors; ++v)
        next.push_back(
            build_.fma(values[static_cast<std::size_t>(v)], weight, so_far[next.size()]));
      if (with_weights) next.push_back(build_.CreateFAdd(so_far[next.size()], weight));
    }
    return next;
  };
  sums = for_values(std::move(sums), step);
  auto next = sums.begin();
  for (int r = 0; r < rows.count; ++r) {
    for (int v = 0; v < vectors; v += per) {
      const Values parts(next, next + per);
      next += per;
      for (int i = 0; i < per; ++i)
        build_.store(per == 1 ? parts[0] : between(parts, i),
                     memory_.sums_of(row_at(r), column(v + i)));
    }
    if (with_weights)
      build_.CreateStore(build_.CreateExtractElement(*next++, std::uint64_t{0}),
                         memory_.total_of(row_at(r)));
  }
}

// One element of O of a row.
void WeightedValues::add_column(Value* row, Value* d) {
  Value* at = memory_.sums_of(row, d);
  const auto step = [&](Value* k, const Row& value, const Values& so_far) {
    return Values{
        build_.fma(memory_.stored(value, d, false), memory_.weight_of(row, k), so_far.front())};
  };
  Value* before = build_.CreateLoad(build_.real(), at);
  build_.CreateStore(for_values({before}, step).front(), at);
}

}  // namespace

void add_values(DecodeMemory& memory) {
  WeightedValues values(memory);
  if (memory.spec.widens_values()) values.widen();
  memory.for_rows([&](const Rows& rows) { values.add_rows(rows); });
}

void add_weights(DecodeMemory& memory, Value* row) {
  Builder& build = memory.build;
  Value* at = memory.total_of(row);
  const auto step = [&](Value* k, const Values& so_far) {
    return Values{build.CreateFAdd(so_far.front(), memory.weight_of(row, k))};
  };
  Value* before = build.CreateLoad(build.real(), at);
  build.CreateStore(build.loop(build.index(0), memory.count, 1, {before}, step).front(), at);
}

}  // namespace treadle::emit::llvm
