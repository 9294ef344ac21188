#include "api/call_memory.h"

#include <algorithm>

#include "base/copy.h"

namespace treadle::api {
namespace {

struct Range {
  const std::byte *begin = nullptr, *end = nullptr;
};

Range range_of(const ConstView& view) {
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (int axis = 0; axis < view.rank(); ++axis) {
    if (view.size(axis) == 0) return {};
    const std::int64_t reach = (view.size(axis) - 1) * view.stride(axis);
    low += std::min<std::int64_t>(reach, 0);
    high += std::max<std::int64_t>(reach, 0);
  }
  const auto* data = static_cast<const std::byte*>(view.data());
  const auto size = static_cast<std::int64_t>(size_of(view.dtype()));
  return {data + low * size, data + (high + 1) * size};
}

}  // namespace

bool overlaps(const ConstView& a, const ConstView& b) {
  const Range x = range_of(a);
  const Range y = range_of(b);
  return x.begin < y.end && y.begin < x.end;
}

bool has_unit_rows(const ConstView& view) {
  const int last = view.rank() - 1;
  return last < 0 || view.stride(last) == 1 || view.size(last) <= 1;
}

Rows::Rows(const ConstView& given) : view_(given) {
  if (has_unit_rows(given)) return;
  copy_ = base::convert(given, given.dtype());
  view_ = copy_;
}

Result::Result(const View& wanted, bool aside) : wanted_(wanted), now_(wanted) {
  if (!aside) return;
  tensor_ = Tensor(wanted.dtype(), wanted.shape());
  now_ = tensor_;
}

void Result::deliver() const {
  if (now_.data() != wanted_.data()) base::copy(wanted_, now_);
}

std::vector<std::int64_t> words_of(const std::vector<ConstView>& memory) {
  std::vector<std::int64_t> words;
  for (const ConstView& view : memory) {
    words.push_back(reinterpret_cast<std::int64_t>(view.data()));
    words.insert(words.end(), view.shape().begin(), view.shape().end());
    words.insert(words.end(), view.strides().begin(), view.strides().end());
  }
  return words;
}

}  // namespace treadle::api
