// Smallest and largest element of any stretch of a captured array, in a few steps.
//
//   RangeTable table(ids);              // one pass over the array
//   table.integers(100, 4000)           // over ids[100] ... ids[4000]
//
// Blocks of 256 elements have their extremes stored, and pairs of them, pairs of pairs and so on;
// the ends are read. A table describes the array as it was when built: it belongs to one Layout and
// is never kept for the next.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "ir/graph.h"
#include "passes/integer_range.h"
#include "passes/real_range.h"
#include "treadle/view.h"

namespace treadle::passes {

class RangeTable {
 public:
  // A view of rank 1, of any type and stride.
  explicit RangeTable(ConstView array);

  [[nodiscard]] std::int64_t length() const { return array_.size(0); }

  // Over the elements first .. last, which must lie inside.
  [[nodiscard]] IntegerRange integers(std::int64_t first, std::int64_t last) const;
  [[nodiscard]] RealRange reals(std::int64_t first, std::int64_t last) const;

 private:
  template <class T>
  struct Extremes {
    T low, high;
    bool nan;
  };
  template <class T>
  using Levels = std::vector<std::vector<Extremes<T>>>;  // [k][i]: 2^k blocks from i * 2^k on

  template <class T>
  Extremes<T> scan(std::int64_t first, std::int64_t last) const;
  template <class T>
  void build(Levels<T>& levels);
  template <class T>
  Extremes<T> query(const Levels<T>& levels, std::int64_t first, std::int64_t last) const;

  ConstView array_;
  Levels<std::int64_t> integers_;  // of integers and bools
  Levels<double> reals_;           // of floats
};

// The tables of a call's captures, built when first asked for. May be asked by several threads.
class CaptureTables {
 public:
  // memory[i] is bound to slots[i] of the graph.
  explicit CaptureTables(std::vector<ConstView> memory) : memory_(std::move(memory)) {}

  [[nodiscard]] const ConstView& memory(std::int32_t slot) const {
    return memory_[static_cast<std::size_t>(slot)];
  }

  // The elements along `axis` that begin at `offset` elements from the start of the buffer.
  const RangeTable& along(std::int32_t slot, int axis, std::int64_t offset);

 private:
  struct Key {
    std::int32_t slot;
    int axis;
    std::int64_t offset;
    auto operator<=>(const Key&) const = default;
  };
  std::vector<ConstView> memory_;
  std::shared_mutex mutex_;
  std::map<Key, RangeTable> tables_;
};

}  // namespace treadle::passes
