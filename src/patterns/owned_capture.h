// A capture that keeps its memory: what a pattern needs to know besides its formula.
//
//   const Capture ids = owned<std::int32_t>(numbers, {rows, columns});
//
// It has no name, so several of them never clash in one mask; a trace calls them c0, c1, ...
#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "treadle/capture.h"
#include "treadle/tensor.h"

namespace treadle::patterns {

template <class T>
Capture owned(std::span<const T> values, const Dims& shape) {
  auto tensor = std::make_shared<Tensor>(dtype_of<T>, shape);
  std::ranges::copy(values, tensor->template data<T>().begin());
  return Capture("", std::shared_ptr<const Tensor>(std::move(tensor)));
}

}  // namespace treadle::patterns
