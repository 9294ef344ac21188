// Does a kernel compute what the interpreter does, operation by operation?
//
// Errors of a few ulp grow on their way through a graph, so whole graphs cannot be compared.
// Instead a kernel is made whose outputs are all the nodes, and each node is compared with what the
// interpreter makes of the operands that the kernel had.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "mod_runner.h"

namespace treadle::test {

// The same nodes, all of them outputs, in their order.
ir::Graph every_node(const ir::Graph& graph);

// Two kernels: one with the graph's outputs, which may be in pieces, and one with all nodes, which
// is whole.
class Agreement {
 public:
  Agreement(const ir::Graph& graph, const Setting& setting);

  // Fails the test, and says where, if a node is off by more than 4 ulp, is another integer or
  // bool, or is poisoned where it should not be; also if the two kernels do not give the same bits.
  void expect(const Tile& tile, const std::vector<ConstView>& views) const;

  [[nodiscard]] std::int64_t staged_bytes() const { return own_.staged_bytes(); }

 private:
  ir::Graph graph_;
  Setting setting_;
  ModRunner all_, own_;
};

inline void expect_agreement(const ir::Graph& graph, const Setting& setting, const Tile& tile,
                             const std::vector<ConstView>& views) {
  Agreement(graph, setting).expect(tile, views);
}

// What may be claimed of a call: every integer fits 32 bits, no read leaves its buffer.
plan::ModFacts facts_of(const ir::Graph& graph, const Tile& tile,
                        const std::vector<ConstView>& views);

// Units in the last place of fp32 or fp64 between two numbers; 0 for two NaN, infinite if only one
// is.
double ulps(double got, double want, DType real);

}  // namespace treadle::test
