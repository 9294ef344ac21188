// WantedKeys: the keys that some tiles look at, each once, as ascending runs.
//
//   WantedKeys wanted;
//   wanted.reserve(pieces);                          // of all runs that will be added
//   wanted.add(tile.runs, keys);                     // the part of them inside a range of keys
//   wanted.count(), wanted.runs()
//
// That a run says full or partial means nothing here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layout/run.h"

namespace treadle::run {

class WantedKeys {
 public:
  // Adding needs no memory as long as all that is added has so many pieces together.
  void reserve(std::size_t pieces);
  void clear() { runs_.clear(); }
  void add(std::span<const layout::Run> runs, layout::Range keys);

  // Each ends before the next begins.
  [[nodiscard]] std::span<const layout::Run> runs() const { return runs_; }
  [[nodiscard]] std::int64_t count() const;

 private:
  bool merge(std::size_t middle);
  void expand();

  std::vector<layout::Run> runs_, spare_;
};

// The runs that may have keys inside a range.
std::span<const layout::Run> runs_near(std::span<const layout::Run> runs, layout::Range keys);

// How many keys of the runs are inside a range.
std::int64_t count_inside(std::span<const layout::Run> runs, layout::Range keys);

// Whether there are any.
bool reaches(std::span<const layout::Run> runs, layout::Range keys);

}  // namespace treadle::run
