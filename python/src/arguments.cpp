// What Python hands over, as the library takes it.
#include "arguments.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "array.h"

namespace nb = nanobind;

namespace treadle::python {

std::vector<Declared> declared_from(const nb::list& list) {
  std::vector<Declared> declared;
  for (const nb::handle item : list) {
    const auto parts = nb::cast<nb::tuple>(item);
    declared.push_back({nb::cast<std::string>(parts[0]),
                        static_cast<DType>(nb::cast<int>(parts[1])), nb::cast<int>(parts[2])});
  }
  return declared;
}

BoundCaptures captures_from(const nb::list& list) {
  BoundCaptures captures;
  for (const nb::handle item : list) {
    if (nb::isinstance<nb::int_>(item)) {
      captures.integers.push_back(nb::cast<std::int64_t>(item));
      captures.views.emplace_back(&captures.integers.back(), DType::i64, Dims{});
    } else if (nb::isinstance<nb::float_>(item)) {
      captures.reals.push_back(nb::cast<double>(item));
      captures.views.emplace_back(&captures.reals.back(), DType::f64, Dims{});
    } else {
      captures.views.push_back(view_of(item));
    }
  }
  return captures;
}

std::optional<View> optional_view(nb::handle array) {
  if (array.is_none()) return std::nullopt;
  return view_of(array);
}

Function::Tensors tensors_from(nb::handle q, nb::handle k, nb::handle v, const nb::list& captures) {
  return {Inputs{view_of(q), view_of(k), view_of(v)}, captures_from(captures)};
}

Sequences sequences_from(const nb::tuple& parts) {
  const ConstView q = view_of(parts[0]), starts = view_of(parts[1]);
  const ConstView k = view_of(parts[2]), v = view_of(parts[3]);
  if (parts.size() == 5) return {q, starts, PackedKeys{k, v, view_of(parts[4])}};
  PagedKeys paged{k, v, view_of(parts[4]), view_of(parts[5])};
  if (nb::cast<bool>(parts[6])) paged.order = PageOrder::tokens_first;
  if (!parts[7].is_none()) paged.k_scales = view_of(parts[7]);
  if (!parts[8].is_none()) paged.v_scales = view_of(parts[8]);
  return {q, starts, paged};
}

void add_extras(Function::Tensors& tensors, nb::handle extras) {
  if (extras.is_none()) return;
  const auto given = nb::cast<nb::tuple>(extras);
  if (!given[0].is_none()) tensors.sinks = view_of(given[0]);
  tensors.q_offsets = nb::cast<std::vector<std::int64_t>>(given[1]);
  tensors.kv_offsets = nb::cast<std::vector<std::int64_t>>(given[2]);
  if (given.size() < 4 || given[3].is_none()) return;
  const auto dropout = nb::cast<nb::tuple>(given[3]);
  tensors.dropout = {nb::cast<double>(dropout[0]), nb::cast<std::uint64_t>(dropout[1]),
                     nb::cast<std::uint64_t>(dropout[2])};
}

}  // namespace treadle::python
