// treadle._core.PagedKV: the package keeps the arrays that a cache was made of.
#include "paged_kv.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>

#include "array.h"
#include "treadle/paged_kv.h"

namespace treadle::python {
namespace {

using Slots = std::vector<std::int64_t>;

// Scales are arrays or None.
PagedKVOptions options_from(nb::handle k_scales, nb::handle v_scales, bool tokens_first) {
  PagedKVOptions options;
  if (tokens_first) options.order = PageOrder::tokens_first;
  if (!k_scales.is_none()) options.k_scales = view_of(k_scales);
  if (!v_scales.is_none()) options.v_scales = view_of(v_scales);
  return options;
}

// A NumPy array of this memory, which it keeps.
template <class T>
nb::object array_of(Tensor tensor) {
  auto kept = std::make_unique<Tensor>(std::move(tensor));
  std::vector<std::size_t> shape;
  for (const std::int64_t size : kept->shape()) shape.push_back(static_cast<std::size_t>(size));
  T* data = kept->data<T>().data();
  const nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  kept.release();
  return nb::cast(nb::ndarray<nb::numpy, T>(data, shape.size(), shape.data(), owner));
}

}  // namespace

void bind_paged_kv(nb::module_& m) {
  nb::class_<PagedKV>(m, "PagedKV")
      .def(
          "__init__",
          [](PagedKV* self, nb::handle k_pool, nb::handle v_pool, nb::handle k_scales,
             nb::handle v_scales, std::int64_t sequences, std::int64_t pages_per_sequence,
             bool tokens_first, bool scales_given) {
            PagedKVOptions options = options_from(k_scales, v_scales, tokens_first);
            options.sequences = sequences;
            options.pages_per_sequence = pages_per_sequence;
            options.scales_given = scales_given;
            new (self) PagedKV(view_of(k_pool), view_of(v_pool), options);
          },
          nb::arg("k_pool"), nb::arg("v_pool"), nb::arg("k_scales").none(),
          nb::arg("v_scales").none(), nb::arg("sequences"), nb::arg("pages_per_sequence"),
          nb::arg("tokens_first"), nb::arg("scales_given"))
      .def("add", &PagedKV::add)
      .def("append", [](PagedKV& self, std::int64_t slot, nb::handle k,
                        nb::handle v) { self.append(slot, view_of(k), view_of(v)); })
      .def("append_packed",
           [](PagedKV& self, const Slots& slots, nb::handle starts, nb::handle k, nb::handle v) {
             self.append(slots, view_of(starts), view_of(k), view_of(v));
           })
      .def("fork", &PagedKV::fork, nb::arg("slot"), nb::arg("length").none())
      .def("trim", &PagedKV::trim)
      .def("free", &PagedKV::free)
      .def("length", &PagedKV::length)
      .def("pages_of", &PagedKV::pages_of)
      .def_prop_ro("sequences", &PagedKV::sequences)
      .def_prop_ro("pages", &PagedKV::pages)
      .def_prop_ro("free_pages", &PagedKV::free_pages)
      .def_prop_ro("page_size", &PagedKV::page_size)
      .def("batch", [](const PagedKV& self, const Slots& slots) {
        PagedKV::Batch batch = self.batch(slots);
        return nb::make_tuple(array_of<std::int32_t>(std::move(batch.table)),
                              array_of<std::int64_t>(std::move(batch.lengths)));
      });
}

}  // namespace treadle::python
