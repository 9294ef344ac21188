// Calls on the dense reference: compute everything aside, then copy it to where the caller wants it.
#include "backend/reference/reference.h"

#include "base/copy.h"
#include "base/error.h"
#include "reference/attention.h"

namespace treadle::backend::reference {
namespace {

namespace dense = treadle::reference;

void refuse_layout(const Request& request) {
  if (!request.layout.empty())
    base::fail("{}: a layout is given, which the reference has no use for", request.name);
}

class Reference final : public Backend {
 public:
  explicit Reference(const Program& program) : program_(program) {}

  [[nodiscard]] Layout layout(const Sizes&, const Bindings&, Executor&) const override {
    base::fail("layout: the reference has no use for a layout; Backend::cpu has");
  }
  void forward(const ForwardRequest& request) const override;
  void backward(const BackwardRequest& request) const override;

  [[nodiscard]] std::int64_t forward_scratch(const Sizes& sizes) const override {
    return dense::scratch_bytes(sizes.compute, sizes.keys.count(), sizes.dim, sizes.value_dim);
  }
  [[nodiscard]] std::int64_t backward_scratch(const Sizes& sizes) const override {
    return forward_scratch(sizes);
  }

 private:
  [[nodiscard]] dense::Problem problem_of(const Request& request) const {
    return {.q = request.inputs.q,
            .k = request.inputs.k,
            .v = request.inputs.v,
            .scale = request.scale,
            .score_mod = {program_.score_mod, request.bound.score_mod},
            .mask = {program_.mask, request.bound.mask}};
  }

  Program program_;
};

void Reference::forward(const ForwardRequest& request) const {
  refuse_layout(request);
  const dense::Forward done = dense::forward(problem_of(request), request.executor);
  base::copy(request.results.out, done.out);
  if (request.results.lse) base::copy(*request.results.lse, done.lse);
  if (request.results.max) base::copy(*request.results.max, done.max);
}

void Reference::backward(const BackwardRequest& request) const {
  refuse_layout(request);
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
  const dense::Backward done = dense::backward(problem_of(request),
                                               {.out = request.saved.out,
                                                .lse = request.saved.lse,
                                                .dout = request.dout,
                                                .dlse = request.dlse},
                                               derivative, request.executor);
  base::copy(results.dq, done.dq);
  base::copy(results.dk, done.dk);
  base::copy(results.dv, done.dv);
  for (std::size_t i = 0; i < results.captures.size(); ++i)
    base::copy(results.captures[i].gradient, done.captured[i]);
}

}  // namespace

std::unique_ptr<const Backend> make_reference(const Program& program) {
  return std::make_unique<Reference>(program);
}

}  // namespace treadle::backend::reference
