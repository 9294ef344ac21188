// What sequences may be given as. Read check_sequences() first.
#include "api/sequences.h"

#include <algorithm>
#include <bit>
#include <string>

#include "api/check.h"
#include "api/positions.h"
#include "base/error.h"

namespace treadle::api {
namespace {

using base::fail;
using layout::Range;

// Integers of a vector, widened, read once: others may write to it.
std::vector<std::int64_t> integers_of(std::string_view call, std::string_view name,
                                      const ConstView& view) {
  if (view.rank() != 1 || (view.dtype() != DType::i32 && view.dtype() != DType::i64)) {
    fail("{}: {} holds {} of shape {}; it must be a vector of i32 or i64", call, name,
         name_of(view.dtype()), to_string(view.shape()));
  }
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(view.size(0)));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i) * view.stride(0);
    numbers[i] = view.dtype() == DType::i32 ? static_cast<const std::int32_t*>(view.data())[at]
                                            : static_cast<const std::int64_t*>(view.data())[at];
  }
  return numbers;
}

}  // namespace

std::vector<std::int64_t> starts_of(std::string_view call, std::string_view name,
                                    const ConstView& view, std::int64_t rows, std::string_view of) {
  std::vector<std::int64_t> starts = integers_of(call, name, view);
  if (starts.empty())
    fail("{}: {} is empty; it holds 0 first, then where each sequence ends", call, name);
  if (starts.front() != 0)
    fail("{}: {} begins with {}; it must begin with 0", call, name, starts.front());
  for (std::size_t i = 1; i < starts.size(); ++i) {
    if (starts[i] < starts[i - 1]) {
      fail("{}: {} holds {} after {}; starts must not fall", call, name, starts[i], starts[i - 1]);
    }
  }
  if (starts.back() != rows) {
    fail("{}: {} ends with {}, there are {} {}; they must be equal", call, name, starts.back(),
         rows, of);
  }
  return starts;
}

