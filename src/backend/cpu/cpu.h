// Backend::cpu: kernels compiled for this machine. call.cpp shows a call, stage by stage.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/call_facts.h"
#include "backend/cpu/kept_choices.h"
#include "backend/cpu/kernel_sets.h"
#include "backend/cpu/process.h"
#include "backend/cpu/term_finder.h"
#include "backend/held_layout.h"
#include "base/idle.h"
#include "plan/target.h"
#include "run/key_source.h"
#include "run/poisoned.h"

namespace treadle::backend::cpu {

class Cpu final : public Backend {
 public:
  // See make_cpu.h. What calls share outlives this.
  Cpu(Program program, const std::string& target, Process& process);
  ~Cpu() override;

  [[nodiscard]] Layout layout(const Sizes& sizes, const Bindings& bound,
                              const base::Workers& workers) const override;
  [[nodiscard]] Layout listed_layout(layout::Selection listed, const Sizes& sizes,
                                     const Bindings& bound,
                                     const base::Workers& workers) const override;
  void forward(std::span<const ForwardRequest> requests) const override;
  void backward(const BackwardRequest& call) const override;
  [[nodiscard]] std::string machine() const override;
  [[nodiscard]] std::unique_ptr<QueryPasses> passes(const Sizes& sizes, const Bindings& bound,
                                                    const base::Workers& workers) const override;
  BackwardEnd backward_part(const BackwardRequest& call, run::Nonfinite nonfinite) const override;
  void prepare(const Request& call, bool backward) const override;
  [[nodiscard]] std::int64_t forward_scratch(const Sizes& sizes) const override;
  [[nodiscard]] std::int64_t forward_kept(const Sizes& sizes) const override;
  [[nodiscard]] std::int64_t backward_scratch(const Sizes& sizes) const override;

 private:
  class ForwardCall;
  class BackwardCall;
  class Passes;
  class DecodeCall;
  class Layouts;
  struct Room;

  // Whether calls of so many queries may decode, which have one tile.
  [[nodiscard]] bool are_few(const Sizes& sizes) const {
    return sizes.queries.count() <= target_.lanes(sizes.compute);
  }
  // Whether a call with this layout decodes, if its mods cannot fail.
  [[nodiscard]] bool decodes(const Request& call, const Layout::Held& held) const;
  // Of a kind, all that the call says: not its target, its mask or whether it is sparse.
  void describe(const Request& call, const CallFacts& facts, ForwardKind& kind) const;
  void describe(const Request& call, const CallFacts& turned, std::int64_t rows,
                DecodeKind& kind) const;
  [[nodiscard]] Layout built_layout(const Sizes& sizes, const Bindings& bound,
                                    const base::Workers& workers) const;
  [[nodiscard]] ForwardKind kind_of(const Request& call, const CallFacts& facts,
                                    const Layout::Held::Term& term) const;
  [[nodiscard]] std::vector<std::int64_t> mask_captures(const Request& call,
                                                        const ForwardKind& kind) const;
  [[noreturn]] void explain(const Request& call, const run::KeySource& keys,
                            const Layout::Held& held, const run::Poisoned& where) const;

  // Of the score mod and the mask, whatever a call is like.
  [[nodiscard]] plan::ModScratch most_scratch(const Sizes& sizes) const;
  // Of a thread that decodes; 0 if such calls do not.
  [[nodiscard]] std::int64_t decode_scratch(const Sizes& sizes) const;

  Process& process_;
  const Program program_;
  const base::Hash mask_;  // of its mask
  const Forms forms_;
  const plan::Target target_;
  mutable TermFinder terms_;
  mutable KeptChoices choices_;
  mutable KernelSets kernels_;
  mutable base::Idle<Room> rooms_;  // of forward calls
};

// The machine's own target for an empty name, else one that it can run; throws treadle::Error.
plan::Target target_named(const std::string& name);

}  // namespace treadle::backend::cpu
