// A paged cache holds what plain lists of tokens hold, whatever is done to it, and attention over
// its pages has the bits of attention over these lists.
#include "treadle/paged_kv.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "fuzz.h"
#include "held_cache.h"
#include "plain_attention.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

using test::cache_rows;
using test::CacheCase;
using test::CacheModel;
using test::CacheSize;
using test::element;
using test::expect_row;
using test::Held;
using test::Pages;
using test::random_int;
using test::random_tensor;
using test::same_bits;
using test::ScaleKind;

// Lengths, contents and counts.
void expect_model(const Held& held, const CacheModel& model) {
  const PagedKV& cache = held.cache;
  const std::int64_t page_size = held.types.page_size;
  ASSERT_EQ(cache.sequences(), std::ssize(model.sequences));
  std::set<std::int32_t> taken;
  for (const auto& [slot, tokens] : model.sequences) {
    ASSERT_EQ(cache.length(slot), std::ssize(tokens));
    const std::vector<std::int32_t> pages = cache.pages_of(slot);
    ASSERT_EQ(std::ssize(pages), (std::ssize(tokens) + page_size - 1) / page_size);
    taken.insert(pages.begin(), pages.end());
    for (std::int64_t t = 0; t < std::ssize(tokens); ++t) {
      const std::int32_t page = pages[static_cast<std::size_t>(t / page_size)];
      const test::StoredToken& token = tokens[static_cast<std::size_t>(t)];
      SCOPED_TRACE(testing::Message() << "slot " << slot << ", token " << t);
      ASSERT_NO_FATAL_FAILURE(expect_row(held.k, held.k_scales, held.size.order, page,
                                         t % page_size, token.k, held.types.heads, held.types.dim));
      ASSERT_NO_FATAL_FAILURE(expect_row(held.v, held.v_scales, held.size.order, page,
                                         t % page_size, token.v, held.types.heads,
                                         held.types.value_dim));
    }
  }
  ASSERT_EQ(cache.free_pages(), cache.pages() - std::ssize(taken));
}

// A call over these slots has the bits of one over the model's rows.
void expect_same_attention(const Attention& attention, const Held& held, const CacheModel& model,
                           const std::vector<std::int64_t>& slots, std::mt19937_64& random) {
  const CacheModel::Packed packed = model.packed(slots);
  std::vector<std::int32_t> starts{0};
  for (const std::int64_t slot : slots)
    starts.push_back(starts.back() +
                     static_cast<std::int32_t>(random_int(
                         random, 0, std::min<std::int64_t>(3, held.cache.length(slot)))));
  const Tensor q =
      random_tensor(random(), DType::f32, {starts.back(), 2 * held.types.heads, held.types.dim});
  const auto view = [](const std::vector<std::int32_t>& of) {
    return ConstView(of.data(), {std::ssize(of)});
  };
  PagedKV::Batch made = held.cache.batch(slots);
  const PagedKV::Batch batch = std::move(made);
  const Forward paged =
      attention.forward(Sequences{q, view(starts), batch.keys}, {.lse = true, .max = true});
  const Forward plain = attention.forward(
      Sequences{q, view(starts), PackedKeys{packed.k, packed.v, view(packed.starts)}},
      {.lse = true, .max = true});
  EXPECT_TRUE(same_bits(paged.out, plain.out));
  EXPECT_TRUE(same_bits(paged.lse, plain.lse));
  EXPECT_TRUE(same_bits(paged.max, plain.max));
}

