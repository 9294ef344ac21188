// Rows of queries times keys, and weights times values, with keys and values in their own type.
//
// In: a spec and the kernel's arguments. Out: instructions. Every sum has one accumulator and the
// order of the forward kernel's: scores over d ascending, O and l over keys ascending. Read
// multiply() and add_values() first.
#include "emit/llvm/decode_products.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "emit/llvm/convert.h"
#include "emit/llvm/fetch.h"
#include "emit/llvm/transpose_vectors.h"

namespace treadle::emit::llvm {
namespace {

constexpr std::int64_t line_bytes = 64;  // of the cache

}  // namespace

DecodeProducts::DecodeProducts(Builder& build, const plan::DecodeKernelSpec& spec,
                               const Arguments<Args>& args)
    : build_(build),
      spec_(spec),
      keys_{spec.key_type, &plan::KeyGroup::keys, &plan::KeyGroup::key_stride,
            spec.key_scales ? args[&Args::key_scales] : nullptr},
      values_{spec.value_type, &plan::KeyGroup::values, &plan::KeyGroup::value_stride,
              spec.value_scales ? args[&Args::value_scales] : nullptr},
      key_groups_(args[&Args::groups]),
      next_groups_(args[&Args::next]),
      count_(args[&Args::count]),
      queries_(args[&Args::queries]),
      rows_(args[&Args::rows]),
      turned_(args[&Args::turned]),
      wide_(args[&Args::values]),
      scores_(args[&Args::scores]),
      sums_(args[&Args::sums]),
      weight_(args[&Args::weight]) {
  Value* lanes = build_.index(build_.lanes());
  groups_ = build_.CreateUDiv(build_.CreateNSWAdd(count_, build_.index(build_.lanes() - 1)), lanes);
}

// --- where things are ----------------------------------------------------------------------------

// Element `at` of row `row` of an array of floats.
Value* DecodeProducts::real_at(Value* array, Value* row, std::int64_t width, Value* at) {
  return build_.element(build_.real(), array,
                        build_.CreateNSWAdd(build_.CreateNSWMul(row, build_.index(width)), at));
}

Value* DecodeProducts::first_key(Value* group) {
  return build_.CreateNSWMul(group, build_.index(build_.lanes()));
}

Value* DecodeProducts::scores_of(Value* row, Value* group) {
  return real_at(scores_, row, spec_.key_block, first_key(group));
}

Value* DecodeProducts::sums_of(Value* row, Value* d) {
  return real_at(sums_, row, spec_.value_dim, d);
}

Value* DecodeProducts::turned(Value* group, Value* d) {
  Value* row = build_.CreateNSWAdd(build_.CreateNSWMul(group, build_.index(spec_.dim)), d);
  return real_at(turned_, row, build_.lanes(), build_.index(0));
}

Value* DecodeProducts::weight_of(Value* row, Value* key) {
  return build_.CreateLoad(build_.real(), real_at(scores_, row, spec_.key_block, key));
}

DecodeProducts::Group DecodeProducts::group_of(const Operand& of, Value* number) {
  const auto member = [&](Value* groups, auto which) {
    Value* at = build_.CreateNSWMul(number, build_.index(sizeof(plan::KeyGroup)));
    return Arguments<plan::KeyGroup>(build_, build_.element(build_.getInt8Ty(), groups, at))[which];
  };
  Value* rows = member(key_groups_, of.rows);
  ::llvm::Type* address = build_.getInt64Ty();
  Value* ahead = build_.CreateSub(build_.CreatePtrToInt(member(next_groups_, of.rows), address),
                                  build_.CreatePtrToInt(rows, address));
  return {of, number, rows, member(key_groups_, of.stride), ahead};
}

DecodeProducts::Row DecodeProducts::row_of(const Group& group, Value* lane) {
  Value* scale = nullptr;
  if (group.of.scales != nullptr) {
    Value* key = build_.CreateNSWAdd(first_key(group.number), lane);
    scale = build_.CreateLoad(build_.getFloatTy(),
                              build_.element(build_.getFloatTy(), group.of.scales, key));
  }
  ::llvm::Type* byte = build_.getInt8Ty();
  Value* row = build_.CreateGEP(byte, group.rows, build_.CreateNSWMul(lane, group.stride));
  return {group.of.type, row, scale, build_.CreateGEP(byte, row, group.ahead)};
}

// One element of a row, or as many as there are lanes, in the compute type.
Value* DecodeProducts::stored(const Row& row, Value* at, bool vector) {
  ::llvm::Type* element = stored_type(build_, row.type);
  Value* loaded = build_.load(vector ? build_.vector(element) : element,
                              build_.element(element, row.address, at));
  if (row.scale == nullptr) return from_stored(build_, loaded, row.type, spec_.compute);
  Value* scale = vector ? build_.splat(row.scale) : row.scale;
  Value* number = build_.CreateFMul(from_stored(build_, loaded, row.type, DType::f32), scale);
  return from_stored(build_, number, DType::f32, spec_.compute);
}

// Asks for the same elements of a row of the next block.
void DecodeProducts::fetch_next(const Row& row, Value* at) {
  if (row.next == nullptr) return;
  prefetch(build_, build_.CreateGEP(stored_type(build_, row.type), row.next, at));
}

// How many keys a group holds.
Value* DecodeProducts::keys_of(Value* group) {
  return build_.CreateBinaryIntrinsic(::llvm::Intrinsic::smin,
                                      build_.CreateNSWSub(count_, first_key(group)),
                                      build_.index(build_.lanes()));
}

// The lane, or the last one that holds a key.
Value* DecodeProducts::lane_of_key(Value* group, int lane) {
  Value* last = build_.CreateNSWSub(build_.CreateNSWSub(count_, build_.index(1)), first_key(group));
  return build_.CreateBinaryIntrinsic(::llvm::Intrinsic::smin, build_.index(lane), last);
}

Values DecodeProducts::for_values(
    Values sums, const std::function<Values(Value* key, const Row&, const Values&)>& body) {
  if (spec_.widens_values()) {
    return build_.loop(build_.index(0), count_, 1, sums, [&](Value* key, const Values& now) {
      Value* row = real_at(wide_, key, spec_.value_dim, build_.index(0));
      return body(key, {spec_.compute, row, nullptr, nullptr}, now);
    });
  }
  return build_.loop(
      build_.index(0), groups_, 1, std::move(sums), [&](Value* number, const Values& so_far) {
        const Group group = group_of(values_, number);
        const auto each = [&](Value* lane, const Values& now) {
          return body(build_.CreateNSWAdd(first_key(number), lane), row_of(group, lane), now);
        };
        return build_.loop(build_.index(0), keys_of(number), 1, so_far, each);
      });
}

void DecodeProducts::for_groups(const std::function<void(Value*)>& body) {
  build_.loop(build_.index(0), groups_, 1, body);
}

void DecodeProducts::for_rows(const std::function<void(const Rows&)>& body) {
  Value* whole = build_.CreateNSWSub(rows_, build_.index(spec_.rows.rest));
  if (spec_.rows.fours)
    build_.loop(build_.index(0), whole, 4, [&](Value* first) { body({first, 4}); });
  if (spec_.rows.rest > 0) body({whole, spec_.rows.rest});
}

// --- scores --------------------------------------------------------------------------------------

void DecodeProducts::multiply() {
  turn_keys();
  for_rows([&](const Rows& rows) {
    Value* even = build_.CreateAnd(groups_, build_.index(-2));
    build_.loop(build_.index(0), even, 2, [&](Value* group) { multiply_rows(rows, group, 2); });
    build_.loop(even, groups_, 1, [&](Value* group) { multiply_rows(rows, group, 1); });
  });
}

// Keys go into the lanes, group by group.
void DecodeProducts::turn_keys() {
  const std::int64_t lanes = build_.lanes();
  for_groups([&](Value* number) {
    const Group group = group_of(keys_, number);
    std::int64_t done = 0;
    const auto turn = [&](std::int64_t width, void (DecodeProducts::*body)(const Group&, Value*)) {
      const std::int64_t end = spec_.dim - (spec_.dim - done) % width;
      build_.loop(build_.index(done), build_.index(end), width,
                  [&](Value* d) { (this->*body)(group, d); });
      done = end;
    };
    turn(lanes, &DecodeProducts::turn_square);
    turn(1, &DecodeProducts::turn_column);
  });
}

// As many elements of as many keys as a vector has lanes.
void DecodeProducts::turn_square(const Group& group, Value* d) {
  Values vectors;
  for (int i = 0; i < build_.lanes(); ++i) {
    const Row row = row_of(group, lane_of_key(group.number, i));
    vectors.push_back(stored(row, d, true));
    fetch_next(row, d);
  }
  vectors = transpose_vectors(build_, vectors);
  for (int i = 0; i < build_.lanes(); ++i) {
    build_.store(vectors[static_cast<std::size_t>(i)],
                 turned(group.number, build_.CreateNSWAdd(d, build_.index(i))));
  }
}

// One element of as many keys.
void DecodeProducts::turn_column(const Group& group, Value* d) {
  Value* vector = ::llvm::PoisonValue::get(build_.reals());
  for (int i = 0; i < build_.lanes(); ++i) {
    Value* element = stored(row_of(group, lane_of_key(group.number, i)), d, false);
    vector = build_.CreateInsertElement(vector, element, build_.index(i));
  }
  build_.store(vector, turned(group.number, d));
}

// `groups` groups of keys, so that each number of a query that is loaded serves all of them.
void DecodeProducts::multiply_rows(const Rows& rows, Value* group, int groups) {
  const auto group_at = [&](int g) { return build_.CreateNSWAdd(group, build_.index(g)); };
  const auto row_at = [&](int r) { return build_.CreateNSWAdd(rows.first, build_.index(r)); };
  const Values zeros(static_cast<std::size_t>(rows.count * groups), build_.numbers(0));
  const auto step = [&](Value* d, const Values& so_far) {
    Values keys, next;
    for (int g = 0; g < groups; ++g)
      keys.push_back(build_.load(build_.reals(), turned(group_at(g), d)));
    for (int r = 0; r < rows.count; ++r) {
      Value* q = build_.CreateLoad(build_.real(), real_at(queries_, row_at(r), spec_.dim, d));
      for (int g = 0; g < groups; ++g)
        next.push_back(
            build_.fma(keys[static_cast<std::size_t>(g)], build_.splat(q), so_far[next.size()]));
    }
    return next;
  };
  const Values sums = build_.loop(build_.index(0), build_.index(spec_.dim), 1, zeros, step);
  for (int r = 0; r < rows.count; ++r) {
    for (int g = 0; g < groups; ++g) {
      build_.store(sums[static_cast<std::size_t>(r * groups + g)],
                   scores_of(row_at(r), group_at(g)));
    }
  }
}

// --- values --------------------------------------------------------------------------------------

void DecodeProducts::add_values() {
  if (spec_.widens_values()) widen_values();
  for_rows([&](const Rows& rows) { add_rows(rows); });
}

// Once for all rows, which would each convert them again.
void DecodeProducts::widen_values() {
  const std::int64_t lanes = build_.lanes(), whole = spec_.value_dim - spec_.value_dim % lanes;
  const auto widen = [&](Value* key, const Row& row, Value* d, bool vector) {
    Value* number = stored(row, d, vector);
    build_.store(number, real_at(wide_, key, spec_.value_dim, d));
  };
  build_.loop(build_.index(0), groups_, 1, [&](Value* number) {
    const Group group = group_of(values_, number);
    build_.loop(build_.index(0), keys_of(number), 1, [&](Value* lane) {
      Value* key = build_.CreateNSWAdd(first_key(number), lane);
      const Row row = row_of(group, lane);
      build_.loop(build_.index(0), build_.index(whole), lanes, [&](Value* d) {
        widen(key, row, d, true);
        fetch_next(row, d);
      });
      build_.loop(build_.index(whole), build_.index(spec_.value_dim), 1,
                  [&](Value* d) { widen(key, row, d, false); });
    });
  });
}

void DecodeProducts::add_rows(const Rows& rows) {
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
    if (all == 0 && !spec_.dropout) add_weights(row);
    build_.loop(build_.index(all * lanes), build_.index(spec_.value_dim), 1,
                [&](Value* d) { add_column(row, d); });
  }
}

