// From a large graph to pieces, and to places for what they give one another.
//
// In: a graph and how often its nodes are computed. Out: a ModPieces. Read cut() first.
#include "plan/mod_pieces.h"

#include "plan/tile_plan.h"

namespace treadle::plan {
namespace {

using ir::NodeId;
using ir::Op;

constexpr int levels = 4;

// Nodes of a level, in their order, so many to a piece.
void number_pieces(const ir::Graph& graph, const ir::PerNode<Level>& level, std::int32_t most,
                   ModPieces& pieces) {
  std::array<std::int32_t, levels> current{}, filled{};
  filled.fill(most);
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (graph[id].op == Op::input || graph[id].op == Op::constant) continue;
    const auto at = static_cast<std::size_t>(level[id]);
    if (filled[at] == most) {
      current[at] = pieces.count++;
      filled[at] = 0;
    }
    pieces.piece[id] = current[at];
    ++filled[at];
  }
}

// What an index that is taken apart may consist of.
ir::PerNode<bool> parts_of_last_indices(const ir::Graph& graph, const ir::PerNode<Dependence>& on) {
  ir::PerNode<bool> part(graph.size());
  for (NodeId id = graph.size() - 1; id >= 0; --id) {
    const ir::Node& node = graph[id];
    if (part[id] && on[id].q) {
      for (const NodeId operand : node.operands) part[operand] = true;
    }
    if (node.op == Op::load && !node.operands.empty()) part[node.operands.back()] = true;
  }
  return part;
}

}  // namespace

Area area_of(Level level) {
  switch (level) {
    case Level::head:
    case Level::key: return Area::uniform;
    case Level::queries: return Area::queries;
    case Level::pair: break;
  }
  return Area::pairs;
}

std::int32_t weight_of(const ir::Graph& graph) {
  std::int32_t weight = graph.size();
  for (const ir::Node& node : graph.nodes())
    if (node.op == Op::load && node.operands.size() > 1) weight += 8;
  return weight;
}

ModPieces cut(const ir::Graph& graph, const ir::PerNode<Dependence>& on,
              const ir::PerNode<Level>& level, const PieceSize& size) {
  ModPieces pieces;
  if (weight_of(graph) <= size.whole) return pieces;
  pieces.piece = pieces.place = pieces.first_place = ir::PerNode<std::int32_t>(graph.size(), -1);
  number_pieces(graph, level, size.piece, pieces);

  ir::PerNode<bool> kept(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    for (const NodeId operand : graph[id].operands) {
      if (pieces.piece[operand] != pieces.piece[id]) kept[operand] = true;
    }
  }
  for (const NodeId output : graph.outputs()) kept[output] = true;

  const ir::PerNode<bool> part = parts_of_last_indices(graph, on);
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (graph[id].op == Op::constant) continue;
    std::int64_t& next = pieces.places[static_cast<std::size_t>(area_of(level[id]))];
    if (kept[id]) pieces.place[id] = static_cast<std::int32_t>(next++);
    if (part[id] && on[id].q) pieces.first_place[id] = static_cast<std::int32_t>(next++);
  }
  return pieces;
}

std::int64_t FrameLayout::bytes(Area area) const {
  const auto all = static_cast<std::int32_t>(places[static_cast<std::size_t>(area)]);
  return (poison(area, all) + 63) / 64 * 64;
}

std::int64_t FrameLayout::begin(Area area, int vector) const {
  if (area == Area::uniform) return 0;
  if (area == Area::pairs) return bytes(Area::uniform);
  return bytes(Area::uniform) + bytes(Area::pairs) + vector * bytes(Area::queries);
}

FrameLayout frame_layout(const ModPieces& pieces, std::int64_t lanes, std::int64_t value_bytes) {
  return {.lanes = lanes, .value_bytes = value_bytes, .places = pieces.places};
}

std::int64_t frame_bytes(const ModPieces& pieces, std::int64_t lanes) {
  return pieces.whole() ? 0 : frame_layout(pieces, lanes, 8).begin(Area::queries, most_vectors);
}

}  // namespace treadle::plan
