// Builds layouts of one tile each, many at once.
//
// In: a mask, extents. Out: runs. Extents are cut into parts, one for a thread at a time; each part has
// its own classifier and its own runs.
#include "layout/one_tiles.h"

#include <algorithm>

#include "layout/dense.h"

namespace treadle::layout {

OneTiles::OneTiles(const ir::Graph& mask)
    : mask_{mask, {}},
      per_batch_(mask.uses(ir::Input::b)),
      per_head_(mask.uses(ir::Input::h)),
      tables_(std::vector<ConstView>()) {}

void OneTiles::build(const std::vector<ConstView>& memory, std::span<const Extent> extents,
                     const base::Workers& workers) {
  constexpr std::int64_t parts_per_thread = 4, fewest_extents = 8;
  mask_.memory = memory;
  check_mask(mask_);
  for (const Extent& extent : extents) check_extent(extent);
  const auto count = std::ssize(extents);
  const std::int64_t most_parts = parts_per_thread * workers.threads();
  const std::int64_t size = std::max((count + most_parts - 1) / most_parts, fewest_extents);
  const std::int64_t parts = (count + size - 1) / size;
  places_.resize(extents.size());
  tables_.bind(memory);
  while (std::ssize(parts_) < parts) {
    parts_.push_back(
        std::make_unique<Part>(Classifier(mask_.graph, tables_, memory, workers), Tiles()));
  }
  base::parallel_for(workers, parts, [&](std::int64_t number) {
    Part& part = *parts_[static_cast<std::size_t>(number)];
    part.classifier.bind(mask_.memory, workers);
    part.offsets.clear();
    part.runs.clear();
    for (std::int64_t i = number * size; i < std::min(count, (number + 1) * size); ++i) {
      Place& place = places_[static_cast<std::size_t>(i)];
      place = {.extent = extents[static_cast<std::size_t>(i)],
               .part = static_cast<std::size_t>(number),
               .first = part.offsets.size()};
      add(part, place, workers);
    }
  });
}

void OneTiles::add(Part& part, Place& place, const base::Workers& workers) {
  const Extent& extent = place.extent;
  part.tiles.set_one(extent.queries);
  const auto dense = as_dense(mask_, extent);
  for (std::int64_t b = 0; b < (per_batch_ ? extent.batch : 1); ++b) {
    for (std::int64_t h = 0; h < (per_head_ ? extent.heads : 1); ++h) {
      part.list.clear();
      if (dense) {
        workers.check();
        classify_dense(*dense, part.tiles, extent.first_b + b, extent.first_h + h, 0, extent.keys,
                       part.list);
      } else {
        part.classifier.classify(part.tiles, extent.first_b + b, extent.first_h + h, 0, 0,
                                 extent.keys.begin, extent.keys.end, {&part.list, 1});
      }
      part.offsets.push_back(static_cast<std::uint32_t>(part.runs.size()));
      for (const Run& run : part.list) {
        part.runs.push_back(run);
        (run.full() ? place.has_full : place.has_partial) = true;
      }
    }
  }
  part.offsets.push_back(static_cast<std::uint32_t>(part.runs.size()));
}

void OneTiles::trim() {
  constexpr std::size_t most = 1 << 14;  // runs: a quarter of a megabyte
  for (const std::unique_ptr<Part>& part : parts_) {
    for (std::vector<Run>* runs : {&part->list, &part->runs})
      if (runs->capacity() > most) std::vector<Run>().swap(*runs);
  }
  places_.clear();
}

OneTile OneTiles::operator[](std::size_t i) const {
  const Place& place = places_[i];
  const Part& part = *parts_[place.part];
  return {place.extent,    per_batch_,        per_head_,
          place.has_full,  place.has_partial, part.offsets.data() + place.first,
          part.runs.data()};
}

Layout OneTiles::layout(std::size_t i, Tiles tiles) const {
  const OneTile tile = (*this)[i];
  std::vector<std::vector<Run>> lists;
  for (std::int64_t b = 0; b < (per_batch_ ? tile.extent.batch : 1); ++b) {
    for (std::int64_t h = 0; h < (per_head_ ? tile.extent.heads : 1); ++h) {
      const auto runs = tile.runs(b, h);
      lists.emplace_back(runs.begin(), runs.end());
    }
  }
  return {tile.extent, std::move(tiles), per_batch_, per_head_, lists};
}

}  // namespace treadle::layout
