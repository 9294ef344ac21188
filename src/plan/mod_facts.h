// What a call proves about a mod beyond its graph; part of a kernel's key.
#pragma once

#include <vector>

#include "base/hash.h"
#include "ir/graph.h"
#include "layout/layout.h"
#include "treadle/view.h"

namespace treadle::plan {

struct ModFacts {
  // Every integer of the graph, also in between, fits 32 bits at every point of the call.
  bool narrow = false;
  // A read may leave its buffer, or a divisor be zero: indices are clamped and poison is carried.
  bool checked = true;
  // Lane i of a tile holds query q0 + i, as far as there are queries.
  bool consecutive = false;
  // By slot: the elements of the last dimension are contiguous.
  std::vector<bool> unit_stride;

  bool operator==(const ModFacts&) const = default;
};

// memory[i] is bound to graph.slots()[i]. Contents of integer captures are read only if they can
// decide.
ModFacts find_facts(const ir::Graph& graph, const std::vector<ConstView>& memory,
                    const layout::Extent& extent, const layout::Order& order);

base::Hash hash(const ModFacts& facts);

}  // namespace treadle::plan
