// Reads masks that are a captured bool array.
//
// In: the array and a tile. Out: its runs, in one pass over the tile's rows.
#include "layout/dense.h"

#include <algorithm>
#include <cstring>

namespace treadle::layout {
namespace {

using ir::Input;
using ir::Node;
using ir::Op;

constexpr int batch_axis = 0;
constexpr int head_axis = 1;
constexpr int fixed_axis = 2;

// For each key, whether some and whether all rows see it, one byte each.
struct Seen {
  std::vector<unsigned char> some, all;
};

void add_row(Seen& seen, const unsigned char* row, std::int64_t stride) {
  const std::size_t keys = seen.some.size();
  unsigned char* some = seen.some.data();
  unsigned char* all = seen.all.data();
  if (stride == 1) {
    for (std::size_t i = 0; i < keys; ++i) {
      const unsigned char here = row[i] != 0;
      some[i] |= here;
      all[i] &= here;
    }
    return;
  }
  for (std::size_t i = 0; i < keys; ++i) {
    const unsigned char here = row[static_cast<std::int64_t>(i) * stride] != 0;
    some[i] |= here;
    all[i] &= here;
  }
}

// The first position from `at` on where states[i] differs from states[at]; eight at a time.
std::size_t end_of_equal(const std::vector<unsigned char>& states, std::size_t at) {
  const unsigned char value = states[at];
  const std::uint64_t pattern = 0x0101010101010101u * value;
  std::uint64_t word = 0;
  while (at + 8 <= states.size()) {
    std::memcpy(&word, states.data() + at, 8);
    if (word != pattern) break;
    at += 8;
  }
  while (at < states.size() && states[at] == value) ++at;
  return at;
}

}  // namespace

std::optional<DenseMask> as_dense(const Mask& mask, const Extent& extent) {
  const Node& load = mask.graph[mask.graph.output()];
  if (load.op != Op::load || load.operands.size() < 2) return std::nullopt;
  DenseMask dense{
      .array = mask.memory[static_cast<std::size_t>(load.slot)], .leading = {}, .fixed = {}};
  const auto is_input = [&](std::size_t i, Input input) {
    const Node& index = mask.graph[load.operands[i]];
    return index.op == Op::input && index.input == input;
  };
  const auto fits = [&](std::size_t i, std::int64_t length) {
    return dense.array.shape()[i] >= length;
  };
  const std::size_t last = load.operands.size() - 1;
  if (!is_input(last - 1, Input::q) || !is_input(last, Input::kv)) return std::nullopt;
  if (!fits(last - 1, extent.queries.end) || !fits(last, extent.keys.end)) return std::nullopt;
  for (std::size_t i = 0; i + 1 < last; ++i) {
    const Node& index = mask.graph[load.operands[i]];
    std::int64_t fixed = 0;
    int kind = fixed_axis;
    if (is_input(i, Input::b) && fits(i, extent.first_b + extent.batch)) {
      kind = batch_axis;
    } else if (is_input(i, Input::h) && fits(i, extent.first_h + extent.heads)) {
      kind = head_axis;
    } else if (index.op == Op::constant && index.integer() >= 0 && fits(i, index.integer() + 1)) {
      fixed = index.integer();
    } else {
      return std::nullopt;
    }
    dense.leading.push_back(kind);
    dense.fixed.push_back(fixed);
  }
  return dense;
}

void classify_dense(const DenseMask& mask, const Tiles& tiles, std::int64_t b, std::int64_t h,
                    std::int64_t tile, Range keys, std::vector<Run>& runs) {
  const ConstView& array = mask.array;
  std::int64_t start = keys.begin * array.stride(array.rank() - 1);
  for (std::size_t i = 0; i < mask.leading.size(); ++i) {
    const std::int64_t index = mask.leading[i] == batch_axis  ? b
                               : mask.leading[i] == head_axis ? h
                                                              : mask.fixed[i];
    start += index * array.strides()[i];
  }
  const auto* bytes = static_cast<const unsigned char*>(array.data()) + start;
  const std::int64_t row_stride = array.stride(array.rank() - 2);
  const std::int64_t key_stride = array.stride(array.rank() - 1);
  Seen seen{std::vector<unsigned char>(static_cast<std::size_t>(keys.count()), 0),
            std::vector<unsigned char>(static_cast<std::size_t>(keys.count()), 1)};
  for (std::int64_t i = 0; i < tiles.size(tile); ++i) {
    add_row(seen, bytes + tiles.query(tile, i) * row_stride, key_stride);
  }
  // 0: seen by none, 1: by some, 2: by all.
  std::vector<unsigned char>& states = seen.some;
  for (std::size_t i = 0; i < states.size(); ++i)
    states[i] = static_cast<unsigned char>(states[i] + seen.all[i]);
  for (std::size_t at = 0; at < states.size();) {
    const std::size_t end = end_of_equal(states, at);
    if (states[at] != 0) {
      append(runs, keys.begin + static_cast<std::int64_t>(at),
             keys.begin + static_cast<std::int64_t>(end), states[at] == 2);
    }
    at = end;
  }
}

}  // namespace treadle::layout
