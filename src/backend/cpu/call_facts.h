// What is proven about the mods of one call: part of what its kernels depend on.
#pragma once

#include <vector>

#include "backend/backend.h"
#include "backend/mask_term.h"
#include "layout/layout.h"
#include "plan/mod_facts.h"
#include "plan/score_form.h"

namespace treadle::backend::cpu {

struct CallFacts {
  plan::ModFacts score, mask, derivative;
  // Of a pass over a term: its kernels look at MaskTerm::checked.
  bool checked_term = false;

  // Whether the call may fail at a pair.
  [[nodiscard]] bool checked() const {
    const auto is_checked = [](const plan::ModFacts& facts) {
      return facts.reads == plan::Reads::checked;
    };
    return is_checked(score) || is_checked(mask) || is_checked(derivative);
  }
};

// The program as kernels evaluate it.
struct Forms {
  plan::ScoreForm score;
  std::vector<std::size_t> score_slots;  // of the score mod's, those that `score` reads
  bool sees_all = false;                 // the mask is true
  bool derives = false;                  // the derivative is evaluated
  // With q and kv exchanged, for kernels with keys in the lanes.
  plan::ScoreForm turned_score;
  ir::Graph turned_mask;
};

Forms forms_of(const Program& program);

// Captures of the score's form.
std::vector<ConstView> score_memory(const Forms& forms, const Bindings& bound);

// Captures of the exchanged graphs, and facts about them. Keeps its memory from call to call.
class TurnedMods {
 public:
  // Both outlive this.
  TurnedMods(const Program& program, const Forms& forms);

  void find(const Bindings& bound, const layout::Extent& extent);

  std::vector<ConstView> score_memory, mask_memory;
  CallFacts facts;

 private:
  const Forms& forms_;
  std::vector<std::size_t> score_slots_, mask_slots_;  // of the program's, those of the exchanged
  plan::FactFinder score_, mask_;
};

// Of a pass with this layout, over a term or (null) the whole mask.
CallFacts find_forward_facts(const Program& program, const Forms& forms, const Bindings& bound,
                             const layout::Layout& layout, const MaskTerm* term = nullptr);
CallFacts find_backward_facts(const Program& program, const Forms& forms, const Bindings& bound,
                              const layout::Layout& layout, const MaskTerm* term = nullptr);

// A term as it has to be looked at: whether there may be poison is asked of the whole mask, too.
struct LookedAtTerm {
  bool checked = false;
  plan::ModFacts facts;
};
LookedAtTerm look_at(const MaskTerm& term, const ir::Graph& mask,
                     const std::vector<ConstView>& memory, const layout::Extent& extent,
                     const layout::Order& order);

}  // namespace treadle::backend::cpu
