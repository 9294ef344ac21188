// In: a mask. Out: letters of Unicode's braille, each 2 x 4 dots. Cells come from picture::draw.
#include "cli/mask_thumbnail.h"

#include <algorithm>

#include "cli/traced_mask.h"
#include "picture/picture.h"

namespace treadle::cli {
namespace {

constexpr std::int64_t dots = 8;  // in a row, and rows
constexpr std::int64_t letters = 4, lines = 2;
constexpr double dense = 0.25;

// The part of these cells that is visible; half of a cell that is visible in part.
double share_of(const picture::Picture& picture, std::int64_t row, std::int64_t row_end,
                std::int64_t column, std::int64_t column_end) {
  double sum = 0;
  for (std::int64_t i = row; i < row_end; ++i) {
    for (std::int64_t j = column; j < column_end; ++j) {
      switch (picture.cell(i, j)) {
        case layout::BlockKind::empty: break;
        case layout::BlockKind::partial: sum += 0.5; break;
        case layout::BlockKind::full: sum += 1; break;
      }
    }
  }
  return sum / static_cast<double>((row_end - row) * (column_end - column));
}

bool is_set(const picture::Picture& picture, std::int64_t row, std::int64_t rows,
            std::int64_t column) {
  const auto begin = [](std::int64_t i, std::int64_t cells, std::int64_t parts) {
    return std::min(i * cells / parts, cells - 1);
  };
  const std::int64_t top = begin(row, picture.rows, rows);
  const std::int64_t left = begin(column, picture.columns, dots);
  const double share = share_of(picture, top, std::max(top + 1, (row + 1) * picture.rows / rows),
                                left, std::max(left + 1, (column + 1) * picture.columns / dots));
  return share >= dense || (share > 0 && (row + column) % 2 == 0);
}

// U+2800 and a bit for each dot, in UTF-8.
std::string braille(unsigned bits) {
  return {'\xe2', static_cast<char>(0xa0U | (bits >> 6U)), static_cast<char>(0x80U | (bits & 63U))};
}

// The bit of a dot in its letter: the lowest row was added to the alphabet last.
unsigned bit_of(std::int64_t row, std::int64_t column) {
  constexpr unsigned bits[4][2] = {{0, 3}, {1, 4}, {2, 5}, {6, 7}};
  return 1U << bits[row][column];
}

}  // namespace

std::array<std::string, 2> mask_thumbnail(const MaskMod& mask, const Sizes& sizes,
                                          Executor& executor) {
  const layout::Extent extent{sizes.batch, sizes.heads, sizes.queries, sizes.keys};
  const TracedMask traced_mask = traced(mask);
  const picture::Picture picture =
      draw(traced_mask.mask, extent, 0, 0, picture::image_grid(extent), executor);
  const std::int64_t rows = std::min(dots, sizes.queries);

  unsigned bits[lines][letters] = {};
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < dots; ++column) {
      if (is_set(picture, row, rows, column))
        bits[row / 4][column / 2] |= bit_of(row % 4, column % 2);
    }
  }
  std::array<std::string, 2> drawn;
  for (std::int64_t line = 0; line < lines; ++line) {
    for (const unsigned letter : bits[line])
      drawn[static_cast<std::size_t>(line)] += braille(letter);
  }
  return drawn;
}

}  // namespace treadle::cli
