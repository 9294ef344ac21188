// treadle._core: what the Python package calls. The library checks what users pass; this file
// trusts the package.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "api/inspect.h"
#include "arguments.h"
#include "array.h"
#include "distributed.h"
#include "function.h"
#include "objects.h"
#include "paged_kv.h"
#include "threads.h"
#include "treadle/memory.h"
#include "treadle/merge_states.h"
#include "treadle/version.h"
#include "unlocked.h"

namespace nb = nanobind;

namespace treadle::python {
namespace {

// Bools [b, h, q, kv], contiguous: which pairs keep their weights.
void find_kept(const View& pairs, const Dropout& dropout, std::int64_t q_offset,
               std::int64_t kv_offset) {
  auto* next = static_cast<std::uint8_t*>(pairs.data());
  for (std::int64_t b = 0; b < pairs.size(0); ++b) {
    for (std::int64_t h = 0; h < pairs.size(1); ++h) {
      for (std::int64_t q = 0; q < pairs.size(2); ++q) {
        for (std::int64_t kv = 0; kv < pairs.size(3); ++kv)
          *next++ = keeps(dropout, b, h, q + q_offset, kv + kv_offset) ? 1 : 0;
      }
    }
  }
}

Layout layout_or_none(nb::handle layout) {
  return layout.is_none() ? Layout() : nb::cast<Layout>(layout);
}

// Runs work(crew) of a function without Python's lock.
void run_call(const Function& function, Operation operation, const Function::Tensors& tensors,
              int threads, const std::function<void(const Function::Crew&)>& work) {
  using Clock = std::chrono::steady_clock;
  const CallSize size =
      std::visit([&](const auto& inputs) { return CallSize(operation, inputs); }, tensors.inputs);
  const Length length = function.pace().is_quick(size) ? Length::quick : Length::unknown;
  run_unlocked(length, [&](const std::stop_token& stop) {
    const Clock::time_point begin = Clock::now();
    work({threads, stop});
    function.pace().note(size, Clock::now() - begin);
  });
}

void run_forward(const Function& self, Function::Tensors& tensors, nb::handle layout,
                 nb::handle out, nb::handle lse, nb::handle max, int threads, nb::handle extras) {
  add_extras(tensors, extras);
  const Layout held = layout_or_none(layout);
  const ForwardViews results{view_of(out), optional_view(lse), optional_view(max)};
  run_call(self, Operation::forward, tensors, threads,
           [&](const Function::Crew& crew) { self.forward(tensors, held, results, crew); });
}

void run_backward(const Function& self, Function::Tensors& tensors, nb::handle layout,
                  nb::handle out, nb::handle lse, nb::handle dout, nb::handle dlse,
                  const nb::list& results, int threads, nb::handle extras) {
  add_extras(tensors, extras);
  const Layout held = layout_or_none(layout);
  const Saved saved{view_of(out), view_of(lse)};
  const ConstView gradient = view_of(dout);
  std::optional<ConstView> lse_gradient;
  if (!dlse.is_none()) lse_gradient = view_of(dlse);
  std::vector<View> views;
  for (const nb::handle item : results) views.push_back(view_of(item));
  run_call(self, Operation::backward, tensors, threads, [&](const Function::Crew& crew) {
    self.backward(tensors, held, saved, gradient, lse_gradient, views, crew);
  });
}

void bind_function(nb::module_& m) {
  nb::class_<Layout>(m, "Layout").def_prop_ro("density", &Layout::density);

  nb::class_<Function>(m, "Function")
      .def(
          "__init__",
          [](Function* self, const std::string& score_mod, const std::string& mask,
             const nb::list& captures, const std::vector<std::string>& gradients,
             std::optional<double> scale, std::optional<std::int64_t> most_nodes) {
            const FunctionOptions options{score_mod, mask,  declared_from(captures),
                                          gradients, scale, most_nodes};
            new (self) Function(options);
          },
          nb::arg("score_mod"), nb::arg("mask"), nb::arg("captures"), nb::arg("gradients"),
          nb::arg("scale").none(), nb::arg("most_nodes") = nb::none())
      .def(
          "layout",
          [](const Function& self, nb::handle q, nb::handle k, nb::handle v,
             const nb::list& captures, int threads, nb::handle extras) {
            Function::Tensors tensors = tensors_from(q, k, v, captures);
            add_extras(tensors, extras);
            Layout layout;
            run_call(self, Operation::layout, tensors, threads,
                     [&](const Function::Crew& crew) { layout = self.layout(tensors, crew); });
            return layout;
          },
          nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("captures"), nb::arg("threads"),
          nb::arg("extras").none() = nb::none())
      .def(
          "listed_layout",
          [](const Function& self, nb::handle q, nb::handle k, nb::handle v,
             const nb::list& captures, nb::handle indices, nb::handle counts,
             std::int64_t query_block, std::int64_t key_block, int threads, nb::handle extras) {
            Function::Tensors tensors = tensors_from(q, k, v, captures);
            add_extras(tensors, extras);
            KeyLists keys{query_block, key_block, view_of(indices)};
            if (!counts.is_none()) keys.counts = view_of(counts);
            Layout layout;
            run_call(self, Operation::layout, tensors, threads, [&](const Function::Crew& crew) {
              layout = self.layout(keys, tensors, crew);
            });
            return layout;
          },
          nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("captures"), nb::arg("indices"),
          nb::arg("counts").none(), nb::arg("query_block"), nb::arg("key_block"),
          nb::arg("threads"), nb::arg("extras").none() = nb::none())
      .def(
          "forward",
          [](const Function& self, nb::handle q, nb::handle k, nb::handle v,
             const nb::list& captures, nb::handle layout, nb::handle out, nb::handle lse,
             nb::handle max, int threads, nb::handle extras) {
            Function::Tensors tensors = tensors_from(q, k, v, captures);
            run_forward(self, tensors, layout, out, lse, max, threads, extras);
          },
          nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("captures"), nb::arg("layout").none(),
          nb::arg("out"), nb::arg("lse").none(), nb::arg("max").none(), nb::arg("threads"),
          nb::arg("extras").none() = nb::none())
      .def(
          "backward",
          [](const Function& self, nb::handle q, nb::handle k, nb::handle v,
             const nb::list& captures, nb::handle layout, nb::handle out, nb::handle lse,
             nb::handle dout, nb::handle dlse, const nb::list& results, int threads,
             nb::handle extras) {
            Function::Tensors tensors = tensors_from(q, k, v, captures);
            run_backward(self, tensors, layout, out, lse, dout, dlse, results, threads, extras);
          },
          nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("captures"), nb::arg("layout").none(),
          nb::arg("out"), nb::arg("lse"), nb::arg("dout"), nb::arg("dlse").none(),
          nb::arg("results"), nb::arg("threads"), nb::arg("extras").none() = nb::none())
      .def(
          "forward_sequences",
          [](const Function& self, const nb::tuple& sequences, const nb::list& captures,
             nb::handle out, nb::handle lse, nb::handle max, int threads, nb::handle extras) {
            Function::Tensors tensors{sequences_from(sequences), captures_from(captures)};
            run_forward(self, tensors, nb::none(), out, lse, max, threads, extras);
          },
          nb::arg("sequences"), nb::arg("captures"), nb::arg("out"), nb::arg("lse").none(),
          nb::arg("max").none(), nb::arg("threads"), nb::arg("extras").none() = nb::none())
      .def(
          "backward_sequences",
          [](const Function& self, const nb::tuple& sequences, const nb::list& captures,
             nb::handle out, nb::handle lse, nb::handle dout, nb::handle dlse,
             const nb::list& results, int threads, nb::handle extras) {
            Function::Tensors tensors{sequences_from(sequences), captures_from(captures)};
            run_backward(self, tensors, nb::none(), out, lse, dout, dlse, results, threads, extras);
          },
          nb::arg("sequences"), nb::arg("captures"), nb::arg("out"), nb::arg("lse"),
          nb::arg("dout"), nb::arg("dlse").none(), nb::arg("results"), nb::arg("threads"),
          nb::arg("extras").none() = nb::none())
      .def_prop_ro("score_mod", &Function::score_mod)
      .def_prop_ro("mask", &Function::mask);
}

// Calls show(captures, stop) for what Python declared and handed over, without its lock.
void with_captures(const nb::list& declared, const nb::list& arrays, const auto& show) {
  const BoundCaptures bound = captures_from(arrays);  // keeps numbers alive
  const std::vector<Capture> captures = with_names(declared_from(declared), bound);
  run_unlocked(Length::unknown, [&](const std::stop_token& stop) { show(captures, stop); });
}

void bind_inspection(nb::module_& m) {
  m.def("visible_pairs", [](const std::string& mask, const nb::list& declared,
                            const nb::list& arrays, nb::handle result) {
    with_captures(declared, arrays, [&, to = view_of(result)](const auto& captures, const auto&) {
      api::visible_pairs(mask, captures, to);
    });
  });
  m.def("unmasked_pairs", [](const std::string& score_mod, const nb::list& declared,
                             const nb::list& arrays, nb::handle result) {
    with_captures(declared, arrays, [&, to = view_of(result)](const auto& captures, const auto&) {
      api::unmasked_pairs(score_mod, captures, to);
    });
  });
  m.def("block_kinds", [](const std::string& mask, const nb::list& declared, const nb::list& arrays,
                          std::int64_t queries, std::int64_t keys, std::int64_t query_block,
                          std::int64_t key_block, nb::handle result, int threads) {
    const api::BlockGrid grid{queries, keys, query_block, key_block};
    with_captures(declared, arrays,
                  [&, to = view_of(result)](const auto& captures, const auto& stop) {
                    const std::shared_ptr<Executor> executor = executor_for(threads);
                    api::block_kinds(mask, captures, grid, to, {*executor, stop});
                  });
  });
  m.def("merge_states", [](const nb::list& outs, const nb::list& lses, nb::handle out,
                           nb::handle lse, int threads) {
    std::vector<Saved> parts;
    for (std::size_t i = 0; i < outs.size(); ++i)
      parts.push_back({view_of(outs[i]), view_of(lses[i])});
    const ForwardViews results{view_of(out), view_of(lse), std::nullopt};
    run_unlocked(Length::unknown, [&](const std::stop_token&) {
      merge_states_into(results, parts, executor_for(threads));
    });
  });
  m.def("kernels_made", &api::kernels_made);
  m.def("target", &api::target_name);
}

// Element types by name; their numbers are part of arrays.
nb::dict types() {
  nb::dict types;
  for (int i = 0; i <= static_cast<int>(DType::e5m2); ++i)
    types[std::string(name_of(static_cast<DType>(i))).c_str()] = i;
  return types;
}

// (name, infix, arity, rule) of every operation, from the table in src/ir/ops.def.
nb::list operations() {
  nb::list rows;
  for (const api::Operation& row : api::operations())
    rows.append(nb::make_tuple(std::string(row.name), std::string(row.infix), row.arity,
                               std::string(row.rule)));
  return rows;
}

}  // namespace

}  // namespace treadle::python

