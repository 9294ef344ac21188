// Finds the runs of tiles: bounds boxes, splits those that stay undecided, evaluates the smallest.
//
// In: a mask, some tiles, a range or a list of keys. Out: their runs. Read split() first, then
// settle().
#include "layout/classify.h"

#include <algorithm>
#include <array>

#include "layout/borders.h"
#include "layout/division.h"
#include "layout/key_period.h"

namespace treadle::layout {
namespace {

using passes::Truth;

// Undecided boxes of one tile are split down to this many keys; then evaluating two queries costs
// less than bounding the halves.
constexpr std::int64_t leaf_keys = 64;

// Keys of an axis, none of whose pieces touch unless they are all keys of their span.
Run run_of(const passes::Axis& keys, bool full) {
  if (keys.outer_count == 1 && keys.step > 1)
    return Run::stepped({keys.low, 1, keys.step, keys.count}, full);
  if (keys.outer_count == 1 || keys.count == keys.outer_step)
    return {keys.low, keys.low + keys.count * keys.outer_count, full};
  return Run::stepped({keys.low, keys.count, keys.outer_step, keys.outer_count}, full);
}

bool divides(const ir::Graph& mask) {
  return std::ranges::any_of(
      mask.nodes(), [&](const ir::Node& node) { return division_of(mask, node).has_value(); });
}

}  // namespace

Classifier::Classifier(const ir::Graph& mask, passes::CaptureTables& tables,
                       const std::vector<ConstView>& memory, const base::Workers& workers)
    : mask_(mask),
      workers_(&workers),
      outputs_(static_cast<int>(mask.outputs().size())),
      divides_(divides(mask)),
      comparisons_(comparisons(mask)),
      bounds_(mask, tables),
      interpret_(mask, memory) {}

void Classifier::bind(const std::vector<ConstView>& memory, const base::Workers& workers) {
  workers_ = &workers;
  bounds_.forget();
  interpret_.bind(memory);
  residues_ = {};
  repeats_ = {};
}

void Classifier::classify(const Tiles& tiles, std::int64_t b, std::int64_t h, std::int64_t first,
                          std::int64_t last, std::int64_t begin, std::int64_t end,
                          std::span<std::vector<Run>> runs) {
  box_.b.low = b;
  box_.h.low = h;
  const Group group{tiles, first, last, runs};
  const auto contiguous = [&](std::int64_t from, std::int64_t to) {
    if (from < to) split(group, {.low = from, .count = to - from});
  };
  const std::int64_t period = divides_ ? key_period(mask_, end - begin) : 1;
  if (period == 1 && first == last)
    return classify_tile(group, {.low = begin, .count = end - begin});
  if (period == 1) return contiguous(begin, end);
  const std::int64_t first_whole = (begin + period - 1) / period * period;
  const std::int64_t periods = (end - first_whole) / period;
  contiguous(begin, first_whole);
  split(group, {.low = first_whole, .count = period, .outer_count = periods, .outer_step = period});
  contiguous(first_whole + periods * period, end);
}

// One tile alone: what comparisons say is cut out at once, where halving would look for it.
void Classifier::classify_tile(const Group& group, const passes::Axis& keys) {
  if (keys.count == 0) return;
  const Truth truth = truth_of(group.tiles.axis(group.first), keys);
  if (truth == Truth::never) return;
  std::int64_t from = keys.low;
  const auto until = [&](std::int64_t to) {
    split(group, {.low = from, .count = to - from});
    from = to;
  };
  if (truth == Truth::unsure) {
    find_borders(borders_, mask_, comparisons_, bounds_, box_);
    for (const std::int64_t border : borders_) until(border);
  }
  until(keys.low + keys.count);
}

Classifier::Group Classifier::Group::part(std::int64_t from, std::int64_t to) const {
  return {tiles, from, to,
          runs.subspan(static_cast<std::size_t>(from - first),
                       static_cast<std::size_t>(to - from + 1))};
}

Truth Classifier::truth_of(const passes::Axis& queries, const passes::Axis& keys) {
  box_.q = queries;
  box_.kv = keys;
  return bounds_.truth(box_);
}

void Classifier::split_tiles(const Group& group, const passes::Axis& keys) {
  const std::int64_t middle = group.first + (group.last - group.first) / 2;
  split(group.part(group.first, middle), keys);
  split(group.part(middle + 1, group.last), keys);
}

void Classifier::split(const Group& group, passes::Axis keys) {
  workers_->check();
  const auto queries = group.tiles.joined(group.first, group.last);
  if (!queries) return split_tiles(group, keys);
  const Truth truth = truth_of(*queries, keys);
  if (truth == Truth::never) return;
  if (truth == Truth::always) {
    for (auto& list : group.runs) append(list, run_of(keys, true));
    return;
  }
  const bool periodic = keys.outer_count > 1;
  if (periodic && split_residues(group, *queries, keys)) return;
  const std::int64_t many = keys.count * keys.outer_count;
  const bool one_tile = group.first == group.last;
  if (periodic && one_tile && repeat_first_period(group, keys)) return;
  // The longer side first, so that boxes stay near squares.
  const std::int64_t length = periodic ? keys.outer_count * keys.outer_step : keys.count;
  if (!one_tile && (queries->count * queries->step >= length || many <= leaf_keys))
    return split_tiles(group, keys);
  if (many <= leaf_keys) return settle_all(group, keys);
  passes::Axis lower = keys;
  passes::Axis upper = keys;
  if (periodic) {
    lower.outer_count = keys.outer_count / 2;
    upper.outer_count -= lower.outer_count;
    upper.low += lower.outer_count * keys.outer_step;
  } else {
    // At multiples of the leaf length: splits then fall on the powers of two that masks like.
    const std::int64_t leaves = (keys.count + leaf_keys - 1) / leaf_keys;
    lower.count = leaves / 2 * leaf_keys;
    upper.count -= lower.count;
    upper.low += lower.count;
  }
  split(group, lower);
  split(group, upper);
}

// One tile and few keys: one residue of several periods is a line, others go period by period.
void Classifier::settle_all(const Group& group, const passes::Axis& keys) {
  const std::int64_t step = group.tiles.size(group.first) - 1;
  if (keys.count == 1 && keys.outer_count > 1) {
    const passes::Axis line{.low = keys.low, .count = keys.outer_count, .step = keys.outer_step};
    return settle(group.tiles, group.first, line, step, group.runs[0]);
  }
  for (std::int64_t i = 0; i < keys.outer_count; ++i) {
    const passes::Axis line{.low = keys.low + i * keys.outer_step, .count = keys.count};
    settle(group.tiles, group.first, line, step, group.runs[0]);
  }
}

// Bounds the span of a list as a whole and cuts the list in two where that does not decide. So
// thousands of single keys under a causal mask cost a few bounds, not thousands.
void Classifier::classify_listed(const Tiles& tiles, std::int64_t b, std::int64_t h,
                                 std::int64_t tile, std::span<const Run> listed,
                                 std::vector<Run>& runs) {
  if (listed.empty()) return;
  workers_->check();
  const std::int64_t begin = listed.front().begin();
  const std::int64_t end = listed.back().end();
  const Run& only = listed.front();
  if (listed.size() == 1 && only.full()) return append(runs, only);
  if (listed.size() == 1 && only.count() == 1)
    return classify(tiles, b, h, tile, tile, begin, end, {&runs, 1});
  box_.b.low = b;
  box_.h.low = h;
  const passes::Axis span{.low = begin, .count = end - begin};
  const Truth truth = truth_of(tiles.axis(tile), span);
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
  if (truth == Truth::unsure) settle(tiles, tile, span, tiles.size(tile) - 1, seen);
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
void Classifier::settle(const Tiles& tiles, std::int64_t tile, const passes::Axis& line,
                        std::int64_t step, std::vector<Run>& runs) {
  const std::int64_t size = tiles.size(tile);
  step = std::max<std::int64_t>(step, 1);
  evaluate(tiles, tile, 0, step, line);
  // 0: none of them sees the key, 2: all do, 1: some.
  std::array<std::uint8_t, leaf_keys> few;
  std::vector<std::uint8_t> many;
  if (some_.size() > few.size()) many.resize(some_.size());
  const std::span kinds = many.empty() ? std::span(few).first(some_.size()) : std::span(many);
  for (std::size_t i = 0; i < kinds.size(); ++i)
    kinds[i] = static_cast<std::uint8_t>(some_[i] + all_[i]);

  for (std::int64_t at = 0; at < line.count;) {
    const std::uint8_t kind = kinds[static_cast<std::size_t>(at)];
    std::int64_t next = at + 1;
    while (next < line.count && kinds[static_cast<std::size_t>(next)] == kind) ++next;
    const passes::Axis keys{
        .low = line.low + at * line.step, .count = next - at, .step = line.step};
    if (kind == 1) {
      append(runs, run_of(keys, false));
    } else if (step == 1) {
      if (kind == 2) append(runs, run_of(keys, true));  // every query was asked
    } else {
      const Truth truth = truth_of(tiles.axis(tile), keys);
      if (truth == Truth::always) append(runs, run_of(keys, true));
      if (truth == Truth::unsure) settle(tiles, tile, keys, step > 8 && size > 16 ? 8 : 1, runs);
    }
    at = next;
  }
}

void Classifier::evaluate(const Tiles& tiles, std::int64_t tile, std::int64_t first,
                          std::int64_t step, const passes::Axis& line) {
  const auto width = static_cast<std::size_t>(line.count);
  const std::int64_t size = tiles.size(tile);
  const auto rows = static_cast<std::size_t>((size - first + step - 1) / step);
  q_.resize(rows * width);
  kv_.resize(q_.size());
  for (std::size_t r = 0; r < rows; ++r) {
    std::fill_n(q_.begin() + static_cast<std::ptrdiff_t>(r * width), width,
                tiles.query(tile, first + static_cast<std::int64_t>(r) * step));
    for (std::size_t c = 0; c < width; ++c)
      kv_[r * width + c] = line.low + static_cast<std::int64_t>(c) * line.step;
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
