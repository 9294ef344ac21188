// Tensors of other libraries, in and out without a copy, through DLPack.
//
//   DlpackTensor keys = from_dlpack(managed);              // keys.view() is the producer's memory
//   DLManagedTensor* out = to_dlpack(std::move(result));
//   out->deleter(out);                                     // the consumer's duty, once
//
// Only names DLManagedTensor; include <dlpack/dlpack.h> to look inside one.
#pragma once

#include <memory>
#include <utility>

#include "treadle/api.h"
#include "treadle/tensor.h"
#include "treadle/view.h"

struct DLManagedTensor;

namespace treadle {

// Owns a managed tensor and calls its deleter once, in the end. Moved from, it has no elements.
class TREADLE_API DlpackTensor {
 public:
  // Moved from, it has no elements.
  DlpackTensor(DlpackTensor&& other) noexcept
      : view_(std::exchange(other.view_, View())), tensor_(std::move(other.tensor_)) {}
  // Moved from, it has no elements.
  DlpackTensor& operator=(DlpackTensor&& other) noexcept {
    view_ = std::exchange(other.view_, View());
    tensor_ = std::move(other.tensor_);
    return *this;
  }
  DlpackTensor(const DlpackTensor&) = delete;
  DlpackTensor& operator=(const DlpackTensor&) = delete;
  ~DlpackTensor() = default;

  // The memory, as long as this lives.
  [[nodiscard]] const View& view() const& { return view_; }
  operator View() & { return view_; }
  operator ConstView() const { return view_; }

 private:
  friend TREADLE_API DlpackTensor from_dlpack(DLManagedTensor* tensor);
  DlpackTensor(View view, DLManagedTensor* tensor) : view_(std::move(view)), tensor_(tensor) {}

  struct Delete {
    void operator()(DLManagedTensor* tensor) const;
  };
  View view_;
  std::unique_ptr<DLManagedTensor, Delete> tensor_;
};

// Takes over a tensor in CPU memory. When it throws, the tensor still belongs to the caller: the
// deleter was not called.
TREADLE_API DlpackTensor from_dlpack(DLManagedTensor* tensor);

// Hands a tensor out. Its deleter, called by whoever received it, frees the memory or lets go of
// the owner.
TREADLE_API DLManagedTensor* to_dlpack(Tensor&& tensor);
TREADLE_API DLManagedTensor* to_dlpack(const View& view, std::shared_ptr<void> owner);

}  // namespace treadle
