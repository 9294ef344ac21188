// Attention::layout for keys that the caller lists.
//
// In: lists of keys or blocks, shapes, captures. Out: a Layout of the pairs that are listed and that
// the mask shows. Read layout_of() first.
#include <functional>
#include <vector>

#include "api/call.h"
#include "api/check.h"
#include "api/compiled.h"
#include "api/positions.h"
#include "layout/selection.h"
#include "patterns/openai_blocks.h"
#include "treadle/attention.h"

namespace treadle {
namespace {

// Shapes and types of what a layout is for.
struct Shapes3 {
  api::TensorShape q, k, v;

  Shapes3(const TensorSpec& a, const TensorSpec& b, const TensorSpec& c) : q(a), k(b), v(c) {}
  explicit Shapes3(const Inputs& inputs) : q(inputs.q), k(inputs.k), v(inputs.v) {}
};

// What a selection is made for.
struct Wanted {
  layout::Extent extent;
  std::int64_t key_heads;
  const layout::Mask& mask;
  base::Workers workers;
};

using Select = std::function<layout::Selection(const Wanted&)>;

Layout layout_of(const Attention::Compiled& compiled, const Shapes3& shapes, const Call& call,
                 const Select& select) {
  const backend::Sizes sizes = api::check_inputs("layout", shapes.q, shapes.k, shapes.v);
  api::refuse_offsets("layout", call, "lists of keys");
  const std::vector<const Capture*> captures =
      api::bind("layout", compiled.captures, call.captures);
  const backend::Bindings bound = api::bindings_of(compiled.program, captures);
  const base::Workers workers = api::workers_of("layout", call);
  layout::Selection listed =
      select({sizes.extent(), sizes.key_heads, {compiled.program.mask, bound.mask}, workers});
  return compiled.backend->listed_layout(std::move(listed), sizes, bound, workers);
}

Select selected(const KeyLists& keys) {
  return
      [&](const Wanted& w) { return layout::select_keys(keys, w.extent, w.key_heads, w.workers); };
}

Select selected(const BlockListViews& lists) {
  return [&](const Wanted& w) {
    return layout::select_blocks(lists, w.extent, w.key_heads, w.workers);
  };
}

Select selected(const BlockLayout& blocks) {
  return [&](const Wanted& w) {
    return patterns::from_block_layout(blocks, w.mask, w.extent, w.workers);
  };
}

}  // namespace

Layout Attention::layout(const KeyLists& keys, const TensorSpec& q, const TensorSpec& k,
                         const TensorSpec& v, const Call& call) const {
  return layout_of(*compiled_, {q, k, v}, call, selected(keys));
}

Layout Attention::layout(const BlockListViews& lists, const TensorSpec& q, const TensorSpec& k,
                         const TensorSpec& v, const Call& call) const {
  return layout_of(*compiled_, {q, k, v}, call, selected(lists));
}

Layout Attention::layout(const BlockLayout& blocks, const TensorSpec& q, const TensorSpec& k,
                         const TensorSpec& v, const Call& call) const {
  return layout_of(*compiled_, {q, k, v}, call, selected(blocks));
}

Layout Attention::layout(const KeyLists& keys, const Inputs& inputs, const Call& call) const {
  return layout_of(*compiled_, Shapes3(inputs), call, selected(keys));
}

Layout Attention::layout(const BlockListViews& lists, const Inputs& inputs,
                         const Call& call) const {
  return layout_of(*compiled_, Shapes3(inputs), call, selected(lists));
}

Layout Attention::layout(const BlockLayout& blocks, const Inputs& inputs, const Call& call) const {
  return layout_of(*compiled_, Shapes3(inputs), call, selected(blocks));
}

}  // namespace treadle
