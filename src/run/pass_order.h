// PassOrder: which passes work on which heads, and who begins and who ends their rows.
//
// A mask of several terms takes a pass for each (passes/terms.h). Between passes a row is a state
// (run/row_states.h). A head that only one pass has keys for is begun and ended by it, so its rows
// are never states.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/layout.h"

namespace treadle::run {

class PassOrder {
 public:
  // Of a single pass.
  PassOrder() = default;
  // Of the terms of each of several passes, in their order; all are of one extent.
  explicit PassOrder(const std::vector<std::vector<const layout::Layout*>>& passes);

  // Whether the pass has anything to do for the head. If none has keys for it, the last pass has.
  [[nodiscard]] bool works(std::size_t pass, std::int64_t b, std::int64_t h) const {
    return single_ || works_[at(pass, b, h)] != 0;
  }
  // Whether an earlier pass left states of the head's rows.
  [[nodiscard]] bool continues(std::size_t pass, std::int64_t b, std::int64_t h) const;
  // Whether a later pass goes on with them.
  [[nodiscard]] bool leaves(std::size_t pass, std::int64_t b, std::int64_t h) const;
  // Whether any head has states at all.
  [[nodiscard]] bool has_states() const { return has_states_; }

 private:
  [[nodiscard]] std::size_t at(std::size_t pass, std::int64_t b, std::int64_t h) const {
    return pass * static_cast<std::size_t>(lists_) + static_cast<std::size_t>(b * heads_ + h);
  }

  bool single_ = true, has_states_ = false;
  std::size_t count_ = 1;
  std::int64_t heads_ = 0, lists_ = 0;
  std::vector<std::uint8_t> works_;  // [passes][batch][heads]
};

}  // namespace treadle::run
