// The kernels of calls, by everything that their code depends on: compiled once, then found.
//
// A compiled function keeps those of the kinds of calls that it saw last. Head dims, types and facts
// make a kind, lengths do not, so a program rarely has more than a few.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <shared_mutex>

#include "backend/cpu/call_facts.h"
#include "jit/engine.h"
#include "plan/target.h"
#include "run/backward_kernels.h"
#include "run/decode.h"
#include "run/forward_kernels.h"

namespace treadle::backend::cpu {

// The mask that kernels look at: a term of the program's, or all of it.
struct KernelMask {
  std::shared_ptr<const MaskTerm> term = nullptr;
  bool checked = false;

  [[nodiscard]] const ir::Graph& graph(const Program& program) const {
    return term == nullptr ? program.mask : term->graph(checked);
  }
  bool operator==(const KernelMask& other) const {
    if (term == nullptr || other.term == nullptr) return term == other.term;
    return term->hash == other.term->hash && checked == other.checked;
  }
};

// Beyond the program: a kind of forward call, or of a pass of one.
struct ForwardKind {
  plan::Target target;
  DType q = DType::f32, k = DType::f32, v = DType::f32, compute = DType::f32;
  bool key_scales = false, value_scales = false;
  std::int64_t dim = 0, value_dim = 0;
  plan::ModFacts score_facts, mask_facts;
  bool sparse = false;  // plan::TilePlan::sparse
  plan::PieceSize mods = {};
  KernelMask mask = {};
  bool dropout = false;

  bool operator==(const ForwardKind&) const = default;
};

struct BackwardKind {
  ForwardKind forward;
  plan::ModFacts derivative_facts;
  int vectors = 1;  // of all tiles
  // dq, dk and dv are of the compute type, so that passes can add to them.
  bool adds_up = false;

  bool operator==(const BackwardKind&) const = default;
};

// Of a call with few queries. Facts are those of graphs with q and kv exchanged.
struct DecodeKind {
  ForwardKind forward;
  plan::RowBlocks rows{1};

  bool operator==(const DecodeKind&) const = default;
};

// Which kernel of a kind.
struct ForwardVariant {
  int vectors = plan::most_vectors;
  bool masked = false, exact_nonfinite = false;
};

plan::TilePlan plan_of(const ForwardKind& kind, int vectors);

plan::ForwardKernelSpec forward_spec(const Program& program, const Forms& forms,
                                     const ForwardKind& kind, const ForwardVariant& variant);

class KernelSets {
 public:
  // Of forward and of backward calls, each.
  static constexpr std::size_t most_kinds = 32;

  // All of them outlive this.
  KernelSets(jit::Engine& engine, const Program& program, const Forms& forms)
      : engine_(engine), program_(program), forms_(forms) {}

  // Nothing is compiled here: run::needed() says what a layout needs.
  std::shared_ptr<const run::ForwardKernels> forward(const ForwardKind& kind);
  std::shared_ptr<const run::BackwardKernels> backward(const BackwardKind& kind);
  std::shared_ptr<const run::DecodeKernels> decode(const DecodeKind& kind);

 private:
  // Of the score mod and the mask.
  [[nodiscard]] plan::ModScratch scratch_of(const ForwardKind& kind) const;
  [[nodiscard]] std::shared_ptr<const run::ForwardKernels> make(const ForwardKind& kind) const;
  [[nodiscard]] std::shared_ptr<const run::BackwardKernels> make(const BackwardKind& kind) const;
  [[nodiscard]] std::shared_ptr<const run::DecodeKernels> make(const DecodeKind& kind) const;

  template <class Kind, class Kernels>
  struct Known {
    Kind kind;
    std::shared_ptr<const Kernels> kernels;
    std::atomic<std::uint64_t> last_asked;  // in the order of asking
  };
  template <class Kind, class Kernels>
  std::shared_ptr<const Kernels> find_or_make(std::list<Known<Kind, Kernels>>& known,
                                              const Kind& kind);

  jit::Engine& engine_;
  const Program& program_;
  const Forms& forms_;
  std::shared_mutex mutex_;
  std::list<Known<ForwardKind, run::ForwardKernels>> forward_;
  std::list<Known<BackwardKind, run::BackwardKernels>> backward_;
  std::list<Known<DecodeKind, run::DecodeKernels>> decode_;
  std::atomic<std::uint64_t> asked_ = 0;
};

}  // namespace treadle::backend::cpu
