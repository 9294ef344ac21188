// Calls on the dense reference: results are computed in private memory, then copied to the caller.
#include "backend/reference/reference.h"

#include "backend/held_layout.h"
#include "backend/reference/visible_mask.h"
#include "base/copy.h"
#include "base/error.h"
#include "layout/build.h"
#include "reference/attention.h"

namespace treadle::backend::reference {
namespace {

namespace dense = treadle::reference;

class Reference final : public Backend {
 public:
  explicit Reference(const Program& program) : program_(program) {}

  [[nodiscard]] Layout layout(const Sizes&, const Bindings&, const base::Workers&) const override {
    base::fail("layout: the reference has no use for a layout; Backend::cpu has");
  }
  [[nodiscard]] Layout listed_layout(layout::Selection listed, const Sizes& sizes,
                                     const Bindings& bound,
                                     const base::Workers& workers) const override;
  void forward(const ForwardRequest& request) const override;
  void backward(const BackwardRequest& request) const override;
  void prepare(const Request&, bool) const override {}

  [[nodiscard]] std::int64_t forward_scratch(const Sizes& sizes) const override {
    return dense::scratch_bytes(sizes.compute, sizes.keys.count(), sizes.dim, sizes.value_dim);
  }
  [[nodiscard]] std::int64_t backward_scratch(const Sizes& sizes) const override {
    return forward_scratch(sizes);
  }

 private:
  // A problem, and the table of its mask if keys were listed.
  struct Posed {
    dense::Problem problem;
    Tensor kinds;
  };
  [[nodiscard]] Posed pose(const Request& request) const;

  Program program_;
};

Layout Reference::listed_layout(layout::Selection listed, const Sizes&, const Bindings& bound,
                                const base::Workers& workers) const {
  const std::int64_t block = listed.query_block();
  const layout::Tiles tiles({.kind = layout::Order::Kind::blocks, .modulus = block},
                            listed.extent().queries, block);
  auto held = std::make_shared<Layout::Held>();
  held->terms.push_back({layout::build({program_.mask, bound.mask}, listed, tiles, workers)});
  held->mask = program_.mask.hash();
  held->listed = std::move(listed);
  return Layout(std::move(held));
}

Reference::Posed Reference::pose(const Request& request) const {
  Posed posed{{.q = request.inputs.q,
               .k = request.inputs.k,
               .v = request.inputs.v,
               .scale = request.scale,
               .score_mod = {program_.score_mod, request.bound.score_mod},
               .mask = {program_.mask, request.bound.mask},
               .sinks = request.sinks,
               .first_b = request.sizes.first_b,
               .first_q = request.sizes.queries.begin,
               .first_kv = request.sizes.keys.begin},
              Tensor()};
  if (request.layout.empty()) return posed;
  if (!request.layout.held()->listed)
    base::fail("{}: a layout is given, which the reference has no use for", request.name);
  VisibleMask visible =
      visible_mask(request.layout.held()->terms.front().layout, posed.problem.mask);
  posed.problem.mask = std::move(visible.bound);
  posed.kinds = std::move(visible.kinds);
  return posed;
}

void Reference::forward(const ForwardRequest& request) const {
  const Posed posed = pose(request);
  const dense::Forward done = dense::forward(posed.problem, request.workers);
  const ConstView out = done.out, lse = done.lse, max = done.max;  // need memory, copies do not
  base::copy(request.results.out, out);
  if (request.results.lse) base::copy(*request.results.lse, lse);
  if (request.results.max) base::copy(*request.results.max, max);
}

void Reference::backward(const BackwardRequest& request) const {
  const Posed posed = pose(request);
  const BackwardViews& results = request.results;
  dense::Derivative derivative{.joint = program_.derivative,
                               .memory = request.bound.derivative,
                               .wanted = {},
                               .wanted_memory = {}};
  for (const CaptureView& view : results.captures) {
    derivative.wanted.push_back({view.name, view.gradient.dtype(), view.gradient.rank()});
    // Only its type and shape matter, which are the gradient's.
    derivative.wanted_memory.emplace_back(view.gradient);
  }
  const dense::Backward done = dense::backward(posed.problem,
                                               {.out = request.saved.out,
                                                .lse = request.saved.lse,
                                                .dout = request.dout,
                                                .dlse = request.dlse},
                                               derivative, request.workers);
  const ConstView dq = done.dq, dk = done.dk, dv = done.dv;  // need memory, copies do not
  const std::vector<ConstView> captured(done.captured.begin(), done.captured.end());
  base::copy(results.dq, dq);
  base::copy(results.dk, dk);
  base::copy(results.dv, dv);
  for (std::size_t i = 0; i < results.captures.size(); ++i)
    base::copy(results.captures[i].gradient, captured[i]);
}

}  // namespace

std::unique_ptr<const Backend> make_reference(const Program& program) {
  return std::make_unique<Reference>(program);
}

}  // namespace treadle::backend::reference
