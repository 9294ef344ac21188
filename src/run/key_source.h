// A KeySource: where the rows of keys and values lie, by position.
//
//   KeyRows rows = source.rows(b, key_head, position);
//   rows.key(position), rows.value(position)           // and of all others up to rows.end
//
// A call's own tensors are one source (TensorKeys). A cache in pages or the shard of another
// machine is another; workers, kernels and layouts know positions alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layout/range.h"
#include "treadle/view.h"

namespace treadle::run {

// Rows at equal distances: those of positions begin .. end of one batch and key head.
struct KeyRows {
  std::int64_t begin = 0, end = 0;
  const std::byte *keys = nullptr, *values = nullptr;  // of position `begin`
  std::int64_t key_stride = 0, value_stride = 0;       // bytes from one position to the next
  // What rows are multiplied with, if the source has scales; strides in elements, 0 for one of all.
  const float *key_scales = nullptr, *value_scales = nullptr;
  std::int64_t key_scale_stride = 0, value_scale_stride = 0;

  [[nodiscard]] const std::byte* key(std::int64_t position) const {
    return keys + (position - begin) * key_stride;
  }
  [[nodiscard]] const std::byte* value(std::int64_t position) const {
    return values + (position - begin) * value_stride;
  }
  [[nodiscard]] float key_scale(std::int64_t position) const {
    return key_scales[(position - begin) * key_scale_stride];
  }
  [[nodiscard]] float value_scale(std::int64_t position) const {
    return value_scales[(position - begin) * value_scale_stride];
  }
};

class KeySource {
 public:
  virtual ~KeySource() = default;

  [[nodiscard]] virtual std::int64_t batch() const = 0;  // 1: all batches of queries share it
  [[nodiscard]] virtual std::int64_t heads() const = 0;
  [[nodiscard]] virtual layout::Range positions() const = 0;
  [[nodiscard]] virtual DType key_type() const = 0;
  [[nodiscard]] virtual DType value_type() const = 0;
  // The longest piece of regular rows that holds this position.
  [[nodiscard]] virtual KeyRows rows(std::int64_t b, std::int64_t key_head,
                                     std::int64_t position) const = 0;
  // Whether no piece can be read in place by kernels of this compute type: its type is another, or
  // its rows are not contiguous.
  [[nodiscard]] virtual bool needs_copy(DType compute) const = 0;

  // Some rows may be on their way from elsewhere. Returns when all that a call looks at in a range
  // of positions are there, or throws; tasks ask before they read. And in which order they come:
  // tasks of stage 0 never wait.
  virtual void await(layout::Range) const {}
  [[nodiscard]] virtual int stage(layout::Range) const { return 0; }
};

// Of a task that looks at these chunks.
int stage_of(const KeySource& keys, layout::Range chunks);

// K [batch or 1, key heads, keys, dim] and V of the same lengths, last strides 1. The first row is
// that of position `first`. The views outlive this.
class TensorKeys final : public KeySource {
 public:
  TensorKeys(const ConstView& k, const ConstView& v, std::int64_t first = 0)
      : k_(k), v_(v), first_(first) {}

  [[nodiscard]] std::int64_t batch() const override { return k_.size(0); }
  [[nodiscard]] std::int64_t heads() const override { return k_.size(1); }
  [[nodiscard]] layout::Range positions() const override { return {first_, first_ + k_.size(2)}; }
  [[nodiscard]] DType key_type() const override { return k_.dtype(); }
  [[nodiscard]] DType value_type() const override { return v_.dtype(); }
  [[nodiscard]] KeyRows rows(std::int64_t b, std::int64_t key_head,
                             std::int64_t position) const override;
  [[nodiscard]] bool needs_copy(DType compute) const override;

 private:
  const ConstView &k_, &v_;
  std::int64_t first_;
};

}  // namespace treadle::run
