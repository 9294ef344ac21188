// Remembers choices by mask, weights and class of lengths.
//
// In: a mask, lengths, weights. Out: costed candidates, from before or new.
#include "backend/cpu/kept_choices.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "backend/mask_term.h"
#include "passes/scalars.h"

namespace treadle::backend::cpu {
namespace {

constexpr std::int64_t longest_exact = 2048;

layout::Range class_of(layout::Range range) {
  if (range.end <= longest_exact) return range;
  const auto begin =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(range.begin)));
  const auto length =
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(range.count())));
  return {begin, std::min<std::int64_t>(begin + length, std::numeric_limits<std::int32_t>::max())};
}

layout::Mask with_known_scalars(const layout::Mask& mask) {
  const auto is_scalar = [](const ir::Slot& slot) { return slot.rank == 0; };
  if (std::ranges::none_of(mask.graph.slots(), is_scalar)) return mask;
  auto graph = passes::with_scalars(mask.graph, mask.memory);
  if (!graph) return mask;
  layout::Mask known{std::move(*graph), {}};
  known.memory = passes::memory_of(known.graph, mask.graph.slots(), mask.memory);
  return known;
}

base::Hash key_of(const ir::Graph& mask, const layout::Extent& extent,
                  const layout::TileWeights& weights) {
  // A binding for each member: one that is added and forgotten here does not compile.
  const auto& [lanes, weight, per_tile, per_run, per_piece, per_pass] = weights;
  base::Hasher key;
  key.add(mask.hash()).add(lanes).add(weight.size());
  for (const double of_vectors : weight) key.add(of_vectors);
  key.add(per_tile).add(per_run).add(per_piece).add(per_pass);
  key.add(extent.batch).add(extent.heads).add(extent.first_b).add(extent.first_h);
  for (const layout::Range& range : {extent.queries, extent.keys})
    key.add(range.begin).add(range.end);
  return key.finish();
}

}  // namespace

layout::Extent class_of(const layout::Extent& extent) {
  return {extent.batch,          extent.heads,   class_of(extent.queries),
          class_of(extent.keys), extent.first_b, extent.first_h};
}

std::shared_ptr<const Chosen> KeptChoices::choose(const layout::Mask& mask,
                                                  const layout::Extent& extent,
                                                  const layout::TileWeights& weights,
                                                  const base::Workers& workers) {
  ++times_chosen_;
  return std::make_shared<const Chosen>(
      Chosen{extent, layout::costed_candidates(mask, extent, weights, workers)});
}

std::shared_ptr<const Chosen> KeptChoices::find(const layout::Mask& mask,
                                                const layout::Extent& extent,
                                                const layout::TileWeights& weights,
                                                const base::Workers& workers) {
  if (extent.queries.count() <= weights.lanes) {
    const layout::Choice only{.order = {},
                              .height = std::int64_t{weights.vectors()} * weights.lanes};
    return std::make_shared<const Chosen>(Chosen{extent, {only}});
  }
  const layout::Mask known = with_known_scalars(mask);
  if (!known.memory.empty()) return choose(known, extent, weights, workers);
  layout::Extent lists = extent;  // those that differ
  if (!known.graph.uses(ir::Input::b)) {
    lists.batch = std::min<std::int64_t>(lists.batch, 1);
    lists.first_b = 0;
  }
  if (!known.graph.uses(ir::Input::h)) {
    lists.heads = std::min<std::int64_t>(lists.heads, 1);
    lists.first_h = 0;
  }
  const auto kept_for = [&](const layout::Extent& lengths) {
    return kept_.get(key_of(known.graph, lengths, weights),
                     [&] { return choose(known, lengths, weights, workers); });
  };
  auto chosen = kept_for(class_of(lists));
  // With fewer queries than the order has classes, tiles of one query: nobody would choose that.
  const layout::Order& order = chosen->best().order;
  const bool too_few = order != layout::Order() && order.modulus >= extent.queries.count();
  if (too_few && class_of(lists) != lists) chosen = kept_for(lists);
  return chosen;
}

}  // namespace treadle::backend::cpu
