// Whether a call will be quick, judged by those before it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "treadle/attention.h"

namespace treadle::python {

enum class Operation : std::uint8_t { layout, forward, backward };
enum class KeysLie : std::uint8_t { in_batches, packed, in_pages };

// What a call's kernels depend on, and how much there is to do.
struct CallSize {
  Operation operation = Operation::forward;
  KeysLie where = KeysLie::in_batches;
  std::array<DType, 3> types{};
  std::int64_t dim = 0, value_dim = 0;
  double pairs = 0;

  CallSize(Operation what, const Inputs& inputs);
  CallSize(Operation what, const Sequences& sequences);
  [[nodiscard]] bool same_kind(const CallSize& other) const;
};

class Pace {
 public:
  // A call of this kind, and not much larger, took milliseconds. The first of a kind compiles.
  [[nodiscard]] bool is_quick(const CallSize& size) const;
  void note(const CallSize& size, std::chrono::steady_clock::duration took);

 private:
  mutable std::mutex mutex_;
  std::vector<CallSize> quick_;  // the largest of each kind that was
};

}  // namespace treadle::python
