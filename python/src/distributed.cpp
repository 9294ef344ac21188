// Plans and calls of several processes, whose messages Python moves. treadle/torch/distributed calls it.
#include "distributed.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "arguments.h"
#include "array.h"
#include "function.h"
#include "group_exchange.h"
#include "threads.h"
#include "treadle/distributed.h"
#include "unlocked.h"

namespace nb = nanobind;

namespace treadle::python {
namespace {

using Starts = std::vector<std::int64_t>;

constexpr auto quick_enough = std::chrono::milliseconds(20);

// A plan, what it waits through, and whether its last calls were quick.
struct GroupPlan {
  distributed::Plan plan;
  std::shared_ptr<GroupExchange> exchange;
  bool forward_is_quick = false, backward_is_quick = false;
};

// Runs task(stop) without Python's lock; waits for other ranks end when it is asked to stop.
template <class Task>
void run_together(GroupExchange& exchange, Length length, const Task& task) {
  std::exception_ptr failure;
  try {
    run_unlocked(length, [&](const std::stop_token& stop) {
      exchange.begin_call(stop, length == Length::quick);
      task(stop);
    });
  } catch (...) {
    failure = std::current_exception();
  }
  if (std::optional<nb::python_error> raised = exchange.end_call())
    throw nb::python_error(std::move(*raised));
  if (failure) std::rethrow_exception(failure);
}

// The same for a call of a plan, which may have been quick the last time.
template <class Task>
void run_call(const GroupPlan& plan, bool& is_quick, const Task& task) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  run_together(*plan.exchange, is_quick ? Length::quick : Length::unknown, task);
  is_quick = Clock::now() - begin < quick_enough;
}

// (element type, shape)
TensorSpec spec_from(const nb::tuple& parts) {
  return {static_cast<DType>(nb::cast<int>(parts[0])), dims_of(parts[1])};
}

// (gigabits, teraflops, head groups, whether sums are of each rank, patience in milliseconds)
distributed::PlanOptions options_from(const nb::tuple& parts) {
  distributed::PlanOptions options;
  options.gigabits = nb::cast<double>(parts[0]);
  options.teraflops = nb::cast<double>(parts[1]);
  options.head_groups = nb::cast<int>(parts[2]);
  if (nb::cast<bool>(parts[3])) options.sums = distributed::Sums::per_rank;
  options.patience = std::chrono::milliseconds(nb::cast<std::int64_t>(parts[4]));
  return options;
}

GroupPlan plan(const Function& function, const std::shared_ptr<GroupExchange>& exchange,
               const nb::tuple& q, const nb::tuple& k, const nb::tuple& v, const Starts& queries,
               const Starts& keys, const nb::list& captures, const nb::tuple& options,
               int threads) {
  static const float none = 0;  // an address; no element is read
  const ConstView nothing(&none, DType::f32, Dims{0});
  const Function::Tensors tensors{Inputs{nothing, nothing, nothing}, captures_from(captures)};
  const TensorSpec of_q = spec_from(q), of_k = spec_from(k), of_v = spec_from(v);
  const distributed::PlanOptions given = options_from(options);
  std::optional<distributed::Plan> made;
  run_together(*exchange, Length::unknown, [&](const std::stop_token& stop) {
    made = distributed::plan(function.attention(), exchange, of_q, of_k, of_v, {queries}, {keys},
                             function.call_of(tensors, {}, {threads, stop}), given);
  });
  return {std::move(*made), exchange};
}

void forward(GroupPlan& self, const Function& function, nb::handle q, nb::handle k, nb::handle v,
             const nb::list& captures, nb::handle out, nb::handle lse, nb::handle max, int threads,
             nb::handle extras) {
  Function::Tensors tensors = tensors_from(q, k, v, captures);
  add_extras(tensors, extras);
  const ForwardViews results{view_of(out), optional_view(lse), optional_view(max)};
  run_call(self, self.forward_is_quick, [&](const std::stop_token& stop) {
    distributed::forward_into(function.attention(), self.plan, results,
                              std::get<Inputs>(tensors.inputs),
                              function.call_of(tensors, {}, {threads, stop}));
  });
}

void backward(GroupPlan& self, const Function& function, nb::handle q, nb::handle k, nb::handle v,
              const nb::list& captures, nb::handle out, nb::handle lse, nb::handle dout,
              nb::handle dlse, const nb::list& results, int threads, nb::handle extras) {
  Function::Tensors tensors = tensors_from(q, k, v, captures);
  add_extras(tensors, extras);
  const Saved saved{view_of(out), view_of(lse)};
  const ConstView gradient = view_of(dout);
  const std::optional<View> of_lse = optional_view(dlse);
  std::optional<ConstView> lse_gradient;
  if (of_lse) lse_gradient = *of_lse;
  std::vector<View> views;
  for (const nb::handle item : results) views.push_back(view_of(item));
  run_call(self, self.backward_is_quick, [&](const std::stop_token& stop) {
    distributed::backward_into(function.attention(), self.plan, function.views_of(tensors, views),
                               std::get<Inputs>(tensors.inputs), saved, gradient, lse_gradient,
                               function.call_of(tensors, {}, {threads, stop}));
    function.clear_unread(views);
  });
}

// Of contiguous memory.
std::span<std::byte> bytes_of(const View& view) {
  return {static_cast<std::byte*>(view.data()),
          static_cast<std::size_t>(view.count()) * size_of(view.dtype())};
}

nb::tuple tuple_of(const distributed::Traffic& traffic) {
  return nb::make_tuple(traffic.sent, traffic.received, traffic.messages);
}

}  // namespace

