// Attention::block_lists, Attention::block_layout and Layout::block_lists: what is visible, in the
// forms of FlexAttention and blocksparse.
//
// In: a compiled mask or a Layout, shapes, captures. Out: lists or a layout of blocks.
#include "layout/block_lists.h"

#include <optional>

#include "api/call.h"
#include "api/check.h"
#include "api/compiled.h"
#include "api/positions.h"
#include "backend/held_layout.h"
#include "base/error.h"
#include "patterns/openai_blocks.h"
#include "treadle/attention.h"

namespace treadle {
namespace {

// A mask with its captures, and where it is looked at.
struct Looked {
  layout::Mask mask;
  layout::Extent extent;
};

Looked look(std::string_view name, const Attention::Compiled& compiled, const api::TensorShape& q,
            const api::TensorShape& k, const api::TensorShape& v, const Call& call) {
  const backend::Sizes sizes = api::check_inputs(name, q, k, v);
  api::refuse_offsets(name, call, "blocks");
  api::check_layout(name, compiled.mask, sizes, call.layout);
  const std::vector<const Capture*> bound = api::bind(name, compiled.captures, call.captures);
  return {{compiled.program.mask, api::bindings_of(compiled.program, bound).mask}, sizes.extent()};
}

BlockLists lists_of(const BlockListOptions& options, const Looked& looked, const Call& call) {
  if (!call.layout.empty()) return call.layout.block_lists(options);
  return layout::to_block_lists(looked.mask, looked.extent, options,
                                api::workers_of("block_lists", call));
}

BlockLayout blocks_of(std::int64_t block_size, const Looked& looked, const Call& call) {
  const base::Workers workers = api::workers_of("block_layout", call);
  // Several passes know less than the mask does.
  if (!call.layout.empty() && call.layout.held()->terms.size() == 1) {
    return patterns::to_block_layout(looked.mask, call.layout.held()->terms.front().layout,
                                     block_size, workers);
  }
  BlockLayout{.block_size = block_size, .heads = 1}.check();  // before tiles are made of it
  const layout::Tiles tiles({}, looked.extent.queries, block_size);
  return patterns::to_block_layout(
      looked.mask, layout::build(looked.mask, looked.extent, tiles, workers), block_size, workers);
}

}  // namespace

BlockLists Layout::block_lists(const BlockListOptions& options) const {
  if (empty()) base::fail("block_lists: the layout is empty; Attention::layout makes one");
  const layout::Extent& extent = held_->extent();
  if (extent.queries.begin != 0 || extent.keys.begin != 0) {
    base::fail(
        "block_lists: the layout's queries begin at position {}, its keys at {}; blocks count rows",
        extent.queries.begin, extent.keys.begin);
  }
  const std::optional<layout::Selection>& listed = held_->listed;
  return layout::to_block_lists(held_->layouts(), listed ? &*listed : nullptr, options,
                                api::workers_of("block_lists", {}));
}

BlockLists Attention::block_lists(const BlockListOptions& options, const TensorSpec& q,
                                  const TensorSpec& k, const TensorSpec& v,
                                  const Call& call) const {
  return lists_of(options, look("block_lists", *compiled_, q, k, v, call), call);
}

BlockLists Attention::block_lists(const BlockListOptions& options, const Inputs& inputs,
                                  const Call& call) const {
  return lists_of(options, look("block_lists", *compiled_, inputs.q, inputs.k, inputs.v, call),
                  call);
}

BlockLayout Attention::block_layout(std::int64_t block_size, const TensorSpec& q,
                                    const TensorSpec& k, const TensorSpec& v,
                                    const Call& call) const {
  return blocks_of(block_size, look("block_layout", *compiled_, q, k, v, call), call);
}

BlockLayout Attention::block_layout(std::int64_t block_size, const Inputs& inputs,
                                    const Call& call) const {
  return blocks_of(block_size, look("block_layout", *compiled_, inputs.q, inputs.k, inputs.v, call),
                   call);
}

}  // namespace treadle
