// Makes masks of windows and blocks.
//
// In: their parameters. Out: a mask.
#include "base/error.h"
#include "patterns/check_parameters.h"
#include "treadle/mods.h"
#include "treadle/patterns.h"

namespace treadle::patterns {
namespace {

using base::fail;

}  // namespace

MaskMod sliding_window(const SlidingWindow& pattern) {
  check_at_least("sliding_window", "window", pattern.window, 1);
  check_at_least("sliding_window", "number of sinks", pattern.sinks, 0);
  const auto [window, sinks] = pattern;
  return [=](Index, Index, Index q, Index kv) {
    const Bool near = q - kv < window;
    return q >= kv && (sinks == 0 ? near : near || kv < sinks);
  };
}

MaskMod dilated_window(const DilatedWindow& pattern) {
  check_at_least("dilated_window", "window", pattern.window, 1);
  check_at_least("dilated_window", "dilation", pattern.dilation, 1);
  return mods::window(pattern.window * pattern.dilation) & mods::dilated(pattern.dilation);
}

MaskMod longformer(const Longformer& pattern) {
  check_at_least("longformer", "reach", pattern.reach, 0);
  const ConstView& view = pattern.global.view();
  if (view.dtype() != DType::boolean || (view.rank() != 1 && view.rank() != 2)) {
    fail(
        "longformer: global is {} of shape {}; it must be bool of shape [length] or [batch, "
        "length]",
        name_of(view.dtype()), to_string(view.shape()));
  }
  return [reach = pattern.reach, global = pattern.global, shared = view.rank() == 1](
             Index b, Index, Index q, Index kv) {
    const auto is_global = [&](const Index& at) { return shared ? global(at) : global(b, at); };
    return abs(q - kv) <= reach || is_global(q) || is_global(kv);
  };
}

MaskMod block_diagonal(const BlockDiagonal& pattern) {
  check_at_least("block_diagonal", "size", pattern.size, 1);
  return [size = pattern.size](Index, Index, Index q, Index kv) {
    return floor_div(q, size) == floor_div(kv, size);
  };
}

}  // namespace treadle::patterns