void bind_distributed(nb::module_& m) {
  nb::class_<Messages>(m, "Messages")
      .def("arrived", &Messages::arrived)
      .def("sent", &Messages::sent)
      .def("dropped", &Messages::dropped);
  nb::class_<GroupExchange>(m, "GroupExchange")
      .def(nb::init<int, int, nb::object>(), nb::arg("rank"), nb::arg("ranks"), nb::arg("port"))
      .def("gone", &GroupExchange::gone)
      .def("told", &GroupExchange::told)
      .def("refuse",
           [](const std::shared_ptr<GroupExchange>& self, const std::string& why,
              std::int64_t patience) {
             run_together(*self, Length::quick, [&](const std::stop_token&) {
               distributed::refuse(self, why, std::chrono::milliseconds(patience));
             });
           })
      .def("gather",
           [](const std::shared_ptr<GroupExchange>& self, nb::handle own, nb::handle all,
              std::int64_t patience) {
             const View from = view_of(own), to = view_of(all);
             run_together(*self, Length::quick, [&](const std::stop_token&) {
               distributed::gather(self, bytes_of(from), bytes_of(to),
                                   std::chrono::milliseconds(patience));
             });
           })
      .def("agree", [](const std::shared_ptr<GroupExchange>& self, std::uint64_t number,
                       std::int64_t patience) {
        std::vector<std::uint64_t> numbers;
        run_together(*self, Length::quick, [&](const std::stop_token&) {
          numbers = distributed::agree(self, number, std::chrono::milliseconds(patience));
        });
        return numbers;
      });
  nb::class_<GroupPlan>(m, "GroupPlan")
      .def("forward", &forward, nb::arg("function"), nb::arg("q"), nb::arg("k"), nb::arg("v"),
           nb::arg("captures"), nb::arg("out"), nb::arg("lse").none(), nb::arg("max").none(),
           nb::arg("threads"), nb::arg("extras").none() = nb::none())
      .def("backward", &backward, nb::arg("function"), nb::arg("q"), nb::arg("k"), nb::arg("v"),
           nb::arg("captures"), nb::arg("out"), nb::arg("lse"), nb::arg("dout"),
           nb::arg("dlse").none(), nb::arg("results"), nb::arg("threads"),
           nb::arg("extras").none() = nb::none())
      .def_prop_ro("balance", [](const GroupPlan& self) { return self.plan.balance(); })
      .def_prop_ro("memory", [](const GroupPlan& self) { return self.plan.memory(); })
      .def_prop_ro("bytes_of_all_gather",
                   [](const GroupPlan& self) { return self.plan.bytes_of_all_gather(); })
      .def_prop_ro("forward_traffic",
                   [](const GroupPlan& self) { return tuple_of(self.plan.forward_traffic()); })
      .def_prop_ro("backward_traffic",
                   [](const GroupPlan& self) { return tuple_of(self.plan.backward_traffic()); })
      .def_prop_ro("forward_moved",
                   [](const GroupPlan& self) { return tuple_of(self.plan.forward_moved()); })
      .def_prop_ro("backward_moved",
                   [](const GroupPlan& self) { return tuple_of(self.plan.backward_moved()); })
      .def("describe", [](const GroupPlan& self) { return self.plan.describe(); });
  m.def("plan", &plan, nb::arg("function"), nb::arg("exchange"), nb::arg("q"), nb::arg("k"),
        nb::arg("v"), nb::arg("queries"), nb::arg("keys"), nb::arg("captures"), nb::arg("options"),
        nb::arg("threads"));
}

}  // namespace treadle::python
