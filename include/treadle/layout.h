// A Layout: which keys each tile of queries has to look at, computed once for many calls.
//
//   Layout layout = causal.layout({q, k, v});
//   causal.forward({q, k, v}, {.layout = layout});      // as often as you like
//
// It depends on the mask, the lengths and the contents of the mask's captures: if one of these
// changes, make a new Layout. Calls check mask and lengths, but not whether the contents of captures
// have changed. A Layout can also be made from lists of keys: treadle/key_lists.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "treadle/api.h"
#include "treadle/block_lists.h"

namespace treadle {

class TREADLE_API Layout {
 public:
  // None: a call computes its own.
  Layout() = default;

  [[nodiscard]] bool empty() const { return held_ == nullptr; }
  // The share of all pairs of queries and keys that is worked on.
  [[nodiscard]] double density() const;
  [[nodiscard]] std::int64_t bytes() const;
  // Order, tiles and runs as text; long ones are cut.
  [[nodiscard]] std::string describe() const;

  // FlexAttention's lists that show, with the same mask, what this layout shows. Blocks are full or
  // absent only where the layout's tiles prove it, else partial, where the mask decides:
  // Attention::block_lists finds the exact kinds. A layout of listed keys throws treadle::Error if
  // its lists are not made of whole blocks, which the mask alone cannot tell apart.
  [[nodiscard]] BlockLists block_lists(const BlockListOptions& options = {}) const;

  struct Held;  // internal
  explicit Layout(std::shared_ptr<const Held> held) : held_(std::move(held)) {}
  [[nodiscard]] const Held* held() const { return held_.get(); }

 private:
  std::shared_ptr<const Held> held_;
};

}  // namespace treadle
