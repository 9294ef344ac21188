// The rows of a call's own K and V: one regular piece per batch and head.
#include "run/key_source.h"

#include "plan/chunks.h"
#include "run/rows.h"

namespace treadle::run {

int stage_of(const KeySource& keys, layout::Range chunks) {
  return chunks.empty() ? 0 : keys.stage(plan::keys_of_chunks(chunks));
}

KeyRows TensorKeys::rows(std::int64_t b, std::int64_t key_head, std::int64_t) const {
  const std::int64_t batch = k_.size(0) == 1 ? 0 : b;
  return {.begin = first_,
          .end = first_ + k_.size(2),
          .keys = rows_of(k_, batch, key_head),
          .values = rows_of(v_, batch, key_head),
          .key_stride = row_bytes(k_),
          .value_stride = row_bytes(v_)};
}

bool TensorKeys::needs_copy(DType compute) const {
  return k_.dtype() != compute || v_.dtype() != compute || !rows_touch(k_) || !rows_touch(v_);
}

}  // namespace treadle::run
