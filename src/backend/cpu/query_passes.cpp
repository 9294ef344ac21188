// The passes that a mask takes, before anything is laid out.
#include "backend/cpu/cpu.h"
#include "backend/cpu/mask_passes.h"
#include "base/hash.h"
#include "jit/build_id.h"
#include "layout/build.h"
#include "plan/tile_plan.h"

namespace treadle::backend::cpu {

class Cpu::Passes final : public QueryPasses {
 public:
  Passes(const Cpu& cpu, const Sizes& sizes, const Bindings& bound, const base::Workers& workers)
      : cpu_(cpu),
        sizes_(sizes),
        chosen_(choose_passes({cpu.program_.mask, bound.mask}, cpu.terms_.find(bound.mask),
                              sizes.extent(), plan::tile_weights(cpu.target_, sizes.compute),
                              cpu.choices_, workers)) {}

  [[nodiscard]] std::size_t count() const override { return chosen_.terms.size(); }

  [[nodiscard]] layout::Tiles tiles(std::size_t pass) const override {
    const layout::Choice& choice = chosen_.terms[pass].choice;
    return {choice.order, sizes_.queries, choice.height};
  }

  [[nodiscard]] std::int64_t tiles_per_leaf(std::size_t pass) const override {
    const std::int64_t height = chosen_.terms[pass].choice.height;
    const int vectors = plan::vectors_for(cpu_.target_, sizes_.compute, height);
    const plan::TilePlan plan =
        plan::plan_tile(cpu_.target_, sizes_.compute, sizes_.dim, sizes_.value_dim, vectors);
    if (height > plan.width()) base::internal_error("tiles of {} are more than a kernel's", height);
    return plan::tiles_per_leaf(plan);
  }

  [[nodiscard]] Layout build(std::size_t pass, const layout::Extent& extent,
                             const layout::Tiles& some,
                             const base::Workers& workers) const override {
    const ChosenTerm& term = chosen_.terms[pass];
    auto held = std::make_shared<Layout::Held>();
    held->terms.push_back({layout::build(term.mask, extent, some, workers), term.term});
    held->mask = cpu_.mask_;
    return Layout(std::move(held));
  }

 private:
  const Cpu& cpu_;
  const Sizes sizes_;
  const ChosenPasses chosen_;
};

std::unique_ptr<QueryPasses> Cpu::passes(const Sizes& sizes, const Bindings& bound,
                                         const base::Workers& workers) const {
  return std::make_unique<Passes>(*this, sizes, bound, workers);
}

// Tiles, and so sums over queries, depend on how fast tiles of each height are.
std::string Cpu::machine() const {
  std::string name = target_.name;
  if (target_.half_wide) name += ", half-wide products";
  if (target_.wide_loads) name += ", wide loads";
  // Other emitters make other kernels. The id is of bytes, and messages of digits.
  const std::string build = jit::build_id();
  if (!build.empty())
    name +=
        ", build " + base::to_string(base::hash_of(std::as_bytes(std::span(build)))).substr(0, 16);
  return name;
}

}  // namespace treadle::backend::cpu
