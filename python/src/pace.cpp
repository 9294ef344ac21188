// Remembers, for every kind of call, the largest that was quick.
#include "pace.h"

#include <algorithm>

namespace treadle::python {
namespace {

constexpr auto quick_enough = std::chrono::milliseconds(20);
constexpr double not_much_larger = 4;

bool is_vector(const ConstView& view) {
  return view.rank() == 1 && (view.dtype() == DType::i32 || view.dtype() == DType::i64);
}

double number_at(const ConstView& vector, std::int64_t i) {
  const std::int64_t at = i * vector.stride(0);
  if (vector.dtype() == DType::i32)
    return static_cast<double>(static_cast<const std::int32_t*>(vector.data())[at]);
  return static_cast<double>(static_cast<const std::int64_t*>(vector.data())[at]);
}

}  // namespace

CallSize::CallSize(Operation what, const Inputs& inputs)
    : operation(what), types{inputs.q.dtype(), inputs.k.dtype(), inputs.v.dtype()} {
  // A wrong shape is for the call to refuse.
  for (const ConstView* view : {&inputs.q, &inputs.k, &inputs.v})
    if (view->rank() != 4) return;
  dim = inputs.q.size(3);
  value_dim = inputs.v.size(3);
  pairs = static_cast<double>(inputs.q.size(0) * inputs.q.size(1)) *
          static_cast<double>(inputs.q.size(2)) * static_cast<double>(inputs.k.size(2));
}

CallSize::CallSize(Operation what, const Sequences& sequences) : operation(what) {
  const ConstView& q = sequences.q;
  const auto* packed = std::get_if<PackedKeys>(&sequences.keys);
  const auto* paged = std::get_if<PagedKeys>(&sequences.keys);
  where = packed != nullptr ? KeysLie::packed : KeysLie::in_pages;
  const ConstView& k = packed != nullptr ? packed->k : paged->k;
  const ConstView& v = packed != nullptr ? packed->v : paged->v;
  const ConstView& keys = packed != nullptr ? packed->starts : paged->lengths;
  types = {q.dtype(), k.dtype(), v.dtype()};
  const int rank = packed != nullptr ? 3 : 4;
  if (q.rank() != 3 || k.rank() != rank || v.rank() != rank) return;
  if (!is_vector(sequences.q_starts) || !is_vector(keys)) return;
  dim = q.size(2);
  value_dim = v.size(rank - 1);
  const std::int64_t starts =
      std::min(sequences.q_starts.size(0), keys.size(0) + (packed != nullptr ? 0 : 1));
  for (std::int64_t i = 1; i < starts; ++i) {
    const double queries = number_at(sequences.q_starts, i) - number_at(sequences.q_starts, i - 1);
    const double length =
        packed != nullptr ? number_at(keys, i) - number_at(keys, i - 1) : number_at(keys, i - 1);
    pairs += queries * length * static_cast<double>(q.size(1));
  }
}

bool CallSize::same_kind(const CallSize& other) const {
  return operation == other.operation && where == other.where && types == other.types &&
         dim == other.dim && value_dim == other.value_dim;
}

bool Pace::is_quick(const CallSize& size) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(quick_, [&](const CallSize& known) {
    return known.same_kind(size) && size.pairs <= not_much_larger * known.pairs;
  });
}

void Pace::note(const CallSize& size, std::chrono::steady_clock::duration took) {
  const std::lock_guard lock(mutex_);
  const auto known =
      std::ranges::find_if(quick_, [&](const CallSize& one) { return one.same_kind(size); });
  if (took < quick_enough) {
    if (known == quick_.end()) {
      quick_.push_back(size);
    } else {
      known->pairs = std::max(known->pairs, size.pairs);
    }
  } else if (known != quick_.end()) {  // next time this one is not quick
    known->pairs = std::min(known->pairs, size.pairs / (2 * not_much_larger));
  }
}

}  // namespace treadle::python
