// Captures: data that a mod reads besides its score and its indices.
//
//   Capture slopes("slopes", View(data.data(), {heads}));  // a buffer, read as slopes(h)
//   Capture window("window", std::int64_t{128});           // a run-time scalar, used as it is
//   auto shared = std::make_shared<const Tensor>(table.clone());
//   Capture ids("ids", shared);                            // a buffer that the capture keeps alive
//
// The graph of a mod knows a capture by name, element type and rank only. Its memory, or its value,
// is bound at each call; a call that binds nothing uses what was passed here. Changing it does not
// trigger a recompile.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "treadle/api.h"
#include "treadle/tensor.h"
#include "treadle/view.h"

namespace treadle {

namespace detail {

[[noreturn]] TREADLE_API void fail_integer(std::uint64_t number);
[[noreturn]] TREADLE_API void fail_no_tensor(const std::string& name);

// Integers of mods have 64 bits and a sign; a larger number is refused, not wrapped.
template <std::integral T>
std::int64_t to_int64(T number) {
  if (std::is_unsigned_v<T> && static_cast<std::uint64_t>(number) > std::uint64_t{INT64_MAX}) {
    fail_integer(static_cast<std::uint64_t>(number));
  }
  return static_cast<std::int64_t>(number);
}

}  // namespace detail

class TREADLE_API Capture {
 public:
  // Memory that the caller keeps alive until the last call that uses it.
  Capture(std::string name, ConstView view) : name_(std::move(name)), view_(std::move(view)) {}
  // A tensor that is about to go away would leave a view of nothing; give a shared_ptr instead.
  Capture(std::string name, Tensor&& temporary) = delete;
  // Without a name it is called c0, c1, ... in the order in which the score mod, then the mask,
  // reads such captures; of nested reads the inner one comes first.
  explicit Capture(ConstView view) : view_(std::move(view)) {}

  // Memory that lives as long as any copy of the capture, so a function may return a mod that reads
  // it.
  Capture(std::string name, std::shared_ptr<const Tensor> tensor) : name_(std::move(name)) {
    if (tensor == nullptr) detail::fail_no_tensor(name_);
    view_ = *tensor;
    owned_ = std::move(tensor);
  }

  // A number of f64, i64 or bool.
  template <class T>
    requires std::is_arithmetic_v<T>
  Capture(std::string name, T value) : name_(std::move(name)) {
    if constexpr (std::same_as<T, bool>) {
      own(std::make_shared<bool>(value));
    } else if constexpr (std::integral<T>) {
      own(std::make_shared<std::int64_t>(detail::to_int64(value)));
    } else {
      own(std::make_shared<double>(value));
    }
  }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const ConstView& view() const { return view_; }
  void rename(std::string name) { name_ = std::move(name); }

  // Inside a mod: the element at traced indices. Defined in treadle/trace.h.
  template <class... Indices>
  Value operator()(const Indices&... index) const;

 private:
  template <class T>
  void own(std::shared_ptr<T> value) {
    view_ = ConstView(value.get(), Dims{});
    owned_ = std::move(value);
  }

  std::string name_;
  ConstView view_;
  std::shared_ptr<const void> owned_;  // a scalar, or a tensor that was handed over
};

}  // namespace treadle
