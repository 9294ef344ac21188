// Pictures of masks: for a terminal, as PNG, as SVG.
//
//   Picture picture = draw(mask, extent, 0, 0, terminal_grid(extent), executor);
//   picture.work = "visible 50.8 %";
//   fmt::print("{}", to_terminal(picture));
//   write_picture(picture, "causal.png");      or .svg
//
// Queries go down, keys to the right. A cell stands for some queries x some keys, and is exact: it
// is empty iff no pair of it is visible, and full iff all are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "layout/block_kinds.h"
#include "layout/build.h"
#include "treadle/executor.h"

namespace treadle::picture {

// How much one cell stands for.
struct Grid {
  std::int64_t queries_per_row = 1, keys_per_column = 1;
};

// At most 40 rows of at most 80 letters.
Grid terminal_grid(const layout::Extent& extent);
// At most 512 x 512 cells, square ones unless that would leave too few rows or columns to see.
Grid image_grid(const layout::Extent& extent);

struct Picture {
  std::string title;  // the mask
  std::string work;   // the share of work that it leaves
  std::int64_t queries = 0, keys = 0;
  Grid grid;
  std::int64_t rows = 0, columns = 0;
  std::vector<layout::BlockKind> cells;  // row by row
  // If passes are told apart: their names, and for each cell which of them it belongs to.
  std::vector<std::string> pass_names = {};
  std::vector<std::uint8_t> passes = {};

  [[nodiscard]] layout::BlockKind cell(std::int64_t row, std::int64_t column) const {
    return cells[static_cast<std::size_t>(row * columns + column)];
  }
  [[nodiscard]] std::size_t pass(std::int64_t row, std::int64_t column) const {
    return passes.empty() ? 0 : passes[static_cast<std::size_t>(row * columns + column)];
  }
};

// One batch and head. Title and work are left empty.
Picture draw(const layout::Mask& mask, const layout::Extent& extent, std::int64_t b, std::int64_t h,
             const Grid& grid, Executor& executor);

// A part of the mask that is drawn in shades of its own.
struct Pass {
  std::string name;
  layout::Mask mask;
};
inline constexpr std::size_t most_passes = 4;

// Tells passes apart in a picture of the mask that they are parts of. A cell belongs to the first
// pass that fills it, else to the first that shows some of it.
void tell_apart(Picture& picture, const std::vector<Pass>& passes, const layout::Extent& extent,
                std::int64_t b, std::int64_t h, Executor& executor);

// Cells and axes, without title and work: '·' empty, '▒' partial, '█' full; other passes than the
// first have other glyphs.
std::string to_terminal(const Picture& picture);
// "· empty  ▒ partial  █ full", or a line for each pass.
std::string terminal_legend(const Picture& picture);

std::string to_svg(const Picture& picture);
// Throws treadle::Error if the file cannot be written.
void write_png(const Picture& picture, const std::filesystem::path& path);

// The ending says how. Throws treadle::Error for other endings; check_picture_path does only that.
void write_picture(const Picture& picture, const std::filesystem::path& path);
void check_picture_path(const std::filesystem::path& path);

}  // namespace treadle::picture
