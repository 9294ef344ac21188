// The captured buffers of a graph: where they are, and their elements as values of the graph.
//
//   Captures captures(ops, graph, facts);
//   captures.bind(words);                             // addresses, sizes and strides; its place
//   must dominate every read Result bias = captures.read(slot, indices);       // a load if all
//   indices are scalars, else a gather
//
// With facts.checked a read outside of its buffer reads a zero that lies elsewhere, and is
// poisoned. So nothing outside is ever touched, not even of a buffer that has no element.
#pragma once

#include <span>
#include <vector>

#include "emit/llvm/arithmetic.h"
#include "plan/dependence.h"

namespace treadle::emit::llvm {

class Captures {
 public:
  using Result = Arithmetic::Result;

  // An index and how often it changes: what changes seldom is added up first, so that loops need
  // not do it again.
  struct Index {
    Result at;
    plan::Level level = plan::Level::pair;
  };
  using Indices = std::vector<Index>;

  Captures(Arithmetic& ops, const ir::Graph& graph, const plan::ModFacts& facts);

  void bind(Value* words);

  Result read(std::int32_t slot, const Indices& indices);

  // Unchecked: a pointer, or a vector of them.
  Value* address(std::int32_t slot, const Indices& indices);

  // As many elements as there are lanes, side by side from `first` on or, backwards, down from it;
  // where not `active` nothing is read. `full` says whether all are active.
  Value* read_lanes(std::int32_t slot, Value* first, Value* active, Value* full, bool backwards);

  // An element as it lies in memory, floats of 16 bits as integers; and as a value of the graph.
  [[nodiscard]] ::llvm::Type* element(std::int32_t slot);
  Value* convert(std::int32_t slot, Value* raw);

 private:
  struct Buffer {
    DType dtype = DType::f32;
    Value* data = nullptr;
    Values sizes;    // as the graph's integers; only if reads are checked
    Values strides;  // i64; 1 where that is known
  };

  [[nodiscard]] Buffer& buffer(std::int32_t slot) {
    return buffers_[static_cast<std::size_t>(slot)];
  }
  Value* inside(const Buffer& buffer, const Indices& indices);
  Value* element_of_nothing();

  Arithmetic& ops_;
  Builder& build_;
  const ir::Graph& graph_;
  const plan::ModFacts& facts_;
  std::vector<Buffer> buffers_;
};

}  // namespace treadle::emit::llvm
