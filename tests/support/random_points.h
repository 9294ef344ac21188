// Random memory for the captures of a graph, and random points to evaluate it at.
//
//   Captures captures = random_captures(random, graph);
//   RandomPoints<float> points = random_points<float>(random, 64);
//   ir::Interpreter<float> run(graph, captures.views);
//   run(points.points(), points.count());
#pragma once

#include <cstdint>
#include <vector>

#include "base/element.h"
#include "ir/interpret.h"
#include "random_graph.h"
#include "treadle/tensor.h"

namespace treadle::test {

// views[i] is bound to graph.slots()[i] and lies in memory[i].
struct Captures {
  std::vector<Tensor> memory;
  std::vector<ConstView> views;
};

struct CaptureOptions {
  // Lengths of the dimensions. With points below `shortest`, plain indices stay inside.
  std::int64_t shortest = 1;
  std::int64_t longest = 8;
  bool strided = true;         // transposed, reversed and repeated axes
  bool special_values = true;  // infinities, NaN, zeros; integers that are no index at all
};

template <class F>
struct RandomPoints {
  std::vector<F> score, grad;
  std::vector<std::int64_t> b, h, q, kv;

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(b.size()); }
  [[nodiscard]] ir::Points<F> points() const {
    return {.score = score, .grad = grad, .b = b, .h = h, .q = q, .kv = kv};
  }
};

struct PointOptions {
  // b, h, q and kv are below these.
  std::int64_t batch = 3;
  std::int64_t heads = 6;
  std::int64_t queries = 10;
  std::int64_t keys = 10;
  bool special_scores = true;  // infinities, NaN, zeros, tiny and huge numbers
};

namespace detail {

inline double ordinary_or_special(Random& random, bool special) {
  return special && chance(random, 0.1) ? one_of(random, special_reals)
                                        : random_real(random, -4, 4);
}

// Mostly good as an index; an odd one may lie outside of any buffer.
inline std::int64_t likely_index(Random& random, bool special) {
  if (special && chance(random, 0.02)) return one_of(random, special_integers);
  return special && chance(random, 0.05) ? random_int(random, -3, 20) : random_int(random, 0, 4);
}

inline Tensor random_tensor(Random& random, DType dtype, const Dims& shape, bool special) {
  Tensor tensor(dtype, shape);
  for (std::int64_t i = 0; i < tensor.count(); ++i) {
    if (is_float(dtype)) {
      base::store_double(tensor.view().data(), dtype, i, ordinary_or_special(random, special));
    } else if (dtype == DType::boolean) {
      base::store_int(tensor.view().data(), dtype, i, random_int(random, 0, 1));
    } else {
      base::store_int(tensor.view().data(), dtype, i, likely_index(random, special));
    }
  }
  return tensor;
}

// Another way to walk over the same memory: the axes trade places, some run backwards or repeat.
inline ConstView restride(Random& random, const ConstView& view) {
  Dims shape = view.shape();
  Dims strides = view.strides();
  std::int64_t start = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const auto other =
        static_cast<std::size_t>(random_int(random, 0, static_cast<std::int64_t>(axis)));
    std::swap(shape[axis], shape[other]);
    std::swap(strides[axis], strides[other]);
  }
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (chance(random, 0.2)) {
      start += (shape[axis] - 1) * strides[axis];
      strides[axis] = -strides[axis];
    } else if (chance(random, 0.1)) {
      strides[axis] = 0;
    }
  }
  const auto* bytes = static_cast<const std::byte*>(view.data());
  return {bytes + start * static_cast<std::int64_t>(size_of(view.dtype())), view.dtype(), shape,
          strides};
}

}  // namespace detail

inline Captures random_captures(Random& random, const ir::Graph& graph,
                                const CaptureOptions& options = {}) {
  Captures captures;
  for (const ir::Slot& slot : graph.slots()) {
    Dims shape;
    for (int axis = 0; axis < slot.rank; ++axis) {
      shape.push_back(random_int(random, options.shortest, options.longest));
    }
    captures.memory.push_back(
        detail::random_tensor(random, slot.dtype, shape, options.special_values));
    const ConstView view = captures.memory.back();
    captures.views.push_back(options.strided ? detail::restride(random, view) : view);
  }
  return captures;
}

template <class F>
RandomPoints<F> random_points(Random& random, std::int64_t count,
                              const PointOptions& options = {}) {
  RandomPoints<F> points;
  for (std::int64_t i = 0; i < count; ++i) {
    points.score.push_back(
        static_cast<F>(detail::ordinary_or_special(random, options.special_scores)));
    points.grad.push_back(static_cast<F>(random_real(random, -2, 2)));
    points.b.push_back(random_int(random, 0, options.batch - 1));
    points.h.push_back(random_int(random, 0, options.heads - 1));
    points.q.push_back(random_int(random, 0, options.queries - 1));
    points.kv.push_back(random_int(random, 0, options.keys - 1));
  }
  return points;
}

}  // namespace treadle::test