// `vectors` vectors of O of some rows, from element d on.
void DecodeProducts::add_columns(const Rows& rows, Value* d, int vectors, bool with_weights) {
  const auto row_at = [&](int r) { return build_.CreateNSWAdd(rows.first, build_.index(r)); };
  const auto column = [&](int v) {
    return build_.CreateNSWAdd(d, build_.index(v * build_.lanes()));
  };
  const auto total_at = [&](int r) { return build_.element(build_.real(), weight_, row_at(r)); };
  Values sums;  // of a row: O, then l in every lane
  for (int r = 0; r < rows.count; ++r) {
    for (int v = 0; v < vectors; ++v)
      sums.push_back(build_.load(build_.reals(), sums_of(row_at(r), column(v))));
    if (with_weights) sums.push_back(build_.splat(build_.CreateLoad(build_.real(), total_at(r))));
  }
  const auto step = [&](Value* k, const Row& row, const Values& so_far) {
    Values values, next;
    for (int v = 0; v < vectors; ++v) {
      values.push_back(stored(row, column(v), true));
      const auto bytes = static_cast<std::int64_t>(size_of(spec_.value_type));
      if (v * build_.lanes() * bytes % line_bytes == 0) fetch_next(row, column(v));
    }
    for (int r = 0; r < rows.count; ++r) {
      Value* weight = build_.splat(weight_of(row_at(r), k));
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
    for (int v = 0; v < vectors; ++v) build_.store(*next++, sums_of(row_at(r), column(v)));
    if (with_weights)
      build_.CreateStore(build_.CreateExtractElement(*next++, std::uint64_t{0}), total_at(r));
  }
}

// One element of O of a row.
void DecodeProducts::add_column(Value* row, Value* d) {
  Value* at = sums_of(row, d);
  const auto step = [&](Value* k, const Row& value, const Values& so_far) {
    return Values{build_.fma(stored(value, d, false), weight_of(row, k), so_far.front())};
  };
  Value* before = build_.CreateLoad(build_.real(), at);
  build_.CreateStore(for_values({before}, step).front(), at);
}

void DecodeProducts::add_weights(Value* row) {
  Value* at = build_.element(build_.real(), weight_, row);
  const auto step = [&](Value* k, const Values& so_far) {
    return Values{build_.CreateFAdd(so_far.front(), weight_of(row, k))};
  };
  Value* before = build_.CreateLoad(build_.real(), at);
  build_.CreateStore(build_.loop(build_.index(0), count_, 1, {before}, step).front(), at);
}

}  // namespace treadle::emit::llvm
