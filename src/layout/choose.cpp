// Chooses the query order and the tile height that make a mask cheapest.
//
// In: a mask, lengths, weights of tiles. Out: all candidates and what they cost. Read candidates()
// first, then costed_candidates().
#include "layout/choose.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/parallel.h"
#include "layout/classify.h"
#include "layout/division.h"

namespace treadle::layout {
namespace {

using ir::Node;
using ir::Op;

// Tiles that a candidate is costed on: a few first, more if it may still win.
constexpr std::int64_t first_look = 6;
constexpr std::int64_t second_look = 64;

// Constants by which the mask divides something that depends on the query; with others no order
// helps.
struct Numbers {
  std::set<std::int64_t> moduli, divisors;
};

Numbers numbers_of(const ir::Graph& mask, std::int64_t queries) {
  Numbers numbers;
  const auto add = [&](std::set<std::int64_t>& to, std::int64_t number) {
    if (number > 1 && number < queries) to.insert(number);
  };
  ir::PerNode<bool> depends(mask.size());
  for (ir::NodeId id = 0; id < mask.size(); ++id) {
    const Node& node = mask[id];
    depends[id] = (node.op == Op::input && node.input == ir::Input::q) ||
                  std::ranges::any_of(node.operands, [&](ir::NodeId o) { return depends[o]; });
    const std::optional<Division> division = division_of(mask, node);
    if (division && depends[division->of])
      add(division->remainder ? numbers.moduli : numbers.divisors, division->number);
  }
  return numbers;
}

// A candidate that costs so many times the best of the first look does not get a second one.
constexpr double hopeless = 1.5;

// Costs a candidate on some tiles, scaled up to all.
void look_at(Choice& choice, const Mask& mask, const Extent& extent, const TileWeights& weights,
             passes::CaptureTables& tables, std::int64_t most_tiles, const base::Workers& workers) {
  const Tiles tiles(choice.order, extent.queries, choice.height);
  if (tiles.count() == 0) return;
  Classifier classifier(mask.graph, tables, mask.memory, workers);
  const std::int64_t batches = mask.graph.uses(ir::Input::b) ? extent.batch : 1;
  const std::int64_t heads = mask.graph.uses(ir::Input::h) ? extent.heads : 1;
  const std::int64_t lists = batches * heads;
  const std::int64_t total = tiles.count() * lists;
  const std::int64_t samples = std::min(total, most_tiles);
  choice.cost = 0;
  choice.work = {.tiles = static_cast<double>(samples)};
  for (std::int64_t i = 0; i < samples; ++i) {
    // Spread by the golden ratio: equal steps would fall into step with the classes of an order.
    const double spread = static_cast<double>(i) * std::numbers::phi;
    const std::int64_t at =
        samples == total
            ? i
            : static_cast<std::int64_t>((spread - std::floor(spread)) * static_cast<double>(total));
    const std::int64_t list = at / tiles.count();
    const std::int64_t tile = at % tiles.count();
    std::vector<Run> runs;
    classifier.classify(tiles, extent.first_b + list / heads, extent.first_h + list % heads, tile,
                        tile, extent.keys.begin, extent.keys.end, {&runs, 1});
    choice.cost += tile_cost(runs, tiles.size(tile), weights);
    choice.work.runs += static_cast<double>(runs.size());
    for (const Run& run : runs) {
      choice.work.columns += static_cast<double>(run.length());
      choice.work.pieces += static_cast<double>(run.count());
    }
  }
  for (double* sum : {&choice.cost, &choice.work.columns, &choice.work.tiles, &choice.work.runs,
                      &choice.work.pieces})
    *sum = *sum * static_cast<double>(total) / static_cast<double>(samples);
  choice.estimated = samples < total;
}

// Equal costs stay in their order. (std::stable_sort asks for memory in a way that is deprecated.)
void sort_by_cost(std::span<Choice> choices) {
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < choices.size(); ++i) order.emplace_back(choices[i].cost, i);
  std::ranges::sort(order);
  const std::vector<Choice> before(choices.begin(), choices.end());
  for (std::size_t i = 0; i < choices.size(); ++i) choices[i] = before[order[i].second];
}

}  // namespace

std::vector<Choice> candidates(const ir::Graph& mask, const Extent& extent,
                               const TileWeights& weights) {
  std::vector<Choice> list;
  const Numbers numbers = numbers_of(mask, extent.queries.count());
  const auto height_of = [&](int vectors) { return std::int64_t{vectors} * weights.lanes; };
  // Equal costs go to the first.
  for (int vectors = weights.vectors(); vectors >= 1; --vectors) {
    list.push_back({{}, height_of(vectors)});
  }
  const auto heights = [&](const Order& order) {
    for (int vectors = 1; vectors <= weights.vectors(); ++vectors) {
      list.push_back({order, height_of(vectors)});
    }
  };
  for (const std::int64_t modulus : numbers.moduli)
    heights({.kind = Order::Kind::residue, .modulus = modulus});
  for (const std::int64_t divisor : numbers.divisors)
    heights({.kind = Order::Kind::blocks, .modulus = divisor});
  for (const std::int64_t width : numbers.moduli) {
    if (!numbers.divisors.contains(width)) continue;
    for (int vectors = 1; vectors <= weights.vectors(); ++vectors) {
      const std::int64_t height = height_of(vectors);
      for (std::int64_t columns = 2; columns < height && columns <= width; ++columns) {
        if (height % columns != 0) continue;
        list.push_back({{.kind = Order::Kind::rectangle,
                         .modulus = width,
                         .rows = height / columns,
                         .columns = columns},
                        height});
      }
    }
  }
  return list;
}

std::vector<Choice> costed_candidates(const Mask& mask, const Extent& extent,
                                      const TileWeights& weights, const base::Workers& workers) {
  check_mask(mask);
  check_extent(extent);
  std::vector<Choice> list = candidates(mask.graph, extent, weights);
  passes::CaptureTables tables(mask.memory);
  const auto look = [&](std::span<Choice> choices, std::int64_t most_tiles) {
    base::parallel_for(workers, static_cast<std::int64_t>(choices.size()), [&](std::int64_t i) {
      look_at(choices[static_cast<std::size_t>(i)], mask, extent, weights, tables, most_tiles,
              workers);
    });
    sort_by_cost(choices);
  };
  std::span<Choice> promising = list;
  // Small masks are looked at whole.
  if (extent.queries.count() > second_look * weights.lanes) {
    look(list, first_look);
    const double most = hopeless * list.front().cost;
    const auto end = std::ranges::find_if(list, [&](const Choice& c) { return c.cost > most; });
    promising = promising.first(static_cast<std::size_t>(end - list.begin()));
  }
  look(promising, second_look);
  return list;
}

Choice choose_order(const Mask& mask, const Extent& extent, const TileWeights& weights,
                    const base::Workers& workers) {
  return costed_candidates(mask, extent, weights, workers).front();
}

}  // namespace treadle::layout
