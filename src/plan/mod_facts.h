// What a call proves about a mod beyond its graph; part of a kernel's key.
#pragma once

#include <cstdint>
#include <vector>

#include "base/hash.h"
#include "ir/graph.h"
#include "layout/layout.h"
#include "treadle/view.h"

namespace treadle::plan {

// What is known of the reads of a mod, and so what kernels do about them.
enum class Reads : std::uint8_t {
  proven,   // none leaves its buffer, whatever captures hold: nothing is done
  clamped,  // none does with what captures held when they were looked at. Another thread may write
            // to them since, so what depends on that is moved inside; there is no poison
  checked,  // one may leave its buffer, or a divisor be zero: it touches no memory, and poison is
            // carried
};

struct ModFacts {
  // Every integer of the graph, also in between, fits 32 bits at every point of the call.
  bool narrow = false;
  Reads reads = Reads::checked;
  // Lane i of a tile holds query q0 + i, as far as there are queries.
  bool consecutive = false;
  // By slot: the elements of the last dimension are contiguous.
  std::vector<bool> unit_stride;
  // With Reads::clamped, by load and dimension in their order: whether the index needs it. What is
  // not listed does.
  std::vector<bool> clamp;

  bool operator==(const ModFacts&) const = default;
};

// memory[i] is bound to graph.slots()[i]. Contents of integer captures are read only if they can
// decide.
ModFacts find_facts(const ir::Graph& graph, const std::vector<ConstView>& memory,
                    const layout::Extent& extent, const layout::Order& order);

base::Hash hash(const ModFacts& facts);

}  // namespace treadle::plan
