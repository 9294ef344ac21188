// Rows of queries times keys, with keys in their own type.
//
// In: where keys and queries are. Out: a score for each row and key. Squares of as many keys as there
// are lanes are turned in registers. Numbers of 8 or 16 bits are turned as words of several, so that
// one square holds several times as many; what they are in the compute type comes after that.
//
// Up to three rows multiply what was turned at once, while the next square is being turned. More rows
// find all keys of the block turned in memory. Read multiply_keys() first.
#include <array>
#include <utility>
#include <vector>

#include "emit/llvm/convert.h"
#include "emit/llvm/decode_products.h"
#include "emit/llvm/fetch.h"
#include "emit/llvm/transpose_vectors.h"

namespace treadle::emit::llvm {
namespace {

using Group = DecodeMemory::Group;
using Row = DecodeMemory::Row;
using Rows = DecodeMemory::Rows;

class Scores {
 public:
  explicit Scores(DecodeMemory& memory)
      : memory_(memory), build_(memory.build), spec_(memory.spec), lanes_(build_.lanes()) {}

  void multiply_at_once(const Rows& rows);
  void turn_keys();
  void multiply_turned(const Rows& rows, Value* group, int groups);

 private:
  // Numbers of the keys' type in a word that is turned, and in a word of turned memory.
  [[nodiscard]] int most_per_word() const {
    return spec_.compute == DType::f32 ? numbers_per_word(spec_.key_type) : 1;
  }
  [[nodiscard]] int per_turned_word() const { return spec_.turns_words() ? most_per_word() : 1; }

  Values turned_square(const Group& group, Value* d, int per_word, bool fetch);
  Value* turned_column(const Group& group, Value* d);
  Value* number_of(Value* word, int number, Value* scales);
  Value* scales_of(const Group& group);

  // Calls square(d, per_word) for squares from element d on, and column(d) for the elements left. Both
  // give what sums have become.
  using Square = std::function<Values(Value* d, int per_word, const Values&)>;
  using Column = std::function<Values(Value* d, const Values&)>;
  Values walk(Values sums, const Square& square, const Column& column);

  Value* turned_at(Value* group, Value* d);
  // Where multiplications ask for the next block's keys, and how far apart their rows are.
  struct Next {
    Value *rows, *stride;
  };
  Next next_of(const Rows& rows, Value* group);
  void fetch(const Next& next, Value* d);