CacheCase random_case(std::mt19937_64& random) {
  constexpr DType rows[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
  constexpr DType pools[] = {DType::f32,  DType::bf16, DType::f16, DType::f64,
                             DType::e4m3, DType::e5m2, DType::i8};
  constexpr std::int64_t sizes[] = {1, 3, 5, 16};
  CacheCase c{.rows = rows[random() % 4], .k = pools[random() % 7], .v = pools[random() % 7]};
  c.heads = random_int(random, 1, 3);
  c.value_dim = random() % 2 == 0 ? 8 : 12;
  c.page_size = sizes[random() % 4];
  const bool given = random() % 4 == 0;  // one for both
  const auto kind = [&](DType type) {
    if (size_of(type) > 1 || (type != DType::i8 && random() % 3 == 0)) return ScaleKind::none;
    return given ? ScaleKind::given : random() % 2 == 0 ? ScaleKind::token : ScaleKind::page;
  };
  c.k_scales = kind(c.k);
  c.v_scales = kind(c.v);
  return c;
}

// Random calls, made to a cache and to the model.
class Session {
 public:
  Session(const CacheCase& c, const CacheSize& size, std::mt19937_64& random)
      : held(c, size), model(c), random_(random) {}

  Held held;
  CacheModel model;
  int errors = 0, copied = 0;

  void step() {
    const Held::Snapshot before = held.snapshot(model);
    const auto old_slots = slots();
    try {
      // As many end as begin: a cache that is full has no forks.
      const bool full = held.cache.sequences() == held.size.sequences && random_() % 4 == 0;
      const auto call = model.sequences.empty() ? 0 : full ? 11 : random_() % 12;
      if (call == 0) add();
      if (call >= 1 && call < 4) append();
      if (call >= 4 && call < 7) append_packed();
      if (call >= 7 && call < 10) fork();
      if (call == 10) trim();
      if (call == 11) free();
    } catch (const Error& error) {
      ++errors;
      ASSERT_EQ(std::string(error.what()).substr(0, 9), "PagedKV::");
      ASSERT_TRUE(held.snapshot(model) == before) << error.what();
    }
    for (std::size_t i = 0; i < old_slots.size(); ++i) {
      if (!model.sequences.contains(old_slots[i])) continue;
      const auto now = held.cache.pages_of(old_slots[i]);
      const std::size_t count = std::min(now.size(), before.pages[i].size());
      if (!std::equal(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(count),
                      before.pages[i].begin()))
        ++copied;
    }
  }

  [[nodiscard]] std::vector<std::int64_t> slots() const {
    std::vector<std::int64_t> all;
    for (const auto& [slot, tokens] : model.sequences) all.push_back(slot);
    return all;
  }

 private:
  // Mostly one in use.
  std::int64_t slot() {
    const auto all = slots();
    if (all.empty() || random_() % 20 == 0) return random_int(random_, -1, held.size.sequences);
    return all[random_() % all.size()];
  }
  CacheModel::Tokens& tokens(std::int64_t slot) { return model.sequences.at(slot); }

  Tensor rows(std::int64_t count, std::int64_t dim) {
    Tensor made = random_tensor(random_(), DType::f64, {count, held.types.heads, dim});
    const double size = std::exp2(static_cast<double>(random_int(random_, -8, 4)));
    for (double& x : made.data<double>()) x *= size;
    if (random_() % 8 == 0) std::ranges::fill(made.data<double>(), 0);
    return base::convert(made, held.types.rows);
  }

  void add() {
    const bool full = held.cache.sequences() == held.size.sequences;
    const std::int64_t made = held.cache.add();
    ASSERT_FALSE(full);
    ASSERT_TRUE(model.sequences.emplace(made, CacheModel::Tokens()).second);
  }

  // Pages that an append takes, counted from the tables.
  std::int64_t pages_needed(std::int64_t slot, std::int64_t count) {
    const std::int64_t length = held.cache.length(slot), size = held.types.page_size;
    if (count == 0) return 0;
    const auto pages_of = [&](std::int64_t tokens) { return (tokens + size - 1) / size; };
    std::int64_t needed = pages_of(length + count) - pages_of(length);
    if (length % size == 0) return needed;
    const std::int32_t last = held.cache.pages_of(slot).back();
    for (const std::int64_t other : slots()) {
      if (other == slot) continue;
      const auto theirs = held.cache.pages_of(other);
      if (std::ranges::count(theirs, last) > 0) return needed + 1;
    }
    return needed;
  }

  void append() {
    const std::int64_t at = slot(), count = random_int(random_, 0, held.types.page_size + 3);
    const Tensor k = rows(count, held.types.dim), v = rows(count, held.types.value_dim);
    if (!model.sequences.contains(at)) {
      held.cache.append(at, k, v);
      FAIL() << "slot " << at << " is not in use";
    }
    const bool fits =
        pages_needed(at, count) <= held.cache.free_pages() &&
        held.cache.length(at) + count <= held.size.pages_per_sequence * held.types.page_size;
    try {
      held.cache.append(at, k, v);
    } catch (const Error& error) {
      EXPECT_FALSE(fits) << error.what();
      throw;
    }
    EXPECT_TRUE(fits);
    model.append(at, k, v, 0, count);
  }

  void append_packed() {
    std::vector<std::int64_t> all = slots();
    std::ranges::shuffle(all, random_);
    if (!all.empty() && random_() % 2 == 0) all.resize(1 + random_() % all.size());
    if (random_() % 20 == 0) all.push_back(slot());
    std::vector<std::int32_t> starts{0};
    for (std::size_t i = 0; i < all.size(); ++i)
      starts.push_back(starts.back() + static_cast<std::int32_t>(
                                           random_int(random_, 0, random_() % 2 == 0 ? 1 : 5)));
    const Tensor k = rows(starts.back(), held.types.dim);
    const Tensor v = rows(starts.back(), held.types.value_dim);
    held.cache.append(all, ConstView(starts.data(), {std::ssize(starts)}), k, v);
    for (std::size_t i = 0; i < all.size(); ++i)
      model.append(all[i], k, v, starts[i], starts[i + 1]);
  }

  void fork() {
    const std::int64_t from = slot();
    std::optional<std::int64_t> length;
    if (random_() % 2 == 0 && model.sequences.contains(from))
      length = random_int(random_, 0, held.cache.length(from) + (random_() % 10 == 0 ? 2 : 0));
    const std::int64_t made = held.cache.fork(from, length);
    CacheModel::Tokens shared = tokens(from);
    if (length) shared.resize(static_cast<std::size_t>(*length));
    ASSERT_TRUE(model.sequences.emplace(made, std::move(shared)).second);
  }

  void trim() {
    const std::int64_t at = slot();
    const std::int64_t now = model.sequences.contains(at) ? held.cache.length(at) : 0;
    const std::int64_t length = random_() % 10 == 0 ? random_int(random_, -1, now + 1)
                                                    : random_int(random_, 3 * now / 4, now);
    held.cache.trim(at, length);
    tokens(at).resize(static_cast<std::size_t>(length));
  }

  void free() {
    const std::int64_t at = slot();
    held.cache.free(at);
    ASSERT_EQ(model.sequences.erase(at), 1U);
  }

  std::mt19937_64& random_;
};

TEST(PagedCache, HoldsWhatListsOfTokensHold) {
  const Attention attention = compile({.mask = mods::causal()});
  int errors = 0, copied = 0;
  for (int round = 0; round < test::fuzz_count(200); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    const CacheCase types = random_case(random);
    SCOPED_TRACE(testing::PrintToString(types));
    const CacheSize size{
        .pages = random_int(random, 0, 40),
        .sequences = random_int(random, 1, 6),
        .pages_per_sequence = random_int(random, 1, 12),
        .order = random() % 2 == 0 ? PageOrder::heads_first : PageOrder::tokens_first};
    Session session(types, size, random);
    for (int step = 0; step < 60; ++step) {
      SCOPED_TRACE(testing::Message() << "step " << step);
      ASSERT_NO_FATAL_FAILURE(session.step());
      ASSERT_NO_FATAL_FAILURE(expect_model(session.held, session.model));
      if (step % 20 == 19)
        expect_same_attention(attention, session.held, session.model, session.slots(), random);
    }
    for (const std::int64_t slot : session.slots()) session.held.cache.free(slot);
    EXPECT_EQ(session.held.cache.free_pages(), size.pages);
    EXPECT_EQ(session.held.cache.sequences(), 0);
    errors += session.errors;
    copied += session.copied;
  }
  EXPECT_GE(errors, test::fuzz_at_least(500));
  EXPECT_GE(copied, test::fuzz_at_least(150));
}

TEST(PagedCache, CopiesPagesThatOthersHaveBeforeItWritesToThem) {
  Held held({}, {});
  PagedKV& cache = held.cache;
  const std::int64_t first = cache.add();
  cache.append(first, cache_rows(1, 6), cache_rows(2, 6));
  EXPECT_EQ(cache.pages_of(first), (Pages{0, 1}));
  const std::int64_t all = cache.fork(first), some = cache.fork(first, 4);
  EXPECT_EQ(cache.pages_of(all), (Pages{0, 1}));
  EXPECT_EQ(cache.pages_of(some), (Pages{0}));
  EXPECT_EQ(cache.free_pages(), 6);
  cache.append(some, cache_rows(3, 1), cache_rows(4, 1));  // the shared page is full
  EXPECT_EQ(cache.pages_of(some), (Pages{0, 2}));
  cache.append(all, cache_rows(3, 1), cache_rows(4, 1));
  EXPECT_EQ(cache.pages_of(all), (Pages{0, 3}));
  cache.append(first, cache_rows(3, 1), cache_rows(4, 1));  // alone by now
  EXPECT_EQ(cache.pages_of(first), (Pages{0, 1}));
  EXPECT_EQ(cache.free_pages(), 4);
}

TEST(PagedCache, LeavesASharedPageToTheLastOfAnAppend) {
  Held held({}, {.pages = 4});
  PagedKV& cache = held.cache;
  CacheModel model(held.types);
  const std::int64_t a = cache.add();
  const Tensor k = cache_rows(1, 3), v = cache_rows(2, 3);
  cache.append(a, k, v);
  model.append(a, k, v, 0, 3);
  const std::int64_t b = cache.fork(a, 2), c = cache.fork(a);
  model.sequences[b] = model.sequences[c] = model.sequences[a];
  model.sequences[b].resize(2);
  const std::vector<std::int64_t> starts{0, 1, 2, 3};
  cache.append({c, b, a}, ConstView(starts.data(), {4}), k, v);
  for (const auto& [slot, row] : {std::pair(c, 0), std::pair(b, 1), std::pair(a, 2)})
    model.append(slot, k, v, row, row + 1);
  EXPECT_EQ(cache.pages_of(a), (Pages{0}));
  EXPECT_EQ(cache.free_pages(), 1);
  expect_model(held, model);
}

TEST(PagedCache, GivesBackPagesThatNobodyNeeds) {
  Held held({}, {});
  PagedKV& cache = held.cache;
  const std::int64_t first = cache.add();
  cache.append(first, cache_rows(1, 14), cache_rows(2, 14));
  const std::int64_t other = cache.fork(first, 5);
  cache.trim(first, 8);
  EXPECT_EQ(cache.pages_of(first), (Pages{0, 1}));
  EXPECT_EQ(cache.free_pages(), 6);
  cache.free(first);
  EXPECT_EQ(cache.free_pages(), 6);
  EXPECT_EQ(cache.add(), first);  // the first slot that is not in use
  EXPECT_EQ(cache.length(first), 0);
  cache.trim(other, 0);
  EXPECT_EQ(cache.free_pages(), 8);
  EXPECT_EQ(cache.sequences(), 2);
}

TEST(PagedCache, TakesRowsOfAnyStrides) {
  Held held({}, {});
  CacheModel model(held.types);
  const Tensor wide = random_tensor(3, DType::f32, {2, 8, 5});  // [heads, dim, tokens]
  const ConstView view = wide;
  const ConstView turned(view.data(), DType::f32, {5, 2, 8}, {1, 40, 5});
  const ConstView repeated(view.data(), DType::f32, {5, 2, 8}, {0, 40, 1});
  const std::int64_t slot = held.cache.add();
  held.cache.append(slot, turned, repeated);
  model.append(slot, turned, repeated, 0, 5);
  expect_model(held, model);
}

TEST(PagedCache, MovesWithItsSequences) {
  Held held({}, {});
  PagedKV cache = std::move(held.cache);
  const std::int64_t slot = cache.add();
  cache.append(slot, cache_rows(1, 3), cache_rows(2, 3));
  PagedKV other = std::move(cache);
  EXPECT_EQ(other.length(slot), 3);
  EXPECT_EQ(other.page_size(), 4);
  EXPECT_EQ(other.pages(), 8);
}

TEST(PagedCache, RoundsRowsOnce) {
  Held held({.k = DType::bf16, .v = DType::f16}, {});
  Tensor k(DType::f64, {1, 2, 8}), v(DType::f64, {1, 2, 8});
  k.at<double>({0, 0, 0}) = 1 + 0x1p-8 + 0x1p-40;  // in f32 first it would be a tie
  v.at<double>({0, 0, 0}) = 1 + 0x1p-11 + 0x1p-40;
  held.cache.append(held.cache.add(), k, v);
  EXPECT_EQ(element(held.k, held.size.order, 0, 0, 0, 0), 1 + 0x1p-7);
  EXPECT_EQ(element(held.v, held.size.order, 0, 0, 0, 0), 1 + 0x1p-10);
}

}  // namespace
}  // namespace treadle
