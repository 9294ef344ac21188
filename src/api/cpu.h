// Backend::cpu: what compile() prepares, and a forward call.
//
//   facts -> kernels (cached) ; mask -> Layout (or the caller's) -> run
#pragma once

#include <memory>
#include <shared_mutex>
#include <vector>

#include "api/held_layout.h"
#include "ir/joint.h"
#include "plan/score_form.h"
#include "plan/target.h"
#include "run/backward_kernels.h"
#include "run/forward.h"
#include "treadle/attention.h"

namespace treadle::api {

// The captures of one call, by the slots of the graphs that read them.
struct Bindings {
  std::vector<ConstView> score_mod, score, mask;  // score: ScoreForm's graph
  std::vector<ConstView> derivative;
};

class Cpu {
 public:
  // Graphs are simplified. An empty target name is the machine's own.
  Cpu(const ir::Graph& score_mod, const ir::Joint& derivative, const ir::Graph& mask,
      const std::string& target);

  [[nodiscard]] const plan::Target& target() const { return target_; }
  [[nodiscard]] const ir::Graph& mask() const { return mask_; }
  [[nodiscard]] const plan::ScoreForm& score() const { return score_; }

  // Bytes of working memory that one thread needs at most.
  [[nodiscard]] std::int64_t scratch_bytes(DType compute, std::int64_t dim,
                                           std::int64_t value_dim) const;
  [[nodiscard]] std::int64_t backward_scratch_bytes(DType compute, std::int64_t keys,
                                                    std::int64_t dim, std::int64_t value_dim) const;

  [[nodiscard]] Layout make_layout(const layout::Extent& extent, DType compute,
                                   const Bindings& bound, Executor& executor) const;

  // Inputs and results have been checked. Results are written only when nothing can fail any more.
  // Without a given layout one is made.
  void forward(const Inputs& inputs, double scale, const Bindings& bound, const Layout& given,
               const ForwardViews& results, Executor& executor) const;

  // Gradients of q, k, v and of the captures of the derivative. Inputs and results have been
  // checked. False if something is not a number: then nothing in the results means anything, and
  // the reference has to tell where it belongs.
  bool backward(const Inputs& inputs, const Saved& saved, const ConstView& dout,
                const std::optional<ConstView>& dlse, double scale, const Bindings& bound,
                const Layout& given, const BackwardViews& results, Executor& executor) const;

  // The kernels of a kind of call, made when first needed.
  std::shared_ptr<run::ForwardKernels> kernels(const Inputs& inputs, const Bindings& bound,
                                               const layout::Layout& layout) const;

 private:
  std::shared_ptr<run::BackwardKernels> backward_kernels(const Inputs& inputs,
                                                         const Bindings& bound,
                                                         const layout::Layout& layout) const;
  [[noreturn]] void report(const Inputs& inputs, double scale, const Bindings& bound,
                           const layout::Layout& layout, const run::Poisoned& where) const;

  ir::Graph score_mod_, mask_;
  ir::Joint derivative_;
  plan::ScoreForm score_;
  plan::Target target_;
  bool sees_all_;  // the mask is true
  mutable std::shared_mutex mutex_;
  mutable std::vector<std::shared_ptr<run::ForwardKernels>> known_;
  mutable std::vector<std::shared_ptr<run::BackwardKernels>> known_backward_;
};

// f64 if an input is, else f32.
DType compute_type(const Inputs& inputs);
layout::Extent extent_of(const Inputs& inputs);

// oneTBB on all cores, made once.
const std::shared_ptr<Executor>& default_executor();

}  // namespace treadle::api
