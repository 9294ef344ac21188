// A cache is a book of pages (api/page_book.h) and two pools (api/paged_rows.h). An append is
// checked and planned, which may fail, then written and entered into the book, which may not.
#include "treadle/paged_kv.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "api/page_book.h"
#include "api/paged_rows.h"
#include "api/sequences.h"
#include "base/at.h"
#include "base/error.h"

namespace treadle {
namespace {

using api::PageBook;
using api::PagedRows;
using base::fail;

constexpr std::string_view append_name = "PagedKV::append";

void check_number(std::string_view name, std::int64_t number, std::int64_t least) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();  // of page tables
  if (number < least || number > most)
    fail("PagedKV: {} is {}; it must be {} to {}", name, number, least, most);
}

PageBook::Limits limits_of(const PagedRows& k, const PagedRows& v, const PagedKVOptions& options) {
  if (v.pages() != k.pages() || v.page_size() != k.page_size() || v.heads() != k.heads()) {
    fail(
        "PagedKV: k_pool has {} pages of {} tokens and {} heads, v_pool {} of {} and {}; they must "
        "be equal",
        k.pages(), k.page_size(), k.heads(), v.pages(), v.page_size(), v.heads());
  }
  if (options.scales_given && !options.k_scales && !options.v_scales)
    fail("PagedKV: scales_given is set, but there are no scales");
  check_number("the number of pages", k.pages(), 0);
  check_number("sequences", options.sequences, 1);
  check_number("pages_per_sequence", options.pages_per_sequence, 1);
  return {k.pages(), k.page_size(), options.sequences, options.pages_per_sequence};
}

}  // namespace

struct PagedKV::State {
  View k_pool, v_pool;
  PagedKVOptions options;
  PagedRows k, v;
  PageBook book;

  State(const View& keys, const View& values, const PagedKVOptions& given)
      : k_pool(keys),
        v_pool(values),
        options(given),
        k("k", keys, given.order, {given.k_scales, given.scales_given}),
        v("v", values, given.order, {given.v_scales, given.scales_given}),
        book(limits_of(k, v, given)) {
    if (keys.count() > 0 && keys.data() == values.data())
      fail("PagedKV: k_pool and v_pool begin at the same address; they must not share memory");
  }

  void check(const ConstView& keys, const ConstView& values) const {
    k.check(append_name, keys);
    v.check(append_name, values);
    if (keys.size(0) != values.size(0)) {
      fail("{}: there are {} keys and {} values; they must be equal", append_name, keys.size(0),
           values.size(0));
    }
    for (const auto& [name, rows] : {std::pair("k", &keys), std::pair("v", &values)}) {
      if (k.overlaps(*rows) || v.overlaps(*rows))
        fail("{}: {} lies in the memory of the cache; rows must not", append_name, name);
    }
  }

  void append(std::span<const PageBook::Rows> rows, const ConstView& keys,
              const ConstView& values) {
    const std::vector<PageBook::Piece> pieces = book.plan(append_name, rows);
    k.check_values(append_name, keys);
    v.check_values(append_name, values);
    for (const PageBook::Piece& piece : pieces) {
      if (piece.copied >= 0) {
        k.copy(piece.copied, piece.page, piece.token);
        v.copy(piece.copied, piece.page, piece.token);
      }
      const layout::Range which{piece.row, piece.row + piece.count};
      k.write(piece.page, piece.token, keys, which);
      v.write(piece.page, piece.token, values, which);
    }
    book.commit(pieces);
  }
};

PagedKV::PagedKV(const View& k_pool, const View& v_pool, const PagedKVOptions& options)
    : state_(std::make_unique<State>(k_pool, v_pool, options)) {}
PagedKV::PagedKV(PagedKV&& other) noexcept = default;
PagedKV& PagedKV::operator=(PagedKV&& other) noexcept = default;
PagedKV::~PagedKV() = default;

std::int64_t PagedKV::add() { return state_->book.add("PagedKV::add"); }

void PagedKV::append(std::int64_t slot, const ConstView& k, const ConstView& v) {
  state_->check(k, v);
  const PageBook::Rows rows{slot, 0, k.size(0)};
  state_->append({&rows, 1}, k, v);
}

void PagedKV::append(const std::vector<std::int64_t>& slots, const ConstView& starts,
                     const ConstView& k, const ConstView& v) {
  state_->check(k, v);
  const auto first = api::starts_of(append_name, "starts", starts, k.size(0), "rows");
  if (first.size() != slots.size() + 1) {
    fail("{}: starts is for {} sequences, there are {} slots; they must be equal", append_name,
         first.size() - 1, slots.size());
  }
  std::vector<std::int64_t> sorted = slots;
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice != sorted.end())
    fail("{}: slot {} is there twice; each may be once", append_name, *twice);
  std::vector<PageBook::Rows> rows;
  rows.reserve(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i)
    rows.push_back({slots[i], first[i], first[i + 1] - first[i]});
  state_->append(rows, k, v);
}

std::int64_t PagedKV::fork(std::int64_t slot, std::optional<std::int64_t> length) {
  return state_->book.fork("PagedKV::fork", slot, length);
}

void PagedKV::trim(std::int64_t slot, std::int64_t length) {
  state_->book.trim("PagedKV::trim", slot, length);
}

void PagedKV::free(std::int64_t slot) { state_->book.free("PagedKV::free", slot); }

std::int64_t PagedKV::length(std::int64_t slot) const {
  return state_->book.in_use("PagedKV::length", slot).length;
}

std::vector<std::int32_t> PagedKV::pages_of(std::int64_t slot) const {
  return state_->book.in_use("PagedKV::pages_of", slot).pages;
}

std::int64_t PagedKV::sequences() const { return state_->book.used(); }
std::int64_t PagedKV::pages() const { return state_->book.limits().pages; }
std::int64_t PagedKV::free_pages() const { return state_->book.free_pages(); }
std::int64_t PagedKV::page_size() const { return state_->book.limits().page_size; }

PagedKV::Batch PagedKV::batch(const std::vector<std::int64_t>& slots) const {
  std::int64_t longest = 1;
  for (const std::int64_t slot : slots)
    longest = std::max(longest, std::ssize(state_->book.in_use("PagedKV::batch", slot).pages));
  Batch made{Tensor(DType::i32, {std::ssize(slots), longest}),
             Tensor(DType::i64, {std::ssize(slots)}),
             {}};
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const PageBook::Sequence& sequence = state_->book.in_use("PagedKV::batch", slots[i]);
    made.lengths.data<std::int64_t>()[i] = sequence.length;
    std::ranges::copy(sequence.pages,
                      made.table.data<std::int32_t>().subspan(i * base::at(longest)).begin());
  }
  const PagedKVOptions& options = state_->options;
  made.keys = {state_->k_pool, state_->v_pool, made.table, made.lengths, options.order, {}, {}};
  if (options.k_scales) made.keys.k_scales = *options.k_scales;
  if (options.v_scales) made.keys.v_scales = *options.v_scales;
  return made;
}

}  // namespace treadle
