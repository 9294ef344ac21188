// Finds the runs of tiles: bounds boxes, splits those that stay undecided, evaluates the smallest.
//
// In: a mask, some tiles, a range or a list of keys. Out: their runs. Read classify() first, then
// settle().
#include "layout/classify.h"

#include <algorithm>
#include <numeric>

namespace treadle::layout {
namespace {

using passes::Truth;

// Undecided boxes of one tile are split down to this many keys; then evaluating two queries costs
// less than bounding the halves.
constexpr std::int64_t leaf_keys = 64;

}  // namespace

Classifier::Classifier(const ir::Graph& mask, passes::CaptureTables& tables,
                       const std::vector<ConstView>& memory, const base::Workers& workers)
    : workers_(workers),
      outputs_(static_cast<int>(mask.outputs().size())),
      bounds_(mask, tables),
      interpret_(mask, memory) {}

void Classifier::classify(const Tiles& tiles, std::int64_t b, std::int64_t h, std::int64_t first,
                          std::int64_t last, std::int64_t begin, std::int64_t end,
                          std::span<std::vector<Run>> runs) {
  if (begin >= end) return;
  workers_.check();
  const auto split_tiles = [&] {
    const std::int64_t middle = first + (last - first) / 2;
    classify(tiles, b, h, first, middle, begin, end, runs);
    classify(tiles, b, h, middle + 1, last, begin, end,
             runs.subspan(static_cast<std::size_t>(middle + 1 - first)));
  };
  const auto queries = tiles.joined(first, last);
  if (!queries) return split_tiles();

  box_.b.low = b;
  box_.h.low = h;
  box_.q = *queries;
  box_.kv = {.low = begin, .count = end - begin};
  const Truth truth = bounds_.truth(box_);
  if (truth == Truth::never) return;
  if (truth == Truth::always) {
    for (auto& list : runs.first(static_cast<std::size_t>(last - first + 1)))
      append(list, begin, end, true);
    return;
  }
  // The longer side first, so that boxes stay near squares.
  if (first < last && (queries->count >= end - begin || end - begin <= leaf_keys))
    return split_tiles();
  if (end - begin <= leaf_keys)
    return settle(tiles, first, begin, end, tiles.size(first) - 1, runs[0]);
  // At multiples of the leaf length: splits then fall on the powers of two that masks like.
  const std::int64_t leaves = (end - begin + leaf_keys - 1) / leaf_keys;
  const std::int64_t middle = begin + leaves / 2 * leaf_keys;
  classify(tiles, b, h, first, last, begin, middle, runs);
  classify(tiles, b, h, first, last, middle, end, runs);
}

// Bounds the span of a list as a whole and cuts the list in two where that does not decide. So
// thousands of single keys under a causal mask cost a few bounds, not thousands.
void Classifier::classify_listed(const Tiles& tiles, std::int64_t b, std::int64_t h,
                                 std::int64_t tile, std::span<const Run> listed,
                                 std::vector<Run>& runs) {
  if (listed.empty()) return;
  workers_.check();
  const std::int64_t begin = listed.front().begin();
  const std::int64_t end = listed.back().end();
  const Run& only = listed.front();
  if (listed.size() == 1 && only.full()) return append(runs, only);
  if (listed.size() == 1 && only.count() == 1)
    return classify(tiles, b, h, tile, tile, begin, end, {&runs, 1});
  box_.b.low = b;
  box_.h.low = h;
  box_.q = tiles.axis(tile);
  box_.kv = {.low = begin, .count = end - begin};
  const Truth truth = bounds_.truth(box_);
  if (truth == Truth::unsure && end - begin > leaf_keys) {
    if (listed.size() == 1) {
      const std::int64_t pieces = only.count() / 2;
      const Run lower = only.pieces(0, pieces);
      const Run upper = only.pieces(pieces, only.count() - pieces);
      classify_listed(tiles, b, h, tile, {&lower, 1}, runs);
      classify_listed(tiles, b, h, tile, {&upper, 1}, runs);
      return;
    }
    const std::size_t half = listed.size() / 2;
    classify_listed(tiles, b, h, tile, listed.first(half), runs);
    classify_listed(tiles, b, h, tile, listed.subspan(half), runs);
    return;
  }
  std::vector<Run> seen;  // of all keys of the span
  if (truth == Truth::always) seen.emplace_back(begin, end, true);
  if (truth == Truth::unsure) settle(tiles, tile, begin, end, tiles.size(tile) - 1, seen);
  auto next = seen.begin();
  for_each_piece(listed, [&](Range piece, bool full) {
    if (full) return append(runs, piece.begin, piece.end, true);
    while (next != seen.end() && next->end() <= piece.begin) ++next;
    for (auto at = next; at != seen.end() && at->begin() < piece.end; ++at) {
      for (const Run& part : RunPart(*at, piece.begin, piece.end)) append(runs, part);
    }
  });
}

// Asks every `step`-th query. Where they disagree, the column is partial. Where they agree a bound
// may show that all queries do; if not, more of them are asked, and in the end every one.
void Classifier::settle(const Tiles& tiles, std::int64_t tile, std::int64_t begin, std::int64_t end,
                        std::int64_t step, std::vector<Run>& runs) {
  const std::int64_t size = tiles.size(tile);
  step = std::max<std::int64_t>(step, 1);
  evaluate(tiles, tile, 0, step, begin, end);
  // 0: none of them sees the key, 2: all do, 1: some.
  std::vector<std::uint8_t> kinds(some_.size());
  for (std::size_t i = 0; i < kinds.size(); ++i)
    kinds[i] = static_cast<std::uint8_t>(some_[i] + all_[i]);

  for (std::int64_t key = begin; key < end;) {
    const std::uint8_t kind = kinds[static_cast<std::size_t>(key - begin)];
    std::int64_t next = key + 1;
    while (next < end && kinds[static_cast<std::size_t>(next - begin)] == kind) ++next;
    if (kind == 1) {
      append(runs, key, next, false);
    } else if (step == 1) {
      if (kind == 2) append(runs, key, next, true);  // every query was asked
    } else {
      box_.q = tiles.axis(tile);
      box_.kv = {.low = key, .count = next - key};
      const Truth truth = bounds_.truth(box_);
      if (truth == Truth::always) append(runs, key, next, true);
      if (truth == Truth::unsure)
        settle(tiles, tile, key, next, step > 8 && size > 16 ? 8 : 1, runs);
    }
    key = next;
  }
}

void Classifier::evaluate(const Tiles& tiles, std::int64_t tile, std::int64_t first,
                          std::int64_t step, std::int64_t begin, std::int64_t end) {
  const auto width = static_cast<std::size_t>(end - begin);
  const std::int64_t size = tiles.size(tile);
  const auto rows = static_cast<std::size_t>((size - first + step - 1) / step);
  q_.resize(rows * width);
  kv_.resize(q_.size());
  for (std::size_t r = 0; r < rows; ++r) {
    const auto at = static_cast<std::ptrdiff_t>(r * width);
    std::fill_n(q_.begin() + at, width,
                tiles.query(tile, first + static_cast<std::int64_t>(r) * step));
    std::iota(kv_.begin() + at, kv_.begin() + at + static_cast<std::ptrdiff_t>(width), begin);
  }
  interpret_({.b = {&box_.b.low, 1}, .h = {&box_.h.low, 1}, .q = q_, .kv = kv_},
             static_cast<std::int64_t>(q_.size()));
  const auto seen = interpret_.booleans(0);
  some_.assign(width, 0);
  all_.assign(width, 1);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::uint8_t* row = seen.data() + r * width;
    for (std::size_t c = 0; c < width; ++c) {
      some_[c] |= row[c];
      all_[c] &= row[c];
    }
  }
  // A poisoned pair makes its column partial: whoever looks at the pair then reports it.
  for (int output = 0; output < outputs_; ++output) {
    const auto poison = interpret_.poison(output);
    for (std::size_t i = 0; i < poison.size(); ++i) {
      if (poison[i] == 0) continue;
      some_[i % width] = 1;
      all_[i % width] = 0;
    }
  }
}

}  // namespace treadle::layout
