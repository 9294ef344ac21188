// MarkedKeys: keys that the planner's model collects from runs and gives back as ranges.
//
//   MarkedKeys keys(1 << 20);
//   keys.add(runs, bound); ...; keys.for_each(f); keys.clear();
//
// Few runs stay as they are; many are marked in blocks.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "layout/range.h"
#include "layout/run.h"

namespace treadle::distributed {

class MarkedKeys {
 public:
  // Enough to be exact about the blocks of masks, few enough to be looked at for every rank.
  static constexpr std::int64_t most_blocks = 16384;

  explicit MarkedKeys(layout::Range all) : all_(all) {
    while (all.count() > most_blocks << bits_) ++bits_;
    words_.resize(static_cast<std::size_t>((blocks() + 63) / 64));
    marked_.resize((words_.size() + 63) / 64);
  }

  [[nodiscard]] std::int64_t blocks() const { return (all_.count() + (1LL << bits_) - 1) >> bits_; }

  void clear() {
    if (in_words_) {
      for_each_bit(marked_, [&](std::size_t word) { words_[word] = 0; });
      std::ranges::fill(marked_, 0);
    }
    in_words_ = false;
    ranges_.clear();
    stepped_.clear();
  }

  // Those in `bound`.
  void add(std::span<const layout::Run> runs, layout::Range bound) {
    for (const layout::Run& run : runs) {
      if (run.count() > 1) {
        for (const layout::Run& part : layout::RunPart(run, bound.begin, bound.end))
          add_stepped(part);
      } else {
        add({std::max(run.begin(), bound.begin), std::min(run.end(), bound.end)});
      }
    }
  }

  // each(first key, end, share of them): disjoint, except that a stepped run may lie among others' keys.
  template <class Each>
  void for_each(const Each& each) {
    if (in_words_) {
      for_each_in_words(each);
    } else {
      std::ranges::sort(ranges_, {}, [](const layout::Range& range) { return range.begin; });
      for (std::size_t i = 0; i < ranges_.size();) {
        layout::Range joined = ranges_[i++];
        for (; i < ranges_.size() && ranges_[i].begin <= joined.end; ++i)
          joined.end = std::max(joined.end, ranges_[i].end);
        each(joined.begin, joined.end, 1.0);
      }
    }
    join_stepped();
    for (const layout::Run& run : stepped_)
      each(run.begin(), run.end(),
           static_cast<double>(run.length()) / static_cast<double>(run.end() - run.begin()));
  }

 private:
  // Few ranges are listed, many are marked.
  static constexpr std::size_t most_ranges = 24;

  void add(layout::Range keys) {
    if (keys.empty()) return;
    if (in_words_) return mark(keys);
    if (!ranges_.empty() && ranges_.back().begin <= keys.begin &&
        keys.begin <= ranges_.back().end) {
      ranges_.back().end = std::max(ranges_.back().end, keys.end);
      return;
    }
    ranges_.push_back(keys);
    if (ranges_.size() <= most_ranges) return;
    in_words_ = true;
    for (const layout::Range& range : ranges_) mark(range);
  }
  template <class Each>
  void for_each_in_words(const Each& each) const {
    std::int64_t begin = -1;
    const auto key = [&](std::int64_t block) {
      return std::min(all_.begin + (block << bits_), all_.end);
    };
    std::size_t next = 0;  // after the last one
    for_each_bit(marked_, [&](std::size_t at) {
      if (begin >= 0 && at != next) {
        each(key(begin), key(static_cast<std::int64_t>(next) * 64), 1.0);
        begin = -1;
      }
      next = at + 1;
      const std::uint64_t word = words_[at];
      for (int bit = 0; bit < 64;) {
        const std::uint64_t rest = (begin < 0 ? word : ~word) >> bit;
        if (rest == 0) break;
        bit += std::countr_zero(rest);
        const std::int64_t block = static_cast<std::int64_t>(at) * 64 + bit;
        if (begin < 0) {
          begin = block;
        } else {
          each(key(begin), key(block), 1.0);
          begin = -1;
        }
      }
    });
    if (begin >= 0) each(key(begin), key(static_cast<std::int64_t>(next) * 64), 1.0);
  }
  template <class Each>
  static void for_each_bit(std::span<const std::uint64_t> words, const Each& each) {
    for (std::size_t at = 0; at < words.size(); ++at)
      for (std::uint64_t word = words[at]; word != 0; word &= word - 1)
        each(at * 64 + static_cast<std::size_t>(std::countr_zero(word)));
  }
  void mark(layout::Range keys) {
    const std::int64_t first = (keys.begin - all_.begin) >> bits_,
                       last = (keys.end - 1 - all_.begin) >> bits_;
    const auto word = [&](std::int64_t block) { return static_cast<std::size_t>(block / 64); };
    const std::uint64_t from = ~std::uint64_t{0} << (first % 64),
                        to = ~std::uint64_t{0} >> (63 - last % 64);
    const auto set = [&](std::size_t at, std::uint64_t bits) {
      words_[at] |= bits;
      marked_[at / 64] |= std::uint64_t{1} << (at % 64);
    };
    if (word(first) == word(last)) return set(word(first), from & to);
    set(word(first), from);
    for (std::size_t at = word(first) + 1; at < word(last); ++at) set(at, ~std::uint64_t{0});
    set(word(last), to);
  }
  void add_stepped(const layout::Run& run) {
    if (run.count() == 1) {
      add({run.begin(), run.end()});
    } else {
      stepped_.push_back(run);
    }
  }
  void join_stepped() {
    if (stepped_.size() < 2) return;
    std::ranges::sort(stepped_, {}, [](const layout::Run& run) {
      return std::tuple(run.step(), run.width(), run.begin() % run.step(), run.begin());
    });
    std::size_t last = 0;
    for (std::size_t i = 1; i < stepped_.size(); ++i) {
      layout::Run& before = stepped_[last];
      const layout::Run& run = stepped_[i];
      if (before.step() == run.step() && before.width() == run.width() &&
          (run.begin() - before.begin()) % run.step() == 0 &&
          run.begin() <= before.begin() + before.count() * before.step()) {
        const std::int64_t count =
            std::max(before.count(), (run.begin() - before.begin()) / run.step() + run.count());
        before = layout::Run::stepped({.begin = before.begin(),
                               .width = before.width(),
                               .step = before.step(),
                               .count = count},
                              false);
      } else {
        stepped_[++last] = run;
      }
    }
    stepped_.erase(stepped_.begin() + static_cast<std::ptrdiff_t>(last) + 1, stepped_.end());
  }

  layout::Range all_;
  int bits_ = 0;
  bool in_words_ = false;
  std::vector<std::uint64_t> words_, marked_;  // blocks, and which words have any
  std::vector<layout::Range> ranges_;
  std::vector<layout::Run> stepped_;
};

}  // namespace treadle::distributed
