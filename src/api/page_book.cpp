// The bookkeeping of pages. Read plan() first.
#include "api/page_book.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/at.h"
#include "base/error.h"

namespace treadle::api {

using base::at;
using base::fail;

PageBook::PageBook(const Limits& limits)
    : limits_(limits), counts_(at(limits.pages)), free_(at(limits.pages)) {
  for (std::size_t i = 0; i < free_.size(); ++i)
    free_[i] = static_cast<std::int32_t>(free_.size() - 1 - i);
}

std::int64_t PageBook::pages_for(std::int64_t tokens) const {
  return tokens / limits_.page_size + (tokens % limits_.page_size > 0 ? 1 : 0);
}

const PageBook::Sequence& PageBook::in_use(std::string_view call, std::int64_t slot) const {
  if (slot < 0 || slot >= std::ssize(sequences_) || !sequences_[at(slot)].used)
    fail("{}: slot {} is not in use; slots in use come from add and fork", call, slot);
  return sequences_[at(slot)];
}

std::int64_t PageBook::unused_slot(std::string_view call) {
  const auto found = std::ranges::find(sequences_, false, &Sequence::used);
  if (found != sequences_.end()) return found - sequences_.begin();
  if (used_ == limits_.sequences)
    fail("{}: {} sequences are in use; there may be {} at a time", call, used_, limits_.sequences);
  sequences_.emplace_back();
  return std::ssize(sequences_) - 1;
}

std::int64_t PageBook::add(std::string_view call) {
  const std::int64_t slot = unused_slot(call);
  sequences_[at(slot)].used = true;
  ++used_;
  return slot;
}

void PageBook::check_room(std::string_view call, const Rows& rows, std::int64_t length) const {
  constexpr std::int64_t greatest = std::numeric_limits<std::int64_t>::max();
  const std::int64_t pages = limits_.pages_per_sequence, size = limits_.page_size;
  const std::int64_t most = pages > greatest / size ? greatest : pages * size;
  if (rows.count <= most - length) return;
  fail("{}: sequence {} has {} tokens and gets {}; it may have {} pages of {}, {} tokens", call,
       rows.slot, length, rows.count, pages, size, most);
}

void PageBook::add_pieces(std::vector<Piece>& pieces, const Rows& rows, bool copies,
                          std::int64_t taken) const {
  const Sequence& sequence = sequences_[at(rows.slot)];
  const std::int64_t size = limits_.page_size;
  for (std::int64_t done = 0; done < rows.count;) {
    const std::int64_t position = sequence.length + done, token = position % size;
    Piece piece{.slot = rows.slot, .token = token, .row = rows.first + done};
    piece.count = std::min(size - token, rows.count - done);
    if (copies && done == 0) piece.copied = sequence.pages.back();
    piece.page = piece.takes_page() ? free_[at(free_pages() - 1 - taken++)]
                                    : sequence.pages[at(position / size)];
    pieces.push_back(piece);
    done += piece.count;
  }
}

std::vector<PageBook::Piece> PageBook::plan(std::string_view call, std::span<const Rows> all) {
  std::vector<Piece> pieces;
  std::unordered_map<std::int32_t, std::int32_t> left;  // by sequences that copy a page instead
  std::int64_t taken = 0, tokens = 0;
  for (const Rows& rows : all) {
    (void)in_use(call, rows.slot);
    if (rows.count == 0) continue;
    Sequence& sequence = sequences_[at(rows.slot)];
    check_room(call, rows, sequence.length);
    bool copies = false;
    if (sequence.length % limits_.page_size > 0) {
      const std::int32_t last = sequence.pages.back(), count = counts_[at(last)];
      copies = count > 1 && count - left[last] > 1;
      if (copies) ++left[last];
    }
    const std::int64_t pages = pages_for(sequence.length + rows.count), before = taken;
    taken += pages - std::ssize(sequence.pages) + (copies ? 1 : 0);
    tokens += rows.count;
    if (taken > free_pages()) continue;  // it fails below, when all are counted
    if (at(pages) > sequence.pages.capacity())
      sequence.pages.reserve(std::max(at(pages), 2 * sequence.pages.capacity()));
    add_pieces(pieces, rows, copies, before);
  }
  if (taken > free_pages()) {
    fail("{}: {} tokens need {} more pages; {} of {} are free", call, tokens, taken, free_pages(),
         limits_.pages);
  }
  return pieces;
}

void PageBook::commit(std::span<const Piece> pieces) noexcept {
  for (const Piece& piece : pieces) {
    Sequence& sequence = sequences_[at(piece.slot)];
    if (piece.copied >= 0) {
      --counts_[at(piece.copied)];
      sequence.pages.back() = piece.page;
    } else if (piece.token == 0) {
      sequence.pages.push_back(piece.page);  // plan() made room
    }
    if (piece.takes_page()) {
      free_.pop_back();
      counts_[at(piece.page)] = 1;
    }
    sequence.length += piece.count;
  }
}

std::int64_t PageBook::fork(std::string_view call, std::int64_t slot,
                            std::optional<std::int64_t> length) {
  const Sequence& from = in_use(call, slot);
  const std::int64_t tokens = length.value_or(from.length);
  if (tokens < 0 || tokens > from.length) {
    fail("{}: the length is {}, sequence {} has {} tokens; it must be 0 to {}", call, tokens, slot,
         from.length, from.length);
  }
  std::vector<std::int32_t> pages(from.pages.begin(), from.pages.begin() + pages_for(tokens));
  const std::int64_t made = add(call);  // `from` may have moved
  for (const std::int32_t page : pages) ++counts_[at(page)];
  sequences_[at(made)].length = tokens;
  sequences_[at(made)].pages = std::move(pages);
  return made;
}

void PageBook::drop_pages(Sequence& sequence, std::int64_t keep) noexcept {
  while (std::ssize(sequence.pages) > keep) {
    const std::int32_t page = sequence.pages.back();
    sequence.pages.pop_back();
    if (--counts_[at(page)] == 0) free_.push_back(page);  // there is room for all
  }
}

void PageBook::trim(std::string_view call, std::int64_t slot, std::int64_t length) {
  const std::int64_t now = in_use(call, slot).length;
  if (length < 0 || length > now) {
    fail("{}: the length is {}, sequence {} has {} tokens; it must be 0 to {}", call, length, slot,
         now, now);
  }
  Sequence& sequence = sequences_[at(slot)];
  drop_pages(sequence, pages_for(length));
  sequence.length = length;
}

void PageBook::free(std::string_view call, std::int64_t slot) {
  (void)in_use(call, slot);
  Sequence& sequence = sequences_[at(slot)];
  drop_pages(sequence, 0);
  sequence.length = 0;
  sequence.used = false;
  --used_;
}

}  // namespace treadle::api
