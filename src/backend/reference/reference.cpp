// Calls on the dense reference: results are computed in private memory, then copied to the caller.
#include "backend/reference/reference.h"

#include <algorithm>

#include "backend/held_layout.h"
#include "backend/reference/visible_mask.h"
#include "base/copy.h"
#include "base/element.h"
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
    base::fail("layout: Backend::reference does not use layouts; Backend::cpu does");
  }
  [[nodiscard]] Layout listed_layout(layout::Selection listed, const Sizes& sizes,
                                     const Bindings& bound,
                                     const base::Workers& workers) const override;
  void forward(std::span<const ForwardRequest> requests) const override;
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
    Tensor k, v;  // of keys that lie in pages
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

// The keys or values of a sequence that lie in pages: [1, key heads, keys, dim], in their own type or,
// multiplied with their scales, in f32.
Tensor rows_of_pages(const ConstView& pool, const Pages& pages, const ConstView* scales,
                     layout::Range positions) {
  const std::int64_t first = positions.begin - pages.first, keys = positions.count();
  const std::int64_t heads = pool.size(1), page_size = pool.size(2), dim = pool.size(3);
  const DType type = scales == nullptr ? pool.dtype() : DType::f32;
  Tensor rows(type, {1, heads, keys, dim});
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t key = 0; key < keys; ++key) {
      // The table was checked, but others may write to it.
      const std::int64_t page = std::clamp<std::int64_t>(
          pages.table[(first + key) / page_size * pages.stride], 0, pool.size(0) - 1);
      const std::int64_t in_page = (first + key) % page_size;
      const std::int64_t from =
          page * pool.stride(0) + h * pool.stride(1) + in_page * pool.stride(2);
      for (std::int64_t d = 0; d < dim; ++d) {
        double number = base::load_double(pool.data(), pool.dtype(), from + d);
        if (scales != nullptr) {
          const std::int64_t at =
              page * scales->stride(0) + h * scales->stride(1) + in_page * scales->stride(2);
          const auto scale = static_cast<float>(base::load_double(scales->data(), DType::f32, at));
          number = static_cast<double>(static_cast<float>(number) * scale);
        }
        base::store_double(rows.view().data(), type, (h * keys + key) * dim + d, number);
      }
    }
  }
  return rows;
}

Reference::Posed Reference::pose(const Request& request) const {
  Posed posed{{.q = request.inputs.q,
               .k = request.inputs.k,
               .v = request.inputs.v,
               .scale = request.scale,
               .score_mod = {program_.score_mod, request.bound.score_mod},
               .mask = {program_.mask, request.bound.mask},
               .sinks = request.sinks,
               .dropout = request.dropout,
               .first_b = request.sizes.first_b,
               .first_q = request.sizes.queries.begin,
               .first_kv = request.sizes.keys.begin},
              Tensor(),
              Tensor(),
              Tensor()};
  if (const Pages* pages = request.pages) {
    const layout::Range keys = request.sizes.keys;
    posed.k = rows_of_pages(request.inputs.k, *pages, pages->k_scales, keys);
    posed.v = rows_of_pages(request.inputs.v, *pages, pages->v_scales, keys);
    posed.problem.k = posed.k;
    posed.problem.v = posed.v;
  }
  if (request.layout.empty()) return posed;
  if (!request.layout.held()->listed)
    base::fail("{}: a layout was passed, but Backend::reference does not use layouts",
               request.name);
  VisibleMask visible =
      visible_mask(request.layout.held()->terms.front().layout, posed.problem.mask);
  posed.problem.mask = std::move(visible.bound);
  posed.kinds = std::move(visible.kinds);
  return posed;
}

void Reference::forward(std::span<const ForwardRequest> requests) const {
  std::vector<dense::Forward> all;
  for (const ForwardRequest& request : requests)
    all.push_back(dense::forward(pose(request).problem, request.workers));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const ForwardViews& results = requests[i].results;
    const ConstView out = all[i].out, lse = all[i].lse, max = all[i].max;
    base::copy(results.out, out);
    if (results.lse) base::copy(*results.lse, lse);
    if (results.max) base::copy(*results.max, max);
  }
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
