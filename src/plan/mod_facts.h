// What a call proves about a mod beyond its graph; part of a kernel's key.
#pragma once

#include <cstdint>
#include <vector>

#include "base/hash.h"
#include "ir/graph.h"
#include "layout/layout.h"
#include "passes/bounds.h"
#include "plan/flags.h"
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
  Flags unit_stride;
  // With Reads::clamped, by load and dimension in their order: whether the index needs it. What is
  // not listed does.
  Flags clamp;

  bool operator==(const ModFacts&) const = default;
};

// memory[i] is bound to graph.slots()[i]. Contents of integer captures are read only if they can
// decide.
ModFacts find_facts(const ir::Graph& graph, const std::vector<ConstView>& memory,
                    const layout::Extent& extent, const layout::Order& order);

// The same for one graph, again and again: what that needs is kept between calls.
class FactFinder {
 public:
  // The graph outlives this.
  explicit FactFinder(const ir::Graph& graph);

  ModFacts find(const std::vector<ConstView>& memory, const layout::Extent& extent,
                const layout::Order& order);

 private:
  const ir::Graph& graph_;
  bool reads_integers_;
  passes::CaptureTables tables_;
  passes::Bounds any_, seen_;
  ir::PerNode<bool> holds_;  // clamps_of()
};

base::Hash hash(const ModFacts& facts);

}  // namespace treadle::plan