  DecodeMemory& memory_;
  Builder& build_;
  const plan::DecodeKernelSpec& spec_;
  std::int64_t lanes_;
};

Values Scores::walk(Values sums, const Square& square, const Column& column) {
  std::int64_t done = 0;
  const auto go_on = [&](std::int64_t width, const Builder::Body& body) {
    const std::int64_t end = spec_.dim - (spec_.dim - done) % width;
    if (end > done)
      sums = build_.loop(build_.index(done), build_.index(end), width, std::move(sums), body);
    done = end;
  };
  const auto squares = [&](int per_word) {
    go_on(lanes_ * per_word, [&](Value* d, const Values& now) { return square(d, per_word, now); });
  };
  if (most_per_word() > 1) squares(most_per_word());
  squares(1);
  go_on(1, column);
  return sums;
}

// As many words of as many keys as a vector has lanes. Words of one number have the compute type.
Values Scores::turned_square(const Group& group, Value* d, int per_word, bool fetch) {
  Values vectors;
  for (int i = 0; i < lanes_; ++i) {
    const Row row = memory_.row_of(group, build_.index(i));
    vectors.push_back(per_word == 1 ? memory_.stored(row, d, true) : memory_.words_of(row, d));
    if (fetch) memory_.fetch_next(row, d);
  }
  return transpose_vectors(build_, vectors);
}

// One element of as many keys.
Value* Scores::turned_column(const Group& group, Value* d) {
  Value* vector = ::llvm::PoisonValue::get(build_.reals());
  for (int i = 0; i < lanes_; ++i) {
    Value* element = memory_.stored(memory_.row_of(group, build_.index(i)), d, false);
    vector = build_.CreateInsertElement(vector, element, build_.index(i));
  }
  return vector;
}

// What a vector of turned words holds, in the compute type; scales of words of one number are in them.
Value* Scores::number_of(Value* word, int number, Value* scales) {
  Value* plain = number_in_word(build_, word, number, spec_.key_type);
  return scales == nullptr ? plain : build_.CreateFMul(plain, scales);
}

Value* Scores::scales_of(const Group& group) {
  if (group.of.scales == nullptr || most_per_word() == 1) return nullptr;
  return build_.load(build_.reals(), build_.element(build_.getFloatTy(), group.of.scales,
                                                    memory_.first_key(group.number)));
}

// Two groups of keys at a time, since the additions of one would wait for each other. Where there is
// only one left it is taken twice.
void Scores::multiply_at_once(const Rows& rows) {
  Value* last = build_.CreateNSWSub(memory_.groups, build_.index(1));
  build_.loop(build_.index(0), memory_.groups, 2, [&](Value* first) {
    Value* second = build_.CreateBinaryIntrinsic(::llvm::Intrinsic::smin,
                                                 build_.CreateNSWAdd(first, build_.index(1)), last);
    const std::array groups{memory_.group_of(memory_.keys, first),
                            memory_.group_of(memory_.keys, second)};
    const std::array scales{scales_of(groups[0]), scales_of(groups[1])};
    const auto row_at = [&](int r) { return build_.CreateNSWAdd(rows.first, build_.index(r)); };
    const auto add = [&](Values& sums, std::size_t g, Value* key, Value* d) {
      for (int r = 0; r < rows.count; ++r) {
        Value* q = build_.CreateLoad(build_.real(),
                                     memory_.real_at(memory_.queries, row_at(r), spec_.dim, d));
        Value*& sum = sums[static_cast<std::size_t>(r) * groups.size() + g];
        sum = build_.fma(key, build_.splat(q), sum);
      }
    };
    const auto square = [&](Value* d, int per_word, const Values& so_far) {
      Values sums = so_far;
      for (std::size_t g = 0; g < groups.size(); ++g) {
        const Values words = turned_square(groups[g], d, per_word, true);
        for (int i = 0; i < lanes_ * per_word; ++i) {
          Value* word = words[static_cast<std::size_t>(i / per_word)];
          add(sums, g, per_word == 1 ? word : number_of(word, i % per_word, scales[g]),
              build_.CreateNSWAdd(d, build_.index(i)));
        }
      }
      return sums;
    };
    const auto column = [&](Value* d, const Values& so_far) {
      Values sums = so_far;
      for (std::size_t g = 0; g < groups.size(); ++g) add(sums, g, turned_column(groups[g], d), d);
      return sums;
    };
    const Values zeros(static_cast<std::size_t>(rows.count) * groups.size(), build_.numbers(0));
    const Values sums = walk(zeros, square, column);
    for (int r = 0; r < rows.count; ++r) {
      for (std::size_t g = 0; g < groups.size(); ++g)
        build_.store(sums[static_cast<std::size_t>(r) * groups.size() + g],
                     memory_.scores_of(row_at(r), groups[g].number));
    }
  });
}

// Words of a group from element d on; words are as long as floats, where they hold several numbers.
Value* Scores::turned_at(Value* group, Value* d) {
  const int per_word = per_turned_word();
  Value* word = per_word == 1 ? d : build_.CreateLShr(d, per_word / 2);
  Value* row =
      build_.CreateNSWAdd(build_.CreateNSWMul(group, build_.index(spec_.dim / per_word)), word);
  return memory_.real_at(memory_.turned, row, lanes_, build_.index(0));
}

// Keys go into the lanes, group by group.
void Scores::turn_keys() {
  memory_.for_groups([&](Value* number) {
    const Group group = memory_.group_of(memory_.keys, number);
    Value* scales = scales_of(group);
    const auto square = [&](Value* d, int per_word, const Values&) {
      const Values words = turned_square(group, d, per_word, false);
      const bool apart = per_word > per_turned_word();
      for (int i = 0; i < lanes_ * per_word; i += per_turned_word()) {
        Value* word = words[static_cast<std::size_t>(i / per_word)];
        build_.store(apart ? number_of(word, i % per_word, scales) : word,
                     turned_at(number, build_.CreateNSWAdd(d, build_.index(i))));
      }
      return Values{};
    };
    const auto column = [&](Value* d, const Values&) {
      build_.store(turned_column(group, d), turned_at(number, d));
      return Values{};
    };
    walk({}, square, column);
  });
}

// Only the first rows ask, the others for what is near.
Scores::Next Scores::next_of(const Rows& rows, Value* number) {
  const Group group = memory_.group_of(memory_.keys, number);
  Value* next = build_.CreateGEP(build_.getInt8Ty(), group.rows, group.ahead);
  Value* first = build_.CreateICmpEQ(rows.first, build_.index(0));
  return {build_.CreateSelect(first, next, memory_.turned),
          build_.CreateSelect(first, group.stride, build_.index(0))};
}

// One line while word d of a group is multiplied: as many lines as the group has in all words.
void Scores::fetch(const Next& next, Value* d) {
  const std::int64_t per_word = per_turned_word();
  Value* word = build_.CreateUDiv(d, build_.index(per_word));
  Value* lane = build_.CreateURem(word, build_.index(lanes_));
  Value* line = build_.CreateUDiv(word, build_.index(lanes_));
  const std::int64_t bytes = per_word * lanes_ * static_cast<std::int64_t>(size_of(spec_.key_type));
  Value* at = build_.CreateNSWAdd(build_.CreateNSWMul(lane, next.stride),
                                  build_.CreateNSWMul(line, build_.index(bytes)));
  prefetch(build_, build_.CreateGEP(build_.getInt8Ty(), next.rows, at));
}

// `groups` groups of keys, so that each number of a query that is loaded serves all of them.
void Scores::multiply_turned(const Rows& rows, Value* group, int groups) {
  const auto group_at = [&](int g) { return build_.CreateNSWAdd(group, build_.index(g)); };
  const auto row_at = [&](int r) { return build_.CreateNSWAdd(rows.first, build_.index(r)); };
  const int per_word = per_turned_word();
  const Values zeros(static_cast<std::size_t>(rows.count * groups), build_.numbers(0));
  std::vector<Next> next;
  for (int g = 0; g < groups; ++g) next.push_back(next_of(rows, group_at(g)));
  const auto step = [&](Value* d, const Values& so_far) {
    for (const Next& keys : next) fetch(keys, d);
    Values sums = so_far, words;
    ::llvm::Type* type = per_word == 1 ? build_.reals() : build_.vector(build_.getInt32Ty());
    for (int g = 0; g < groups; ++g) words.push_back(build_.load(type, turned_at(group_at(g), d)));
    for (int i = 0; i < per_word; ++i) {
      Values keys;
      for (Value* word : words) keys.push_back(per_word == 1 ? word : number_of(word, i, nullptr));
      Value* at = build_.CreateNSWAdd(d, build_.index(i));
      auto sum = sums.begin();
      for (int r = 0; r < rows.count; ++r) {
        Value* q = build_.splat(build_.CreateLoad(
            build_.real(), memory_.real_at(memory_.queries, row_at(r), spec_.dim, at)));
        for (Value* key : keys) {
          *sum = build_.fma(key, q, *sum);
          ++sum;
        }
      }
    }
    return sums;
  };
  const Values sums = build_.loop(build_.index(0), build_.index(spec_.dim), per_word, zeros, step);
  for (int r = 0; r < rows.count; ++r) {
    for (int g = 0; g < groups; ++g)
      build_.store(sums[static_cast<std::size_t>(r * groups + g)],
                   memory_.scores_of(row_at(r), group_at(g)));
  }
}

}  // namespace

void multiply_keys(DecodeMemory& memory) {
  Scores scores(memory);
  Builder& build = memory.build;
  if (memory.spec.multiplies_at_once()) {
    memory.for_rows([&](const Rows& rows) { scores.multiply_at_once(rows); });
    return;
  }
  scores.turn_keys();
  memory.for_rows([&](const Rows& rows) {
    Value* done = build.index(0);
    for (int groups = plan::groups_at_once(memory.spec.target); groups >= 1; groups /= 2) {
      Value* end = build.CreateAnd(memory.groups, build.index(-groups));
      build.loop(done, end, groups,
                 [&](Value* group) { scores.multiply_turned(rows, group, groups); });
      done = end;
    }
  });
}

}  // namespace treadle::emit::llvm
