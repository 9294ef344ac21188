// DecodeMemory: where the numbers of a decode kernel are, and how keys and values are read.
//
//   DecodeMemory memory(build, spec, args);
//   const DecodeMemory::Group group = memory.group_of(memory.keys, number);
//   const DecodeMemory::Row row = memory.row_of(group, lane);
//   Value* part = memory.stored(row, d, true);             // from element d on, in the compute type
#pragma once

#include <cstdint>
#include <functional>

#include "emit/llvm/kernel_function.h"
#include "plan/decode_kernel.h"

namespace treadle::emit::llvm {

class DecodeMemory {
 public:
  using Args = plan::DecodeKernelArgs;

  // Keys or values: their type, and what says in a KeyGroup where they are.
  struct Operand {
    DType type;
    const void* plan::KeyGroup::* rows;
    std::int64_t plan::KeyGroup::* stride;
    Value* scales;  // by key, or null
  };
  // Of a vector's worth of keys: where its rows are, and how far ahead those to ask for meanwhile are,
  // in bytes. One distance for all rows needs one register; where rows of the next block are at other
  // distances, some that are asked for are not needed.
  struct Group {
    const Operand& of;
    Value* number;
    Value *rows, *stride, *ahead;
  };
  // A key or a value: its row, what it is multiplied with (or null), and the row to ask for meanwhile.
  struct Row {
    DType type;
    Value *address, *scale, *next;  // the last may be null: nothing to ask for
  };
  // Rows of queries from `first` on, whose sums are in registers together.
  struct Rows {
    Value* first = nullptr;
    int count = 1;
  };

  DecodeMemory(Builder& build, const plan::DecodeKernelSpec& spec, const Arguments<Args>& args);

  // Calls body for the rows of queries, four by four.
  void for_rows(const std::function<void(const Rows&)>& body);
  // Calls body(group) for each vector's worth of keys.
  void for_groups(const std::function<void(Value*)>& body);

  Value* first_key(Value* group);
  // How many keys a group holds.
  Value* keys_of(Value* group);
  Group group_of(const Operand& of, Value* number);
  Row row_of(const Group& group, Value* lane);
  // Where element d of a row is.
  Value* address_of(const Row& row, Value* d);
  // One element of a row, or as many as there are lanes, in the compute type.
  Value* stored(const Row& row, Value* d, bool vector);
  // As many words of 32 bits, each of some neighbouring elements.
  Value* words_of(const Row& row, Value* d);
  // Asks for the same elements of a row of the next block.
  void fetch_next(const Row& row, Value* d);

  // Element `at` of row `row` of an array of floats: its address.
  Value* real_at(Value* array, Value* row, std::int64_t width, Value* at);
  // The scores of a row and a group, element d of a row's O, l of a row: their addresses.
  Value* scores_of(Value* row, Value* group);
  Value* sums_of(Value* row, Value* d);
  Value* total_of(Value* row);
  Value* weight_of(Value* row, Value* key);  // a score that has become a weight

  Builder& build;
  const plan::DecodeKernelSpec& spec;
  const Operand keys, values;
  // The arguments of these names; values in the compute type.
  Value *const key_groups,
      *const next_groups,
          *const count, *const queries,
                            *const rows, *const turned, *const wide, *const scores,
                                                                         *const sums, *const weight;
  Value* groups;  // vectors' worth of keys
};

}  // namespace treadle::emit::llvm
