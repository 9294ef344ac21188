// PageBook: which pages the sequences of a cache have. It counts, and knows no memory of pages.
//
//   PageBook book({.pages = 64, .page_size = 16, .sequences = 8, .pages_per_sequence = 32});
//   const std::int64_t slot = book.add("add");
//   const PageBook::Rows rows{slot, 0, 20};
//   const auto pieces = book.plan("append", {&rows, 1});    // may throw
//   ...                                                     // writes two pieces, of 16 rows and of 4
//   book.commit(pieces);                                    // may not
//
// A page is free, or as many sequences have it as its count says. Only the last page of a sequence
// is not full, and it holds a token of it at least. Whatever throws has changed nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace treadle::api {

class PageBook {
 public:
  struct Limits {
    std::int64_t pages = 0, page_size = 1, sequences = 1, pages_per_sequence = 1;
  };
  struct Sequence {
    bool used = false;
    std::int64_t length = 0;
    std::vector<std::int32_t> pages;
  };
  // Rows of an append, and the sequence that gets them.
  struct Rows {
    std::int64_t slot = 0, first = 0, count = 0;
  };
  // Those of them that go into one page.
  struct Piece {
    std::int64_t slot = 0;
    std::int32_t page = 0;
    // The page that others keep: its tokens before `token` are copied first. -1: none is.
    std::int32_t copied = -1;
    std::int64_t token = 0, row = 0, count = 0;  // where in the page, where in the rows, how many

    [[nodiscard]] bool takes_page() const { return token == 0 || copied >= 0; }
  };

  // All at least 1, but for pages, and below 2^31, but for page_size.
  explicit PageBook(const Limits& limits);

  // The pieces of an append in the order in which they must be written: pages that lose all but one
  // of their sequences are copied before that one writes to them. A slot comes once.
  [[nodiscard]] std::vector<Piece> plan(std::string_view call, std::span<const Rows> all);
  void commit(std::span<const Piece> pieces) noexcept;

  std::int64_t add(std::string_view call);
  std::int64_t fork(std::string_view call, std::int64_t slot, std::optional<std::int64_t> length);
  void trim(std::string_view call, std::int64_t slot, std::int64_t length);
  void free(std::string_view call, std::int64_t slot);

  // Throws treadle::Error if it is not in use.
  [[nodiscard]] const Sequence& in_use(std::string_view call, std::int64_t slot) const;

  [[nodiscard]] const Limits& limits() const { return limits_; }
  [[nodiscard]] std::int64_t free_pages() const { return std::ssize(free_); }
  [[nodiscard]] std::int64_t used() const { return used_; }

 private:
  [[nodiscard]] std::int64_t pages_for(std::int64_t tokens) const;
  [[nodiscard]] std::int64_t unused_slot(std::string_view call);
  void check_room(std::string_view call, const Rows& rows, std::int64_t length) const;
  // `taken`: free pages that pieces before these take.
  void add_pieces(std::vector<Piece>& pieces, const Rows& rows, bool copies,
                  std::int64_t taken) const;
  void drop_pages(Sequence& sequence, std::int64_t keep) noexcept;

  Limits limits_;
  std::int64_t used_ = 0;
  std::vector<Sequence> sequences_;   // by slot; grows up to the limit
  std::vector<std::int32_t> counts_;  // of the sequences that have each page
  std::vector<std::int32_t> free_;    // the next to be taken last; has room for all pages
};

}  // namespace treadle::api
