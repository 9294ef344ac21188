// Writes a layout down as a mask that shows the same pairs.
//
// In: a layout of listed keys and its mask. Out: a table of what each tile sees, and a graph that
// reads it.
#include "backend/reference/visible_mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ir/parse.h"
#include "ir/print.h"

namespace treadle::backend::reference {
namespace {

Tensor kinds_of(const layout::Layout& layout) {
  const std::int64_t batches = layout.per_batch() ? layout.extent().batch : 1;
  const std::int64_t heads = layout.per_head() ? layout.extent().heads : 1;
  const std::int64_t tiles = layout.tiles().count();
  const std::int64_t keys = layout.extent().keys.count();
  Tensor kinds(DType::u8, {batches, heads, tiles, keys});
  std::uint8_t* row = kinds.data<std::uint8_t>().data();
  for (std::int64_t list = 0; list < batches * heads * tiles; ++list, row += keys) {
    const std::int64_t head = list / tiles;
    layout::for_each_piece(layout.runs(head / heads, head % heads, list % tiles),
                           [&](layout::Range piece, bool full) {
                             std::fill(row + piece.begin, row + piece.end, full ? 2 : 1);
                           });
  }
  return kinds;
}

}  // namespace

VisibleMask visible_mask(const layout::Layout& layout, const treadle::reference::Bound& mask) {
  VisibleMask result{kinds_of(layout), {}};
  std::string name = "kinds";
  while (mask.graph.find_slot(name) != nullptr) name += '_';
  std::vector<ir::Slot> slots(mask.graph.slots().begin(), mask.graph.slots().end());
  slots.push_back({name, DType::u8, 4});

  const std::int64_t block = layout.tiles().order().modulus;  // no tile crosses its multiples
  const std::int64_t height = layout.tiles().height();
  const std::string kind = fmt::format(
      "{}[{}, {}, q // {} * {} + q % {} // {}, kv]", name, layout.per_batch() ? "b" : "0",
      layout.per_head() ? "h" : "0", block, (block + height - 1) / height, block, height);
  const ir::Printed printed = ir::print(mask.graph);
  result.bound.graph = ir::parse(fmt::format("{}{} == 2 || {} == 1 && ({})", printed.definitions,
                                             kind, kind, printed.outputs.at(0)),
                                 slots);
  for (const ir::Slot& slot : result.bound.graph.slots()) {
    const auto at = static_cast<std::size_t>(std::ranges::find(slots, slot) - slots.begin());
    const bool is_kinds = at + 1 == slots.size();
    result.bound.memory.push_back(is_kinds ? ConstView(result.kinds) : mask.memory[at]);
  }
  return result;
}

}  // namespace treadle::backend::reference
