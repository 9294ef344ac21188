// Which layouts of calls are built together, and how they are read.
#include "backend/cpu/call_layouts.h"

#include <memory>
#include <utility>

#include "base/dump.h"

namespace treadle::backend::cpu {

// Who wants to see layouts gets them one by one.
bool Cpu::Layouts::are_kept(const Bindings& bound) const {
  const bool shown = base::dump_wanted(base::Dump::plan) || base::dump_wanted(base::Dump::layout);
  return !shown && cpu_.terms_.find(bound.mask).empty();
}

bool Cpu::Layouts::can_be_one_tile(const Sizes& sizes, const Bindings& bound) const {
  const bool all = sizes.batch == 1 || !cpu_.program_.mask.uses(ir::Input::b);
  const bool some = sizes.batch > 0 && sizes.heads > 0 && !sizes.queries.empty();
  return all && some && cpu_.are_few(sizes) && are_kept(bound);
}

void Cpu::Layouts::find(std::span<const ForwardRequest* const> calls) {
  made_.clear();
  extents_.clear();
  const ForwardRequest& front = *calls.front();
  const bool kept = are_kept(front.bound);
  const bool per_batch = cpu_.program_.mask.uses(ir::Input::b);
  for (const ForwardRequest* call : calls) {
    Made& made = made_.emplace_back(Made{.call = call, .whole = call->layout});
    if (!made.whole.empty()) continue;
    if (!kept || !cpu_.are_few(call->sizes)) {
      made.whole = cpu_.built_layout(call->sizes, call->bound, call->workers);
      continue;
    }
    made.first = extents_.size();
    made.each = per_batch;
    layout::Extent extent = call->sizes.extent();
    if (made.each) extent.batch = 1;
    for (std::int64_t b = 0; b < (made.each ? call->sizes.batch : 1); ++b, ++extent.first_b)
      extents_.push_back(extent);
  }
  if (!extents_.empty()) tiles_.build(front.bound.mask, extents_, front.workers);
}

bool Cpu::Layouts::is_one_tile(std::size_t call) const {
  const Made& made = made_[call];
  if (made.whole.empty()) return true;
  const Layout::Held& held = *made.whole.held();
  const Layout::Held::Term& term = held.terms.front();
  return held.terms.size() == 1 && term.mask == nullptr && term.layout.tiles().count() == 1;
}

layout::OneTile Cpu::Layouts::one_tile(std::size_t call, std::int64_t b) const {
  const Made& made = made_[call];
  if (made.whole.empty()) return tiles_[made.first + static_cast<std::size_t>(made.each ? b : 0)];
  return made.whole.held()->terms.front().layout.only_tile();
}

Layout Cpu::Layouts::layout_of_tile(std::size_t tile, const Sizes& sizes) const {
  const layout::TileWeights weights = plan::tile_weights(cpu_.target_, sizes.compute);
  auto held = std::make_shared<Layout::Held>();
  held->terms.push_back({tiles_.layout(
      tile, layout::Tiles({}, sizes.queries, std::int64_t{weights.vectors()} * weights.lanes))});
  held->mask = cpu_.mask_;
  return Layout(std::move(held));
}

Layout Cpu::Layouts::layout(std::size_t call) const {
  const Made& made = made_[call];
  if (!made.whole.empty()) return made.whole;
  const Sizes& sizes = made.call->sizes;
  if (!made.each || sizes.batch == 1) return layout_of_tile(made.first, sizes);
  return cpu_.built_layout(sizes, made.call->bound, made.call->workers);
}

Layout Cpu::Layouts::layout(const Sizes& sizes, const Bindings& bound,
                            const base::Workers& workers) {
  const layout::Extent extent = sizes.extent();
  tiles_.build(bound.mask, {&extent, 1}, workers);
  return layout_of_tile(0, sizes);
}

}  // namespace treadle::backend::cpu
