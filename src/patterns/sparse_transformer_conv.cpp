// Makes the convolutions of the Sparse Transformer.
//
// In: an image, a filter and a stride. Out: which pixels see each other, as mask and as layout.
// Conv and deconv are one relation between a large and a small image, read from either side.
#include <algorithm>

#include "base/error.h"
#include "patterns/check_parameters.h"
#include "treadle/sparse_transformer.h"

namespace treadle::patterns {
namespace {

using base::fail;

// One direction of the image. Small pixel s covers `filter` large ones from s * stride - pad on.
struct Direction {
  std::int64_t large, small, filter, pad;
};

Direction make_direction(std::string_view call, std::string_view name, std::int64_t length,
                         std::int64_t filter, std::int64_t stride) {
  const std::int64_t small = length / stride;
  for (std::int64_t pad = 0; pad < filter; ++pad) {
    const std::int64_t places = length - filter + 1 + 2 * pad;
    if (places > (small - 1) * stride && places <= small * stride) {
      return {length, small, filter, pad};
    }
  }
  fail("{}: the filter {} is {}, the stride {}; an even filter needs a stride of at least 2", call,
       name, filter, stride);
}

enum class Asks { small, large };  // whose pixels are the queries

struct Image {
  Direction rows, columns;
  std::int64_t stride;
  bool autoregressive;
  Asks asks;
};

Image make_image(std::string_view call, const Conv& pattern, Asks asks) {
  check_at_least(call, "height", pattern.height, 1);
  check_at_least(call, "width", pattern.width, 1);
  check_at_least(call, "filter height", pattern.filter_height, 1);
  check_at_least(call, "filter width", pattern.filter_width, 1);
  check_at_least(call, "stride", pattern.stride, 1);
  check_multiple(call, "width", pattern.width, "stride", pattern.stride);
  const Direction columns =
      make_direction(call, "width", pattern.width, pattern.filter_width, pattern.stride);
  // A single row is a sequence: the stride is along it.
  if (pattern.height == 1) {
    return {{1, 1, 1, 0}, columns, pattern.stride, pattern.autoregressive, asks};
  }
  check_multiple(call, "height", pattern.height, "stride", pattern.stride);
  return {make_direction(call, "height", pattern.height, pattern.filter_height, pattern.stride),
          columns, pattern.stride, pattern.autoregressive, asks};
}

std::int64_t over(std::int64_t a, std::int64_t b) { return a / b; }
Index over(const Index& a, std::int64_t b) { return floor_div(a, b); }

// The relation, in the same words on numbers and on traced indices.
template <class Position>
auto covers(const Direction& axis, std::int64_t stride, const Position& small,
            const Position& large) {
  const auto offset = large - small * stride + axis.pad;
  return offset >= 0 && offset < axis.filter;
}

template <class Position>
auto under_filter(const Image& image, const Position& small, const Position& large) {
  const auto& [rows, columns, stride, autoregressive, asks] = image;
  if (rows.large == 1) return covers(columns, stride, small, large);
  const auto same_rows =
      covers(rows, stride, over(small, columns.small), over(large, columns.large));
  return same_rows && covers(columns, stride, small % columns.small, large % columns.large);
}

template <class Position>
auto in_time(const Image& image, const Position& small, const Position& large) {
  const std::int64_t narrow = image.columns.small;
  const std::int64_t wide = image.columns.large;
  const Position place = image.rows.large == 1 ? small * image.stride
                                               : over(small, narrow) * (image.stride * wide) +
                                                     small % narrow * image.stride;
  return image.asks == Asks::small ? large <= place : large >= place;
}

template <class Position>
auto visible(const Image& image, const Position& q, const Position& kv) {
  const Position& small = image.asks == Asks::small ? q : kv;
  const Position& large = image.asks == Asks::small ? kv : q;
  const auto under = under_filter(image, small, large);
  return image.autoregressive ? under && in_time(image, small, large) : under;
}

// Calls visit(small, large) for each pair under the filter.
template <class Visit>
void for_each_pair(const Image& image, Visit visit) {
  const auto for_covered = [&](const Direction& axis, std::int64_t small, auto&& inner) {
    const std::int64_t first = small * image.stride - axis.pad;
    const std::int64_t end = std::min(first + axis.filter, axis.large);
    for (std::int64_t large = std::max<std::int64_t>(first, 0); large < end; ++large) inner(large);
  };
  for (std::int64_t y = 0; y < image.rows.small; ++y) {
    for (std::int64_t x = 0; x < image.columns.small; ++x) {
      for_covered(image.rows, y, [&](std::int64_t row) {
        for_covered(image.columns, x, [&](std::int64_t column) {
          visit(y * image.columns.small + x, row * image.columns.large + column);
        });
      });
    }
  }
}

// A block is present if any of its pairs is visible.
BlockLayout pixel_layout(std::string_view call, const Image& image, const Blocks& blocks) {
  const std::int64_t small_pixels = image.rows.small * image.columns.small;
  const std::int64_t large_pixels = image.rows.large * image.columns.large;
  const bool small_asks = image.asks == Asks::small;
  const std::int64_t queries = small_asks ? small_pixels : large_pixels;
  const std::int64_t keys = small_asks ? large_pixels : small_pixels;
  const std::int64_t size = blocks.size;
  check_at_least(call, "block size", size, 1);
  check_at_least(call, "number of heads", blocks.heads, 1);
  check_multiple(call, "number of query pixels", queries, "block size", size);
  check_multiple(call, "number of key pixels", keys, "block size", size);

  BlockLayout layout{.block_size = size,
                     .heads = blocks.heads,
                     .lut_heads = 1,
                     .query_blocks = queries / size,
                     .key_blocks = keys / size,
                     .present = std::vector<std::uint8_t>(
                         static_cast<std::size_t>(queries / size * (keys / size))),
                     .mask = [=](const BlockCell& cell) {
                       return visible(image, cell.query_block * size + cell.row,
                                      cell.key_block * size + cell.column);
                     }};
  for_each_pair(image, [&](std::int64_t small, std::int64_t large) {
    const std::int64_t q = small_asks ? small : large;
    const std::int64_t kv = small_asks ? large : small;
    if (!visible(image, q, kv)) return;
    layout.present[static_cast<std::size_t>(q / size * layout.key_blocks + kv / size)] = 1;
  });
  return layout;
}

MaskMod pixel_mask(const Image& image) {
  return [=](Index, Index, Index q, Index kv) { return visible(image, q, kv); };
}

}  // namespace

MaskMod conv(const Conv& pattern) { return pixel_mask(make_image("conv", pattern, Asks::small)); }
MaskMod deconv(const Conv& pattern) {
  return pixel_mask(make_image("deconv", pattern, Asks::large));
}

BlockLayout conv_layout(const Conv& pattern, const Blocks& blocks) {
  return pixel_layout("conv_layout", make_image("conv_layout", pattern, Asks::small), blocks);
}
BlockLayout deconv_layout(const Conv& pattern, const Blocks& blocks) {
  return pixel_layout("deconv_layout", make_image("deconv_layout", pattern, Asks::large), blocks);
}

}  // namespace treadle::patterns
