// Draws masks as cells, and cells as text. Files are written by png.cpp and svg.cpp.
//
// In: a mask and what a cell stands for. Out: the kind of each cell. Read draw() first.
#include "picture/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "picture/sheet.h"

namespace treadle::picture {
namespace {

using layout::BlockKind;
using layout::blocks_of;

constexpr std::int64_t terminal_rows = 40;
constexpr std::int64_t terminal_letters = 80;
constexpr std::int64_t image_cells = 512;
constexpr std::int64_t fewest_cells = 64;  // along the short side of an image, if there are so many

// What one cell stands for so that there are not too many: a power of two, where masks have
// borders.
std::int64_t per_cell(std::int64_t length, std::int64_t most_cells) {
  const std::int64_t least = std::max<std::int64_t>(blocks_of(length, most_cells), 1);
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(least)));
}

struct Glyphs {
  const char *partial, *full;
};
constexpr std::array<Glyphs, most_passes> pass_glyphs{
    {{"▒", "█"}, {"░", "▓"}, {"o", "O"}, {"x", "X"}}};

const char* glyph_of(BlockKind kind, std::size_t pass) {
  switch (kind) {
    case BlockKind::empty: return "·";
    case BlockKind::partial: return pass_glyphs[pass].partial;
    case BlockKind::full: return pass_glyphs[pass].full;
  }
  return "?";
}

// Labels of the key axis, each over the column that it begins; one that would touch the last is
// left out.
std::string key_axis(const Picture& picture, std::int64_t letters_per_cell) {
  std::string line;
  for (const std::int64_t key : ticks_of(picture.keys)) {
    const auto at = static_cast<std::size_t>(key / picture.grid.keys_per_column * letters_per_cell);
    if (key == picture.keys || key % picture.grid.keys_per_column != 0) continue;
    if (!line.empty() && at < line.size() + 1) continue;
    line.append(at - line.size(), ' ').append(tick_label(key));
  }
  return line;
}

// For each row the label that stands beside it, or nothing.
std::vector<std::string> query_labels(const Picture& picture) {
  std::vector<std::string> labels(static_cast<std::size_t>(picture.rows));
  for (const std::int64_t query : ticks_of(picture.queries)) {
    if (query == picture.queries || query % picture.grid.queries_per_row != 0) continue;
    labels[static_cast<std::size_t>(query / picture.grid.queries_per_row)] = tick_label(query);
  }
  return labels;
}

}  // namespace

Grid terminal_grid(const layout::Extent& extent) {
  return {.queries_per_row = per_cell(extent.queries.count(), terminal_rows),
          .keys_per_column = per_cell(extent.keys.count(), terminal_letters)};
}

Grid image_grid(const layout::Extent& extent) {
  const std::int64_t square =
      per_cell(std::max(extent.queries.count(), extent.keys.count()), image_cells);
  return {.queries_per_row = std::min(square, per_cell(extent.queries.count(), fewest_cells)),
          .keys_per_column = std::min(square, per_cell(extent.keys.count(), fewest_cells))};
}

Picture draw(const layout::Mask& mask, const layout::Extent& extent, std::int64_t b, std::int64_t h,
             const Grid& grid, Executor& executor) {
  check_extent(extent);
  if (b < 0 || b >= extent.batch || h < 0 || h >= extent.heads) {
    base::fail("picture: batch {} and head {} were requested; there are {} and {}", b, h,
               extent.batch, extent.heads);
  }
  const layout::Layout layout = layout::build(
      mask, extent, layout::Tiles({}, extent.queries, grid.queries_per_row), executor);
  return {.queries = extent.queries.count(),
          .keys = extent.keys.count(),
          .grid = grid,
          .rows = layout.tiles().count(),
          .columns = blocks_of(extent.keys.count(), grid.keys_per_column),
          .cells = block_kinds(layout, b, h, grid.keys_per_column, layout::Tails::cut)};
}

void tell_apart(Picture& picture, const std::vector<Pass>& passes, const layout::Extent& extent,
                std::int64_t b, std::int64_t h, Executor& executor) {
  if (passes.size() > most_passes)
    base::fail("picture: {} passes; at most {} are told apart", passes.size(), most_passes);
  picture.passes.assign(picture.cells.size(), 0);
  std::vector<BlockKind> seen(picture.cells.size(), BlockKind::empty);
  for (std::size_t pass = 0; pass < passes.size(); ++pass) {
    picture.pass_names.push_back(passes[pass].name);
    const Picture part = draw(passes[pass].mask, extent, b, h, picture.grid, executor);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (part.cells[i] <= seen[i]) continue;
      seen[i] = part.cells[i];
      picture.passes[i] = static_cast<std::uint8_t>(pass);
    }
  }
}

std::string terminal_legend(const Picture& picture) {
  if (picture.pass_names.size() < 2)
    return fmt::format("· empty  {} partial  {} full\n", pass_glyphs[0].partial,
                       pass_glyphs[0].full);
  std::string text = "· empty\n";
  for (std::size_t pass = 0; pass < picture.pass_names.size(); ++pass) {
    text += fmt::format("{} partial  {} full  {}\n", pass_glyphs[pass].partial,
                        pass_glyphs[pass].full, picture.pass_names[pass]);
  }
  return text;
}

std::string to_terminal(const Picture& picture) {
  // A letter is about twice as high as wide.
  const std::int64_t letters_per_cell =
      2 * picture.columns <= terminal_letters && picture.rows <= terminal_rows ? 2 : 1;
  const std::vector<std::string> labels = query_labels(picture);
  std::size_t margin = 1;
  for (const std::string& label : labels) margin = std::max(margin, label.size());

  std::string text =
      fmt::format("{:>{}} {}\n", "kv", margin + 2, key_axis(picture, letters_per_cell));
  for (std::int64_t row = 0; row < picture.rows; ++row) {
    text += fmt::format("{} {:>{}} ", row == 0 ? 'q' : ' ', labels[static_cast<std::size_t>(row)],
                        margin);
    for (std::int64_t column = 0; column < picture.columns; ++column) {
      for (std::int64_t i = 0; i < letters_per_cell; ++i) {
        text += glyph_of(picture.cell(row, column), picture.pass(row, column));
      }
    }
    text += '\n';
  }
  return text;
}

void check_picture_path(const std::filesystem::path& path) {
  if (path.extension() == ".png" || path.extension() == ".svg") return;
  base::fail("picture: \"{}\" ends in \"{}\"; known are .png and .svg", path.string(),
             path.extension().string());
}

void write_picture(const Picture& picture, const std::filesystem::path& path) {
  write_sheet(compose(picture), path);
}

void write_sheet(const Sheet& sheet, const std::filesystem::path& path) {
  check_picture_path(path);
  if (path.extension() == ".png") return write_png(sheet, path);
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << to_svg(sheet);
  file.close();
  if (!file) base::fail("picture: cannot write \"{}\": {}", path.string(), std::strerror(errno));
}

}  // namespace treadle::picture
