// DecodeProducts: the two products of a decode kernel, and where its numbers are.
//
//   DecodeProducts products(build, spec, args);
//   products.multiply();          // scores[row][key] = sum_d K[key][d] q[row][d]
//   ...                           // scores become weights
//   products.add_values();        // O[row] += sum_k weight V[k], l[row] += sum_k weight
//
// Keys are in the lanes of scores, elements of a value in those of O.
#pragma once

#include <functional>

#include "emit/llvm/kernel_function.h"
#include "plan/decode_kernel.h"

namespace treadle::emit::llvm {

class DecodeProducts {
 public:
  DecodeProducts(Builder& build, const plan::DecodeKernelSpec& spec,
                 const Arguments<plan::DecodeKernelArgs>& args);

  void multiply();
  void add_values();

  // Calls body(group) for each vector's worth of keys.
  void for_groups(const std::function<void(Value*)>& body);
  [[nodiscard]] Value* first_key(Value* group);
  // Addresses: the scores of a row and a group, element d of a row's O.
  [[nodiscard]] Value* scores_of(Value* row, Value* group);
  [[nodiscard]] Value* sums_of(Value* row, Value* d);
  // l of a row, from weights. add_values() does it for kernels that do not drop weights.
  void add_weights(Value* row);

 private:
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
  // Rows from `first` on, whose sums are in registers together.
  struct Rows {
    Value* first = nullptr;
    int count = 1;
  };

  void for_rows(const std::function<void(const Rows&)>& body);

  void turn_keys();
  void turn_square(const Group& group, Value* d);
  void turn_column(const Group& group, Value* d);
  void multiply_rows(const Rows& rows, Value* group, int groups);

  void widen_values();
  void add_rows(const Rows& rows);
  void add_columns(const Rows& rows, Value* d, int vectors, bool with_weights);
  void add_column(Value* row, Value* d);

  [[nodiscard]] Value* real_at(Value* array, Value* row, std::int64_t width, Value* at);
  [[nodiscard]] Value* turned(Value* group, Value* d);
  [[nodiscard]] Value* weight_of(Value* row, Value* key);
  [[nodiscard]] Value* keys_of(Value* group);
  [[nodiscard]] Value* lane_of_key(Value* group, int lane);
  [[nodiscard]] Group group_of(const Operand& of, Value* number);
  [[nodiscard]] Row row_of(const Group& group, Value* lane);
  Value* stored(const Row& row, Value* at, bool vector);
  void fetch_next(const Row& row, Value* at);
  // Goes on with sums, value after value.
  Values for_values(Values sums,
                    const std::function<Values(Value* key, const Row&, const Values&)>& body);

  Builder& build_;
  const plan::DecodeKernelSpec& spec_;
  Operand keys_, values_;
  Value *key_groups_, *next_groups_, *count_;
  Value *queries_, *rows_, *turned_, *wide_, *scores_, *sums_, *weight_;
  Value* groups_;  // vectors' worth of keys
};

}  // namespace treadle::emit::llvm
