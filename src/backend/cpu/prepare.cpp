// Kernels compiled before the calls that need them.
#include <memory>
#include <vector>

#include "backend/cpu/cpu.h"
#include "base/parallel.h"

namespace treadle::backend::cpu {
namespace {

// The term with queries in their own order, which other lengths may choose; without keys.
Layout::Held::Term in_order(const Layout::Held::Term& term) {
  const layout::Tiles tiles({}, term.layout.extent().queries, term.layout.tiles().height());
  Layout::Held::Term other = term;
  other.layout = layout::Layout(
      term.layout.extent(), tiles, false, false,
      std::vector<std::vector<layout::Run>>(static_cast<std::size_t>(tiles.count())));
  return other;
}

}  // namespace

// The stages of call.cpp up to kernels, for any layout of such a call: tiles of any height, sparse and
// not, all pairs full or some of them hidden, numbers that are not finite.
void Cpu::prepare(const Request& call, bool backward) const {
  if (call.sizes.batch == 0 || call.sizes.heads == 0 || call.sizes.queries.empty()) return;
  const Layout layout =
      call.layout.empty() ? Cpu::layout(call.sizes, call.bound, call.workers) : call.layout;
  const Layout::Held& held = *layout.held();
  run::Missing missing;
  std::vector<std::shared_ptr<const void>> kept;  // until all is compiled
  const auto all = [&](const auto& kernels) {
    all_of(*kernels, !forms_.sees_all, missing);
    kept.push_back(kernels);
  };
  const auto all_for = [&](const Layout::Held::Term& term) {
    const CallFacts facts =
        find_forward_facts(program_, forms_, call.bound, term.layout, term.mask.get());
    const CallFacts backward_facts =
        find_backward_facts(program_, forms_, call.bound, term.layout, term.mask.get());
    for (const bool sparse : {false, true}) {
      ForwardKind kind = kind_of(call, facts, term);
      kind.sparse = sparse;
      all(kernels_.forward(kind));
      if (!backward) continue;
      BackwardKind of{.forward = kind_of(call, backward_facts, term),
                      .derivative_facts = backward_facts.derivative,
                      .adds_up = held.terms.size() > 1};
      of.forward.sparse = sparse;
      for (of.vectors = 1; of.vectors <= plan::most_vectors; ++of.vectors)
        all(kernels_.backward(of));
    }
  };
  for (const Layout::Held::Term& term : held.terms) {
    all_for(term);
    if (term.layout.tiles().order() != layout::Order()) all_for(in_order(term));
  }
  if (decodes(call, held)) {
    const Layout::Held::Term& term = held.terms.front();
    TurnedMods mods(program_, forms_);
    mods.find(call.bound, term.layout.extent());
    if (!mods.facts.checked()) {
      const std::int64_t rows =
          call.sizes.heads / call.sizes.key_heads * call.sizes.queries.count();
      DecodeKind kind;
      kind.forward.target = target_;
      describe(call, mods.facts, rows, kind);
      all(kernels_.decode(kind));
    }
  }
  base::parallel_for(call.workers, missing.count(), [&](std::int64_t i) { missing.prepare(i); });
}

}  // namespace treadle::backend::cpu