namespace {

void check_rank(std::string_view call, std::string_view name, const ConstView& view, int rank,
                std::string_view axes) {
  if (view.rank() != rank)
    fail("{}: {} has shape {}; it must be {}", call, name, to_string(view.shape()), axes);
}

// Both look at every page of every call, and have no exit in their loops so that they are vectors.

// A negative number is larger than any page.
std::int64_t largest_page(const backend::Pages& pages, std::int64_t count) {
  std::uint32_t largest = 0;
  for (std::int64_t p = 0; p < count; ++p) {
    const auto page = static_cast<std::uint32_t>(pages.table[p * pages.stride]);
    largest = page > largest ? page : largest;
  }
  return largest;
}

bool are_finite(const float* numbers, std::int64_t step, std::int64_t count) {
  constexpr std::uint32_t infinity = 0x7f800000;
  std::uint32_t largest = 0;  // magnitude, which bits order as numbers
  const auto look_at = [&](float number) {
    const auto magnitude = std::bit_cast<std::uint32_t>(number) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  };
  if (step == 1) {
    for (std::int64_t i = 0; i < count; ++i) look_at(numbers[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) look_at(numbers[i * step]);
  }
  return largest < infinity;
}

class Checker {
 public:
  Checker(std::string_view name, const Sequences& given, const Call& call, CheckedSequences& to)
      : name_(name), given_(given), call_(call), to_(to) {}

  void check() {
    if (!call_.layout.empty())
      fail("{}: a layout is given; sequences of different lengths make their own", name_);
    check_rank(name_, "q", given_.q, 3, "[queries, heads, dim]");
    const auto starts = starts_of(name_, "q_starts", given_.q_starts, given_.q.size(0), "queries");
    to_.all.resize(starts.size() - 1);
    for (std::size_t i = 0; i < to_.all.size(); ++i)
      to_.all[i].query_rows = {starts[i], starts[i + 1]};
    if (const auto* packed = std::get_if<PackedKeys>(&given_.keys)) {
      check(*packed);
    } else {
      check(std::get<PagedKeys>(given_.keys));
    }
    find_positions();
  }

 private:
  [[nodiscard]] std::int64_t count() const { return std::ssize(to_.all); }

  // Types, heads and dims, as those of a plain call.
  void check_sizes(const ConstView& k, const ConstView& v, std::int64_t keys) {
    const auto shape_of = [](const ConstView& view, std::int64_t heads, std::int64_t rows,
                             std::int64_t dim) {
      return TensorSpec(view.dtype(), {1, heads, rows, dim});
    };
    to_.sizes = check_inputs(
        name_, shape_of(given_.q, given_.q.size(1), given_.q.size(0), given_.q.size(2)),
        shape_of(k, k.size(1), keys, k.size(k.rank() - 1)),
        shape_of(v, v.size(1), keys, v.size(v.rank() - 1)));
  }

  void check(const PackedKeys& keys) {
    check_rank(name_, "k", keys.k, 3, "[keys, heads, dim]");
    check_rank(name_, "v", keys.v, 3, "[keys, heads, dim]");
    if (keys.v.size(0) != keys.k.size(0))
      fail("{}: there are {} keys and {} values; they must be equal", name_, keys.k.size(0),
           keys.v.size(0));
    check_sizes(keys.k, keys.v, keys.k.size(0));
    const auto starts = starts_of(name_, "k_starts", keys.starts, keys.k.size(0), "keys");
    check_count("k_starts", std::ssize(starts) - 1);
    for (std::size_t i = 0; i < to_.all.size(); ++i)
      to_.all[i].key_rows = {starts[i], starts[i + 1]};
  }

  void check_count(std::string_view what, std::int64_t sequences) const {
    if (sequences == count()) return;
    fail("{}: q_starts is for {} sequences, {} for {}; they must be equal", name_, count(), what,
         sequences);
  }

  void check(const PagedKeys& keys) {
    to_.paged = true;
    for (const auto& [name, pool] : {std::pair("k", &keys.k), std::pair("v", &keys.v)}) {
      check_rank(name_, name, *pool, 4,
                 keys.order == PageOrder::heads_first ? "[pages, heads, page size, dim]"
                                                      : "[pages, page size, heads, dim]");
      if (pool->stride(3) != 1 && pool->size(3) > 1)
        fail("{}: the last stride of {} is {}; that of a pool must be 1", name_, name,
             pool->stride(3));
    }
    to_.k = heads_first(keys.k, keys.order);
    to_.v = heads_first(keys.v, keys.order);
    if (to_.v.size(0) != to_.k.size(0) || to_.v.size(2) != to_.k.size(2)) {
      fail("{}: k has {} pages of {} tokens, v {} of {}; they must be equal", name_, to_.k.size(0),
           to_.k.size(2), to_.v.size(0), to_.v.size(2));
    }
    if (to_.k.size(2) == 0) fail("{}: a page has 0 tokens; it must have at least 1", name_);
    check_sizes(to_.k, to_.v, 0);
    const auto lengths = integers_of(name_, "lengths", keys.lengths);
    check_count("lengths", std::ssize(lengths));
    check_table(keys, lengths);
    to_.k_scales = scales_of(keys.k_scales, "k_scales", keys.order, lengths);
    to_.v_scales = scales_of(keys.v_scales, "v_scales", keys.order, lengths);
    for (CheckedSequences::One& one : to_.all) {
      one.pages.k_scales = to_.k_scales ? &*to_.k_scales : nullptr;
      one.pages.v_scales = to_.v_scales ? &*to_.v_scales : nullptr;
    }
  }

  void check_table(const PagedKeys& keys, const std::vector<std::int64_t>& lengths) {
    const ConstView& table = keys.table;
    if (table.rank() != 2 || table.dtype() != DType::i32) {
      fail("{}: the page table holds {} of shape {}; it must be [sequences, pages] of i32", name_,
           name_of(table.dtype()), to_string(table.shape()));
    }
    check_count("the page table", table.size(0));
    const std::int64_t page_size = to_.k.size(2), pool = to_.k.size(0);
    for (std::size_t i = 0; i < to_.all.size(); ++i) {
      CheckedSequences::One& one = to_.all[i];
      const std::int64_t length = lengths[i];
      if (length < 0 || length > table.size(1) * page_size) {
        fail("{}: sequence {} has length {}; its {} pages of {} tokens hold 0 to {}", name_, i,
             length, table.size(1), page_size, table.size(1) * page_size);
      }
      one.key_rows = length;
      one.pages.table = static_cast<const std::int32_t*>(table.data()) +
                        static_cast<std::int64_t>(i) * table.stride(0);
      one.pages.stride = table.stride(1);
      const std::int64_t pages = (length + page_size - 1) / page_size;
      if (pages > 0 && largest_page(one.pages, pages) >= pool)
        fail_page(one, static_cast<std::int64_t>(i), pages, pool);
    }
  }

  [[noreturn]] void fail_page(const CheckedSequences::One& one, std::int64_t sequence,
                              std::int64_t pages, std::int64_t pool) const {
    for (std::int64_t p = 0; p < pages; ++p) {
      const std::int64_t page = one.pages.table[p * one.pages.stride];
      if (page < 0 || page >= pool) {
        fail("{}: page {} of sequence {} is {}; the pool has {} pages, from 0 on", name_, p,
             sequence, page, pool);
      }
    }
    fail("{}: the page table of sequence {} changed during the call", name_, sequence);
  }

  // As [pages, key heads, page size], whatever was given.
  std::optional<ConstView> scales_of(const std::optional<ConstView>& given, std::string_view name,
                                     PageOrder order, const std::vector<std::int64_t>& lengths) {
    if (!given) return std::nullopt;
    const std::int64_t pages = to_.k.size(0), heads = to_.k.size(1), tokens = to_.k.size(2);
    const Dims by_page{pages, heads};
    const Dims by_token =
        order == PageOrder::heads_first ? Dims{pages, heads, tokens} : Dims{pages, tokens, heads};
    if (given->dtype() != DType::f32 || (given->shape() != by_page && given->shape() != by_token)) {
      fail("{}: {} holds {} of shape {}; it must be f32 of shape {} or {}", name_, name,
           name_of(given->dtype()), to_string(given->shape()), to_string(by_token),
           to_string(by_page));
    }
    const ConstView scales = scales_by_token(*given, order, tokens);
    for (std::size_t i = 0; i < to_.all.size(); ++i)
      check_scales(scales, name, static_cast<std::int64_t>(i), lengths[i]);
    return scales;
  }

  void check_scales(const ConstView& scales, std::string_view name, std::int64_t sequence,
                    std::int64_t length) const {
    const backend::Pages& pages = to_.all[static_cast<std::size_t>(sequence)].pages;
    const auto* data = static_cast<const float*>(scales.data());
    const std::int64_t tokens = scales.size(2), step = scales.stride(2);
    for (std::int64_t first = 0; first < length; first += tokens) {
      // An entry may have changed since it was checked.
      const std::int64_t page = std::clamp<std::int64_t>(pages.table[first / tokens * pages.stride],
                                                         0, scales.size(0) - 1);
      const std::int64_t here = step == 0 ? 1 : std::min(tokens, length - first);
      for (std::int64_t h = 0; h < scales.size(1); ++h) {
        const float* row = data + page * scales.stride(0) + h * scales.stride(1);
        if (are_finite(row, step, here)) continue;
        fail(
            "{}: {} of sequence {}, head {} holds a number that is not finite, among tokens {} to "
            "{}",
            name_, name, sequence, h, first, first + here - 1);
      }
    }
  }

  [[nodiscard]] std::optional<std::int64_t> offset_of(std::string_view what,
                                                      const std::vector<std::int64_t>& offsets,
                                                      std::size_t sequence) const {
    const auto given = std::ssize(offsets);
    if (given > 1 && given != count()) {
      fail("{}: there are {} {}, and {} sequences; there must be one for each, or one for all",
           name_, given, what, count());
    }
    if (offsets.empty()) return std::nullopt;
    return given == 1 ? offsets.front() : offsets[sequence];
  }

  void check_offset(std::string_view what, std::int64_t offset, std::int64_t rows) const {
    if (offset < -last_position || offset > last_position - rows) {
      fail("{}: {} holds {}, there are {} rows; positions are between {} and {}", name_, what,
           offset, rows, -last_position, last_position);
    }
  }

  // Rows before position 0 are padding, as in api/positions.h.
  static Range without_padding(Range rows, std::int64_t offset) {
    return {rows.begin + std::clamp<std::int64_t>(-offset, 0, rows.count()), rows.end};
  }

  void find_positions() {
    for (std::size_t i = 0; i < to_.all.size(); ++i) {
      CheckedSequences::One& one = to_.all[i];
      const std::int64_t queries = one.query_rows.count(), keys = one.key_rows.count();
      const std::int64_t kv = offset_of("kv_offsets", call_.kv_offsets, i).value_or(0);
      const auto given = offset_of("q_offsets", call_.q_offsets, i);
      if (!given && queries > keys) {
        fail(
            "{}: sequence {} has {} queries and {} keys; queries are the last positions of a "
            "sequence unless q_offsets says where they stand",
            name_, i, queries, keys);
      }
      const std::int64_t q = given.value_or(kv + keys - queries);
      check_offset("q_offsets", q, queries);
      check_offset("kv_offsets", kv, keys);
      const auto positions = [](Range rows, Range left, std::int64_t offset) {
        return left.empty()
                   ? Range()
                   : Range(left.begin - rows.begin + offset, left.end - rows.begin + offset);
      };
      const Range query_rows = without_padding(one.query_rows, q);
      const Range key_rows = without_padding(one.key_rows, kv);
      one.sizes = to_.sizes;
      one.sizes.first_b = static_cast<std::int64_t>(i);
      one.sizes.queries = positions(one.query_rows, query_rows, q);
      one.sizes.keys = positions(one.key_rows, key_rows, kv);
      one.pages.first = kv;
      one.query_rows = query_rows;
      one.key_rows = key_rows;
    }
  }

  std::string_view name_;
  const Sequences& given_;
  const Call& call_;
  CheckedSequences& to_;
};

}  // namespace

void check_sequences(std::string_view name, const Sequences& given, const Call& call,
                     CheckedSequences& checked) {
  Checker(name, given, call, checked).check();
}

}  // namespace treadle::api
