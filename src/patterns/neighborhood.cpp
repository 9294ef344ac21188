// Makes the mask of neighbourhood attention.
//
// In: the axes of a grid. Out: a mask over the numbers of its cells.
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "patterns/check_parameters.h"
#include "treadle/patterns.h"

namespace treadle::patterns {
namespace {

using base::fail;

constexpr const char* call = "neighborhood";

void check_axes(const std::vector<Axis>& axes) {
  if (axes.empty() || axes.size() > 3)
    fail("{}: {} axes; there must be 1, 2 or 3", call, axes.size());
  for (const Axis& axis : axes) {
    check_at_least(call, "length", axis.length, 1);
    check_at_least(call, "window", axis.window, 1);
    check_at_least(call, "dilation", axis.dilation, 1);
    if (axis.window > axis.length / axis.dilation) {
      fail(
          "{}: a window of {} with dilation {} spans more than the length {}; window * dilation "
          "must be at most the length",
          call, axis.window, axis.dilation, axis.length);
    }
  }
}

// Of two cells along one axis, x of the query and y of the key.
Bool near(const Axis& axis, const Index& x, const Index& y) {
  const auto [length, window, dilation, causal] = axis;
  // Among the cells with one residue, their numbers.
  const Index i = dilation == 1 ? x : floor_div(x, dilation);
  const Index j = dilation == 1 ? y : floor_div(y, dilation);
  const auto inside = [&](const auto& last_start) {
    const Index start = clamp(i - window / 2, 0, last_start);
    return j >= start && j < start + window;
  };
  const auto among_cells = [&] {
    if (causal) return i >= j && i - j < window;
    if (length % dilation == 0) return inside(length / dilation - window);
    // Some residues have one cell more than others.
    return inside(floor_div(length - 1 - x % dilation, dilation) + 1 - window);
  };
  return dilation == 1 ? among_cells() : (x - y) % dilation == 0 && among_cells();
}

// The place along one axis of a cell numbered row by row. `stride`: cells per step along it.
Index place(const std::vector<Axis>& axes, std::size_t axis, std::int64_t stride,
            const Index& cell) {
  const Index steps = stride == 1 ? cell : floor_div(cell, stride);
  return axis == 0 ? steps : steps % axes[axis].length;
}

}  // namespace

MaskMod neighborhood(const std::vector<Axis>& axes) {
  check_axes(axes);
  return [axes](Index, Index, Index q, Index kv) {
    std::int64_t stride = 1;
    for (const Axis& axis : axes) stride *= axis.length;
    std::vector<Bool> conditions;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      stride /= axes[i].length;
      conditions.push_back(near(axes[i], place(axes, i, stride, q), place(axes, i, stride, kv)));
    }
    Bool visible = conditions.front();
    for (std::size_t i = 1; i < conditions.size(); ++i) visible = visible && conditions[i];
    return visible;
  };
}

}  // namespace treadle::patterns
