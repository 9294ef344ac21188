// The kernels of calls, by everything that their code depends on: compiled once, then found.
#pragma once

#include <memory>
#include <shared_mutex>
#include <vector>

#include "backend/cpu/call_facts.h"
#include "jit/engine.h"
#include "plan/target.h"
#include "run/backward_kernels.h"
#include "run/forward_kernels.h"

namespace treadle::backend::cpu {

// Beyond the program: a kind of forward call.
struct ForwardKind {
  plan::Target target;
  DType q = DType::f32, k = DType::f32, v = DType::f32, compute = DType::f32;
  std::int64_t dim = 0, value_dim = 0;
  plan::ModFacts score_facts, mask_facts;

  bool operator==(const ForwardKind&) const = default;
};

struct BackwardKind {
  ForwardKind forward;
  plan::ModFacts derivative_facts;
  int vectors = 1;  // of all tiles

  bool operator==(const BackwardKind&) const = default;
};

// Which kernel of a kind.
struct ForwardVariant {
  int vectors = plan::most_vectors;
  bool masked = false, exact_nonfinite = false;
};

plan::ForwardKernelSpec forward_spec(const Program& program, const Forms& forms,
                                     const ForwardKind& kind, const ForwardVariant& variant);

class KernelSets {
 public:
  // All of them outlive this.
  KernelSets(jit::Engine& engine, const Program& program, const Forms& forms)
      : engine_(engine), program_(program), forms_(forms) {}

  // Nothing is compiled here: run::needed() says what a layout needs.
  std::shared_ptr<const run::ForwardKernels> forward(const ForwardKind& kind);
  std::shared_ptr<const run::BackwardKernels> backward(const BackwardKind& kind);

 private:
  [[nodiscard]] std::shared_ptr<const run::ForwardKernels> make(const ForwardKind& kind) const;
  [[nodiscard]] std::shared_ptr<const run::BackwardKernels> make(const BackwardKind& kind) const;

  template <class Kind, class Kernels>
  struct Known {
    Kind kind;
    std::shared_ptr<const Kernels> kernels;
  };
  template <class Kind, class Kernels>
  std::shared_ptr<const Kernels> find_or_make(std::vector<Known<Kind, Kernels>>& known,
                                              const Kind& kind);

  jit::Engine& engine_;
  const Program& program_;
  const Forms& forms_;
  std::shared_mutex mutex_;
  std::vector<Known<ForwardKind, run::ForwardKernels>> forward_;
  std::vector<Known<BackwardKind, run::BackwardKernels>> backward_;
};

}  // namespace treadle::backend::cpu
