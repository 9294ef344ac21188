// In: an array of lists, perhaps an array of their lengths; out: one list at a time.
#include "layout/integer_lists.h"

#include <utility>

#include "base/element.h"
#include "base/error.h"

namespace treadle::layout {
namespace {

// Where row (b, h, row) begins. An axis of length 1 stands for all batches or heads.
std::int64_t offset_of(const ConstView& view, std::int64_t b, std::int64_t h, std::int64_t row) {
  return (view.size(0) == 1 ? 0 : b * view.stride(0)) +
         (view.size(1) == 1 ? 0 : h * view.stride(1)) + row * view.stride(2);
}

}  // namespace

IntegerLists::IntegerLists(std::string call, std::string what, const ConstView& lists,
                           const std::optional<ConstView>& counts, const Extent& extent,
                           std::int64_t rows)
    : call_(std::move(call)), what_(std::move(what)), lists_(lists), counts_(counts) {
  Dims shape{extent.batch, extent.heads, rows};
  if (counts_) check(*counts_, "the array of counts of " + what_, shape);
  if (lists_.rank() != 4) {
    base::fail("{}: {} has shape {}; [batch, heads, query blocks, longest list] is needed", call_,
               what_, to_string(lists_.shape()));
  }
  shape.push_back(lists_.size(3));
  check(lists_, what_, shape);
}

void IntegerLists::check(const ConstView& view, const std::string& what, const Dims& shape) const {
  if (view.dtype() != DType::i32 && view.dtype() != DType::i64) {
    base::fail("{}: {} holds elements of type {}; i32 or i64 is needed", call_, what,
               name_of(view.dtype()));
  }
  bool fits = view.rank() == static_cast<int>(shape.size());
  for (int axis = 0; fits && axis < view.rank(); ++axis) {
    const bool shared = axis < 2 && view.size(axis) == 1;
    fits = shared || view.size(axis) == shape[static_cast<std::size_t>(axis)];
  }
  if (!fits) {
    base::fail("{}: {} has shape {}; {} is needed, where batch and heads may also be 1", call_,
               what, to_string(view.shape()), to_string(shape));
  }
}

bool IntegerLists::per_axis(int axis) const {
  return lists_.size(axis) != 1 || (counts_ && counts_->size(axis) != 1);
}

std::vector<std::int64_t> IntegerLists::read(std::int64_t b, std::int64_t h,
                                             std::int64_t row) const {
  std::int64_t count = lists_.size(3);
  if (counts_) {
    count = base::load_int(counts_->data(), counts_->dtype(), offset_of(*counts_, b, h, row));
    if (count < 0 || count > lists_.size(3)) {
      base::fail("{}: {}: the count of {} is {}; a row holds 0 to {}", call_, place_of(b, h, row),
                 what_, count, lists_.size(3));
    }
  }
  std::vector<std::int64_t> numbers;
  numbers.reserve(static_cast<std::size_t>(count));
  const std::int64_t first = offset_of(lists_, b, h, row);
  for (std::int64_t i = 0; i < count; ++i) {
    numbers.push_back(base::load_int(lists_.data(), lists_.dtype(), first + i * lists_.stride(3)));
  }
  return numbers;
}

std::string place_of(std::int64_t b, std::int64_t h, std::int64_t query_block) {
  return fmt::format("batch {}, head {}, query block {}", b, h, query_block);
}

}  // namespace treadle::layout
