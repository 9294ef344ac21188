// Stores layouts: one array of runs, one of offsets.
//
// In: a list of runs for each tile. Out: a Layout, its numbers and its text.
#include "layout/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace treadle::layout {

void check_extent(const Extent& extent) {
  constexpr std::int64_t longest = std::numeric_limits<std::int32_t>::max();
  const auto check = [&](Range range, std::string_view what) {
    if (range.begin < 0 || range.end > longest || range.begin > range.end) {
      if (range.begin == 0)
        base::fail("layout: {} {}; lengths are between 0 and {}", range.end, what, longest);
      base::fail("layout: {} {} up to {}; positions ascend from 0 to {}", what, range.begin,
                 range.end, longest);
    }
  };
  check(extent.batch, "batches");
  check(extent.heads, "heads");
  check(extent.queries, "queries");
  check(extent.keys, "keys");
}

Layout::Layout(Extent extent, Tiles tiles, bool per_batch, bool per_head,
               const std::vector<std::vector<Run>>& runs)
    : extent_(extent), tiles_(std::move(tiles)), per_batch_(per_batch), per_head_(per_head) {
  std::size_t total = 0;
  for (const auto& list : runs) total += list.size();
  if (total > std::numeric_limits<std::uint32_t>::max()) {
    base::fail(
        "layout: {} runs; at most {} fit. A mask this scattered needs taller tiles or another "
        "order",
        total, std::numeric_limits<std::uint32_t>::max());
  }
  offsets_.reserve(runs.size() + 1);
  runs_.reserve(total);
  offsets_.push_back(0);
  for (const auto& list : runs) {
    runs_.insert(runs_.end(), list.begin(), list.end());
    offsets_.push_back(static_cast<std::uint32_t>(runs_.size()));
    std::int64_t pieces = 0;
    for (const Run& run : list) {
      pieces += run.count();
      keys_per_run_ += static_cast<double>(run.length());
    }
    most_pieces_ = std::max(most_pieces_, pieces);
  }
  if (!runs_.empty()) keys_per_run_ /= static_cast<double>(runs_.size());
  has_full_ = std::ranges::any_of(runs_, &Run::full);
  has_partial_ = !std::ranges::all_of(runs_, &Run::full);
  has_steps_ = std::ranges::any_of(runs_, [](const Run& run) { return run.count() > 1; });
}

std::span<const Run> Layout::runs(std::int64_t b, std::int64_t h, std::int64_t tile) const {
  const std::int64_t lists_per_batch = per_head_ ? extent_.heads : 1;
  const std::int64_t list = (per_batch_ ? b : 0) * lists_per_batch + (per_head_ ? h : 0);
  const auto at = static_cast<std::size_t>(list * tiles_.count() + tile);
  return {runs_.data() + offsets_[at], offsets_[at + 1] - offsets_[at]};
}

std::int64_t Layout::bytes() const {
  return static_cast<std::int64_t>(runs_.size() * sizeof(Run) +
                                   offsets_.size() * sizeof(std::uint32_t) +
                                   static_cast<std::size_t>(tiles_.count()) * sizeof(passes::Axis));
}

std::int64_t Layout::run_pairs() const {
  std::int64_t pairs = 0;
  for (std::int64_t b = 0; b < (per_batch_ ? extent_.batch : 1); ++b) {
    for (std::int64_t h = 0; h < (per_head_ ? extent_.heads : 1); ++h) {
      for (std::int64_t tile = 0; tile < tiles_.count(); ++tile) {
        for (const Run& run : runs(b, h, tile)) pairs += run.length() * tiles_.size(tile);
      }
    }
  }
  return pairs * (per_batch_ ? 1 : extent_.batch) * (per_head_ ? 1 : extent_.heads);
}

std::int64_t Layout::all_pairs() const {
  return extent_.batch * extent_.heads * extent_.queries.count() * extent_.keys.count();
}

bool Layout::operator==(const Layout& other) const {
  return extent_ == other.extent_ && tiles_.order() == other.tiles_.order() &&
         tiles_.height() == other.tiles_.height() && per_batch_ == other.per_batch_ &&
         per_head_ == other.per_head_ && offsets_ == other.offsets_ && runs_ == other.runs_;
}

Layout restricted(const Layout& layout, Range keys) {
  std::vector<std::vector<Run>> runs;
  const Extent& extent = layout.extent();
  for (std::int64_t b = 0; b < (layout.per_batch() ? extent.batch : 1); ++b) {
    for (std::int64_t h = 0; h < (layout.per_head() ? extent.heads : 1); ++h) {
      for (std::int64_t tile = 0; tile < layout.tiles().count(); ++tile) {
        std::vector<Run>& some = runs.emplace_back();
        for (const Run& run : layout.runs(b, h, tile))
          for (const Run& part : RunPart(run, keys.begin, keys.end)) append(some, part);
      }
    }
  }
  return {extent, layout.tiles(), layout.per_batch(), layout.per_head(), runs};
}

std::string to_text(const Layout& layout, std::int64_t most_tiles) {
  const Extent& extent = layout.extent();
  const Tiles& tiles = layout.tiles();
  std::string text =
      fmt::format("{} x {} pairs, {} tiles of up to {} queries ({}), {} runs, {} bytes\n",
                  extent.queries.count(), extent.keys.count(), tiles.count(), tiles.height(),
                  to_text(tiles.order()), layout.run_count(), layout.bytes());
  for (std::int64_t b = 0; b < (layout.per_batch() ? extent.batch : 1); ++b) {
    for (std::int64_t h = 0; h < (layout.per_head() ? extent.heads : 1); ++h) {
      if (layout.per_batch() || layout.per_head()) text += fmt::format("batch {}, head {}\n", b, h);
      for (std::int64_t tile = 0; tile < tiles.count(); ++tile) {
        if (tile == most_tiles) {
          text += fmt::format("... {} more tiles\n", tiles.count() - tile);
          break;
        }
        const passes::Axis& axis = tiles.axis(tile);
        text += fmt::format("tile {}, {} queries from {} in steps of {}:", tile, tiles.size(tile),
                            axis.low, axis.step);
        for (const Run& run : layout.runs(b, h, tile)) text += fmt::format(" {}", to_text(run));
        text += '\n';
      }
    }
  }
  return text;
}

}  // namespace treadle::layout
