// Reads lists of whole numbers from arrays of any strides.
//
// In: an array of lists, perhaps an array of their lengths. Out: one list at a time.
#include "layout/integer_lists.h"

#include <algorithm>
#include <utility>

#include "base/element.h"
#include "base/error.h"

namespace treadle::layout {

IntegerLists::IntegerLists(std::string call, std::string what, const ConstView& lists,
                           const std::optional<ConstView>& counts, const ListShape& shape)
    : call_(std::move(call)),
      what_(std::move(what)),
      lists_(lists),
      counts_(counts),
      shape_(shape) {
  const Dims rows{shape.batch, shape.heads, shape.rows};
  if (counts_) check(*counts_, "the array of counts of " + what_, rows);
  if (lists_.rank() != 4) {
    base::fail("{}: {} has shape {}; it must be [batch, heads, query blocks, longest list]", call_,
               what_, to_string(lists_.shape()));
  }
  check(lists_, what_, {shape.batch, shape.heads, shape.rows, lists_.size(3)});
}

void IntegerLists::check(const ConstView& view, const std::string& what, Dims wanted) const {
  if (view.dtype() != DType::i32 && view.dtype() != DType::i64) {
    base::fail("{}: {} holds {}; it must hold i32 or i64", call_, what, name_of(view.dtype()));
  }
  const bool grouped = shape_.key_heads != shape_.heads && shape_.key_heads > 1;
  bool fits = view.rank() == static_cast<int>(wanted.size());
  for (int axis = 0; fits && axis < view.rank(); ++axis) {
    const bool shared = (axis < 2 && view.size(axis) == 1) ||
                        (axis == 1 && grouped && view.size(axis) == shape_.key_heads);
    fits = shared || view.size(axis) == wanted[static_cast<std::size_t>(axis)];
  }
  if (!fits) {
    base::fail("{}: {} has shape {}; it must be {}, where batch and heads may also be 1{}", call_,
               what, to_string(view.shape()), to_string(wanted),
               grouped ? fmt::format(", and heads the {} key heads", shape_.key_heads) : "");
  }
}

// Where row (b, h, row) begins. An axis that has fewer entries than there are batches or heads
// shares each of them among as many neighbours.
std::int64_t IntegerLists::offset_of(const ConstView& view, std::int64_t b, std::int64_t h,
                                     std::int64_t row) const {
  const std::int64_t batch = view.size(0) == 1 ? 0 : b;
  const std::int64_t head = h / (shape_.heads / view.size(1));
  return batch * view.stride(0) + head * view.stride(1) + row * view.stride(2);
}

std::int64_t IntegerLists::batch_lists() const {
  return shape_.batch == 0 ? 0 : std::max(lists_.size(0), counts_ ? counts_->size(0) : 1);
}

std::int64_t IntegerLists::head_lists() const {
  return shape_.heads == 0 ? 0 : std::max(lists_.size(1), counts_ ? counts_->size(1) : 1);
}

std::vector<std::int64_t> IntegerLists::read(std::int64_t b, std::int64_t h,
                                             std::int64_t row) const {
  std::int64_t count = lists_.size(3);
  if (counts_) {
    count = base::load_int(counts_->data(), counts_->dtype(), offset_of(*counts_, b, h, row));
    if (count < 0 || count > lists_.size(3)) {
      base::fail("{}: the count of {} is {} for {}; a list holds 0 to {}", call_, what_, count,
                 place(b, h, row), lists_.size(3));
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

std::string IntegerLists::place(std::int64_t b, std::int64_t h, std::int64_t row) const {
  return fmt::format("batch {}, head {}, query block {}", batch_lists() == 1 ? 0 : b,
                     h / (shape_.heads / head_lists()), row);
}

}  // namespace treadle::layout
