// The captured buffers of a graph: where they are, and their elements as values of the graph.
//
//   Captures captures(ops, graph, facts);
//   captures.bind(descriptors);                    // addresses, sizes and strides; every read must
//                                                  // come after it
//   Result bias = captures.read(slot, indices);    // a load if all indices are scalars, else a
//                                                  // gather
//
// With Reads::checked a read outside its buffer reads a zero from elsewhere and is poisoned, so
// memory outside is never touched, not even for a buffer without elements. With Reads::clamped the
// caller moves indices inside first. Other threads may write to captures meanwhile: whatever an
// index is made of, it is looked at once, and what was found to be inside is what is read.
#pragma once

#include <span>
#include <vector>

#include "emit/llvm/arithmetic.h"
#include "plan/dependence.h"

namespace treadle::emit::llvm {

class Captures {
 public:
  using Result = Arithmetic::Result;

  // An index and how often it changes: parts of an address that change rarely are added first, and
  // so outside of the loops.
  struct Index {
    Result at;
    plan::Level level = plan::Level::pair;
  };
  using Indices = std::vector<Index>;

  Captures(Arithmetic& ops, const ir::Graph& graph, const plan::ModFacts& facts);

  // The address of plan::capture_descriptors().
  void bind(Value* descriptors);
  // The same in a function that reads few of many: each is bound by its first read, which must come
  // before any branch that another read is behind.
  void bind_when_read(Value* descriptors);

  Result read(std::int32_t slot, Indices indices);

  // An index that is not inside the buffer, with as many elements behind it as `reach` says (the
  // graph's integer, with itself; null: 1), is moved to where it is. There must be so many.
  Value* clamped(std::int32_t slot, std::size_t axis, Value* index, Value* reach = nullptr);

  // A pointer or a vector of pointers, whether inside the buffer or not.
  Value* address(std::int32_t slot, const Indices& indices);

  // As many contiguous elements as there are lanes, from address `first` up or, backwards, down;
  // lanes that are not `active` read nothing. `full` says whether all are active.
  Value* read_lanes(std::int32_t slot, Value* first, Value* active, Value* full, bool backwards);

  // The type of an element in memory, where 16-bit floats are integers; and an element that was
  // loaded as this type, as a value of the graph.
  [[nodiscard]] ::llvm::Type* element(std::int32_t slot);
  Value* convert(std::int32_t slot, Value* raw);

 private:
  struct Buffer {
    Value* data = nullptr;
    Values sizes;    // as the graph's integers
    Values strides;  // i64; the constant 1 where that is known
  };

  [[nodiscard]] Buffer& buffer(std::int32_t slot);
  void bind_slot(std::size_t slot);
  Value* inside(const Buffer& buffer, const Indices& indices);
  Value* zero_element();

  Arithmetic& ops_;
  Builder& build_;
  const ir::Graph& graph_;
  const plan::ModFacts& facts_;
  Value* descriptors_ = nullptr;
  std::vector<std::int64_t> first_word_;  // of descriptors, by slot
  std::vector<Buffer> buffers_;           // those without data are not bound yet
};

}  // namespace treadle::emit::llvm
