// Builds layouts in parallel.
//
// In: a mask, lengths or a selection of keys, tiles. Out: a Layout. Tiles are cut into tasks; each
// has its own classifier and writes its own lists, so threads share only the tables of captured
// arrays.
#include "layout/build.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "ir/interpret.h"
#include "layout/classify.h"
#include "layout/dense.h"

namespace treadle::layout {
namespace {

using ir::Input;

// Enough tiles that large boxes are seen whole, few enough that threads share the work evenly.
constexpr std::int64_t tiles_per_task = 256;

struct Task {
  std::int64_t b, h, first, last;
};

std::vector<Task> tasks_of(const Extent& extent, const Tiles& tiles, bool per_batch, bool per_head,
                           std::int64_t threads) {
  std::vector<Task> tasks;
  const std::int64_t fair = (tiles.count() + 4 * threads - 1) / (4 * threads);
  const std::int64_t size = std::clamp<std::int64_t>(fair, 1, tiles_per_task);
  for (std::int64_t b = 0; b < (per_batch ? extent.batch : 1); ++b) {
    for (std::int64_t h = 0; h < (per_head ? extent.heads : 1); ++h) {
      for (std::int64_t first = 0; first < tiles.count(); first += size) {
        tasks.push_back({b, h, first, std::min(first + size, tiles.count()) - 1});
      }
    }
  }
  return tasks;
}

// Runs work(task, lists of its tiles) for all tasks and puts the lists in order.
template <class Work>
Layout assembled(const Extent& extent, const Tiles& tiles, bool per_batch, bool per_head,
                 const base::Workers& workers, const Work& work) {
  check_extent(extent);
  if (tiles.queries() != extent.queries) {
    base::fail("layout: tiles for queries {} up to {}, the extent has {} up to {}",
               tiles.queries().begin, tiles.queries().end, extent.queries.begin,
               extent.queries.end);
  }
  const std::vector<Task> tasks = tasks_of(extent, tiles, per_batch, per_head, workers.threads());
  const std::int64_t lists =
      (per_batch ? extent.batch : 1) * (per_head ? extent.heads : 1) * tiles.count();
  std::vector<std::vector<Run>> runs(static_cast<std::size_t>(lists));
  base::parallel_for(workers, static_cast<std::int64_t>(tasks.size()), [&](std::int64_t i) {
    const Task& task = tasks[static_cast<std::size_t>(i)];
    const std::int64_t list =
        (task.b * (per_head ? extent.heads : 1) + task.h) * tiles.count() + task.first;
    work(task, std::span(runs).subspan(static_cast<std::size_t>(list),
                                       static_cast<std::size_t>(task.last - task.first + 1)));
  });
  return {extent, tiles, per_batch, per_head, runs};
}

}  // namespace

void check_mask(const Mask& mask) {
  const auto outputs = mask.graph.outputs();
  const bool bools = std::ranges::all_of(
      outputs, [&](ir::NodeId id) { return mask.graph[id].type == ir::Type::boolean; });
  if (outputs.empty() || outputs.size() > 2 || !bools) {
    base::fail("layout: the mask returns {}; a mask returns one bool",
               outputs.size() == 1 ? ir::name_of(mask.graph.output_type()) : "several values");
  }
  if (mask.graph.uses(Input::score)) {
    base::fail(
        "layout: the mask mentions the score; which pairs are visible must not depend on it");
  }
  if (mask.memory.size() != mask.graph.slots().size()) {
    base::fail("layout: {} captures are bound, the mask has {}", mask.memory.size(),
               mask.graph.slots().size());
  }
  for (std::size_t i = 0; i < mask.memory.size(); ++i)
    ir::check_binding(mask.graph.slots()[i], mask.memory[i]);
}

Layout build(const Mask& mask, const Extent& extent, const Tiles& tiles,
             const base::Workers& workers) {
  check_mask(mask);
  const bool per_batch = mask.graph.uses(Input::b);
  const bool per_head = mask.graph.uses(Input::h);
  if (const auto dense = as_dense(mask, extent)) {
    return assembled(extent, tiles, per_batch, per_head, workers, [&](const Task& task, auto runs) {
      for (std::int64_t tile = task.first; tile <= task.last; ++tile) {
        workers.check();
        classify_dense(*dense, tiles, extent.first_b + task.b, extent.first_h + task.h, tile,
                       extent.keys, runs[static_cast<std::size_t>(tile - task.first)]);
      }
    });
  }
  passes::CaptureTables tables(mask.memory);
  return assembled(extent, tiles, per_batch, per_head, workers, [&](const Task& task, auto runs) {
    Classifier classifier(mask.graph, tables, mask.memory, workers);
    classifier.classify(tiles, extent.first_b + task.b, extent.first_h + task.h, task.first,
                        task.last, extent.keys.begin, extent.keys.end, runs);
  });
}

Layout build(const Mask& mask, const Selection& selection, const Tiles& tiles,
             const base::Workers& workers) {
  check_mask(mask);
  const bool per_batch = mask.graph.uses(Input::b) || selection.per_batch();
  const bool per_head = mask.graph.uses(Input::h) || selection.per_head();
  passes::CaptureTables tables(mask.memory);
  return assembled(
      selection.extent(), tiles, per_batch, per_head, workers, [&](const Task& task, auto runs) {
        Classifier classifier(mask.graph, tables, mask.memory, workers);
        for (std::int64_t tile = task.first; tile <= task.last; ++tile) {
          const std::int64_t block = tiles.query(tile, 0) / selection.query_block();
          for (std::int64_t i = 1; i < tiles.size(tile); ++i) {
            if (tiles.query(tile, i) / selection.query_block() != block) {
              base::fail("layout: tile {} crosses a border of the selection's blocks of {} queries",
                         tile, selection.query_block());
            }
          }
          classifier.classify_listed(tiles, selection.extent().first_b + task.b,
                                     selection.extent().first_h + task.h, tile,
                                     selection.runs(task.b, task.h, block),
                                     runs[static_cast<std::size_t>(tile - task.first)]);
        }
      });
}

}  // namespace treadle::layout