NB_MODULE(_core, m) {
  using namespace treadle;
  using namespace treadle::python;
  nb::set_leak_warnings(false);  // compiled functions are kept until the end
  m.doc() = "Treadle's compiler and kernels; use the package treadle instead.";
  m.attr("__version__") = std::string(version());
  m.attr("types") = types();
  m.attr("operations") = operations();
  static const nb::exception<Error> error(m, "Error", PyExc_ValueError);
  static const nb::exception<ModError> mod_error(m, "ModError", error.ptr());
  bind_function(m);
  bind_inspection(m);
  bind_paged_kv(m);
  bind_distributed(m);
  begin_calls(nb::cast<unsigned long>(
      nb::module_::import_("threading").attr("main_thread")().attr("ident")));
  m.def("begin_forked", [] {
    stay_serial();
    begin_calls(PyThread_get_thread_ident());
  });
  m.def("end_calls", &end_calls);
  m.def("read_arrays", &read_arrays, nb::arg("slowly"));
  m.def("read_tensors", &read_tensors, nb::arg("exchange").none(), nb::arg("slowly"));
  m.def(
      "find_kept",
      [](nb::handle pairs, double probability, std::uint64_t seed, std::uint64_t offset,
         std::int64_t q_offset, std::int64_t kv_offset) {
        find_kept(view_of(pairs), {probability, seed, offset}, q_offset, kv_offset);
      },
      nb::arg("pairs"), nb::arg("probability"), nb::arg("seed"), nb::arg("offset"),
      nb::arg("q_offset"), nb::arg("kv_offset"));
  m.def("release_memory", &release_memory);
}
