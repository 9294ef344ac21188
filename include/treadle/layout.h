// A Layout: which keys each tile of queries has to look at, worked out once for many calls.
//
//   Layout layout = causal.layout({q, k, v});
//   causal.forward({q, k, v}, {.layout = layout});      // as often as you like
//
// It depends on the mask, on lengths and on what the mask's captures hold: change one of these and
// a new Layout is needed. Lengths are checked; that the captures are those of old is the caller's
// promise.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "treadle/api.h"

namespace treadle {

class TREADLE_API Layout {
 public:
  // None: a call works its own out.
  Layout() = default;

  [[nodiscard]] bool empty() const { return held_ == nullptr; }
  // Of all pairs of queries and keys, the share that is worked on.
  [[nodiscard]] double density() const;
  [[nodiscard]] std::int64_t bytes() const;
  // Order, tiles and runs, for people; long ones are cut.
  [[nodiscard]] std::string describe() const;

  struct Held;  // internal
  explicit Layout(std::shared_ptr<const Held> held) : held_(std::move(held)) {}
  [[nodiscard]] const Held* held() const { return held_.get(); }

 private:
  std::shared_ptr<const Held> held_;
};

}  // namespace treadle
