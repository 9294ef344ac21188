// Positions: where the rows of each batch entry stand in their sequences (Call::q_offsets).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "layout/range.h"
#include "treadle/attention.h"

namespace treadle::api {

// Positions are between -last_position and last_position.
inline constexpr std::int64_t last_position = std::numeric_limits<std::int32_t>::max();

// Batch entries, one after the other, whose first query and first key stand at the same positions:
// to a backend, a call of its own. Rows before position 0 are padding and belong to no part.
struct Part {
  layout::Range batch, query_rows, key_rows;
  backend::Sizes sizes;  // of these, with their positions

  // Whether it is all of a call.
  [[nodiscard]] bool is_whole(const backend::Sizes& all) const {
    return batch == layout::Range(all.batch) && query_rows == all.queries && key_rows == all.keys;
  }
};

// The parts of a call whose sizes are checked, in the order of the batch; at least one. Throws
// treadle::Error for offsets that are no positions.
std::vector<Part> parts_of(std::string_view name, const Call& call, const backend::Sizes& sizes);
// The same into `parts`, whose memory is used again.
void find_parts(std::string_view name, const Call& call, const backend::Sizes& sizes,
                std::vector<Part>& parts);

// The part that is all of them; throws if there are several. `what` begins the end of the message,
// as in "a layout is".
const Part& only_part(std::string_view name, const std::vector<Part>& parts, std::string_view what);

// Throws if the call has offsets: `what` counts rows.
void refuse_offsets(std::string_view name, const Call& call, std::string_view what);

// Some batch entries and some rows of a tensor whose axes 0 and 2 are those.
template <class Void>
BasicView<Void> rows_of(const BasicView<Void>& view, layout::Range batch, layout::Range rows) {
  Dims shape = view.shape();
  shape[0] = batch.count();
  shape[2] = rows.count();
  using Byte = std::conditional_t<BasicView<Void>::is_const, const std::byte, std::byte>;
  auto* data = static_cast<Byte*>(view.data());
  if (count_of(shape) > 0) {
    data += (batch.begin * view.stride(0) + rows.begin * view.stride(2)) *
            static_cast<std::int64_t>(size_of(view.dtype()));
  }
  return {data, view.dtype(), std::move(shape), view.strides()};
}

}  // namespace treadle::api
