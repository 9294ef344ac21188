// Lays a plan out on a sheet.
//
// In: a call's leaves and who computes them. Out: rectangles and texts. Read plan_picture() first.
#include "cli/plan_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "plan/chunks.h"

namespace treadle::cli {
namespace {

using distributed::Assignment;
using distributed::PassWork;
using distributed::Piece;
using distributed::Shards;
using layout::Range;
using picture::Colour;

constexpr std::int64_t side = 512;  // of the plot, and its cells at most
constexpr std::int64_t margin = 16, line = picture::letter_height + 10;

// Far apart for neighbours: steps of the golden angle around the circle of hues.
Colour colour_of(int rank, bool moved) {
  const double hue = std::fmod(0.58 + rank * 0.6180339887, 1.0) * 6;
  const double high = moved ? 0.97 : 0.78, low = moved ? 0.72 : 0.25;
  const auto channel = [&](double shift) {
    const double x = std::fmod(hue + shift, 6.0);
    const double share = std::clamp(std::min(x, 4 - x), 0.0, 1.0);
    return static_cast<std::uint8_t>(std::lround(255 * (low + (high - low) * share)));
  };
  return {channel(2), channel(0), channel(4)};
}

constexpr int nobody = -1;

// Cell by cell, who computes the pairs of the query in its middle, if any is visible.
class Cells {
 public:
  Cells(const layout::Mask& mask, const PlannedCall& call, const Assignment& plan, int ranks,
        Executor& executor)
      : call_(call),
        plan_(plan),
        shards_(Shards::even(call.call.queries.count(), ranks)),
        per_row_(per_cell(call.call.queries.count())),
        per_column_(per_cell(call.call.keys.count())),
        rows_(cells(call.call.queries.count(), per_row_)),
        columns_(cells(call.call.keys.count(), per_column_)),
        ranks_(static_cast<std::size_t>(rows_ * columns_), nobody) {
    for (std::size_t pass = 0; pass < call.passes.size(); ++pass) add(pass);
    const layout::Extent extent{.queries = call.call.queries, .keys = call.call.keys};
    const picture::Picture shown =
        picture::draw(mask, extent, 0, 0, {per_row_, per_column_}, executor);
    for (std::size_t cell = 0; cell < ranks_.size(); ++cell)
      if (shown.cells[cell] == layout::BlockKind::empty) ranks_[cell] = nobody;
  }

  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t columns() const { return columns_; }
  [[nodiscard]] int rank(std::int64_t row, std::int64_t column) const {
    return ranks_[static_cast<std::size_t>(row * columns_ + column)];
  }
  // Whether none of the ranks that share their queries has those of the row.
  [[nodiscard]] bool moved(std::int64_t row, int rank) const {
    const int groups = plan_.taken().head_groups;
    return shards_.owner(query(row)) / groups != rank / groups;
  }

 private:
  static std::int64_t per_cell(std::int64_t length) {
    return std::max<std::int64_t>((length + side - 1) / side, 1);
  }
  static std::int64_t cells(std::int64_t length, std::int64_t per_cell) {
    return (length + per_cell - 1) / per_cell;
  }
  [[nodiscard]] std::int64_t query(std::int64_t row) const {
    return std::min(row * per_row_ + per_row_ / 2, call_.call.queries.count() - 1);
  }

  void add(std::size_t pass) {
    const PassWork& work = call_.passes[pass];
    const layout::Tiles& tiles = call_.tiles[pass];
    std::vector<std::int64_t> leaf_of(static_cast<std::size_t>(call_.call.queries.count()));
    for (std::int64_t tile = 0; tile < tiles.count(); ++tile)
      for (std::int64_t i = 0; i < tiles.size(tile); ++i)
        leaf_of[static_cast<std::size_t>(tiles.query(tile, i) - call_.call.queries.begin)] =
            tile / call_.call.tiles_per_leaf[pass];
    std::vector<std::vector<const Piece*>> of_leaf(static_cast<std::size_t>(work.leaves));
    for (const Piece& piece : plan_.pieces) {
      if (piece.pass != static_cast<std::int64_t>(pass) || piece.batch.begin > 0 ||
          piece.key_heads.begin > 0)
        continue;
      for (std::int64_t leaf = piece.leaves.begin; leaf < piece.leaves.end; ++leaf)
        of_leaf[static_cast<std::size_t>(leaf)].push_back(&piece);
    }
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::int64_t leaf = leaf_of[static_cast<std::size_t>(query(row))];
      for (const Piece* piece : of_leaf[static_cast<std::size_t>(leaf)]) {
        Range keys = call_.call.keys;
        if (piece->chunks.count() < work.chunks) {
          const std::int64_t first = plan::chunks_of(keys).begin;
          keys = plan::keys_of_chunks({piece->chunks.begin + first, piece->chunks.end + first});
        }
        for (const layout::Run& run : work.keys[work.list(leaf, 0, 0)])
          fill(row, {std::max(run.begin(), keys.begin), std::min(run.end(), keys.end)},
               piece->rank);
      }
    }
  }

  void fill(std::int64_t row, Range keys, int rank) {
    if (keys.empty()) return;
    const std::int64_t first = (keys.begin - call_.call.keys.begin) / per_column_;
    const std::int64_t last = (keys.end - 1 - call_.call.keys.begin) / per_column_;
    // What an earlier pass looks at is its own.
    std::replace(ranks_.begin() + row * columns_ + first,
                 ranks_.begin() + row * columns_ + last + 1, nobody, rank);
  }

  const PlannedCall& call_;
  const Assignment& plan_;
  Shards shards_;
  std::int64_t per_row_, per_column_, rows_, columns_;
  std::vector<int> ranks_;
};

// The bitmap font has only these.
std::string printable(std::string text) {
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

}  // namespace

picture::Sheet plan_picture(const std::string& title, const layout::Mask& mask,
                            const PlannedCall& call, const Assignment& plan, int ranks,
                            Executor& executor) {
  using Anchor = picture::Text::Anchor;
  const Cells cells(mask, call, plan, ranks, executor);
  const distributed::Candidate& taken = plan.taken();
  const std::string numbers =
      fmt::format("{} ranks, balance {:.3f}, {} head group{}, {}", ranks, taken.balance,
                  taken.head_groups, taken.head_groups == 1 ? "" : "s", name_of(taken.route));
  picture::Sheet sheet;
  sheet.cell_width = std::max<std::int64_t>(side / std::max<std::int64_t>(cells.columns(), 1), 1);
  sheet.cell_height = std::max<std::int64_t>(side / std::max<std::int64_t>(cells.rows(), 1), 1);
  const std::int64_t width = cells.columns() * sheet.cell_width,
                     height = cells.rows() * sheet.cell_height;
  sheet.plot_x = margin + 6 * picture::letter_width;
  sheet.plot_y = margin + 3 * line + 12;
  const std::int64_t longest = static_cast<std::int64_t>(std::max(title.size(), numbers.size()));
  sheet.width = std::max(sheet.plot_x + width, margin + longest * picture::letter_width) + margin +
                3 * picture::letter_width;
  sheet.height = sheet.plot_y + height + 2 * line + margin;
  sheet.rectangles.push_back({0, 0, sheet.width, sheet.height, picture::paper});
  sheet.rectangles.push_back(
      {sheet.plot_x, sheet.plot_y, width, height, picture::colour_of(layout::BlockKind::empty)});
  sheet.texts.push_back({margin, margin, Anchor::left, printable(title)});
  sheet.texts.push_back({margin, margin + line, Anchor::left, numbers});
  for (std::int64_t row = 0; row < cells.rows(); ++row) {
    for (std::int64_t first = 0; first < cells.columns();) {
      const int rank = cells.rank(row, first);
      std::int64_t end = first + 1;
      while (end < cells.columns() && cells.rank(row, end) == rank) ++end;
      if (rank != nobody)
        sheet.rectangles.push_back({sheet.plot_x + first * sheet.cell_width,
                                    sheet.plot_y + row * sheet.cell_height,
                                    (end - first) * sheet.cell_width, sheet.cell_height,
                                    colour_of(rank, cells.moved(row, rank))});
      first = end;
    }
  }
  // Of one colour together: they become one path.
  std::stable_sort(sheet.rectangles.begin() + 2, sheet.rectangles.end(),
                   [](const picture::Rectangle& a, const picture::Rectangle& b) {
                     const auto key = [](Colour c) { return c.red << 16 | c.green << 8 | c.blue; };
                     return key(a.colour) < key(b.colour);
                   });
  const auto label = [&](Range all, bool keys) {
    for (const std::int64_t at : picture::ticks_of(all.count())) {
      const std::int64_t along =
          at * (keys ? width : height) / std::max<std::int64_t>(all.count(), 1);
      if (keys) {
        sheet.texts.push_back({sheet.plot_x + along, sheet.plot_y - picture::letter_height - 4,
                               Anchor::middle, picture::tick_label(at)});
      } else {
        sheet.texts.push_back({sheet.plot_x - 6, sheet.plot_y + along - picture::letter_height / 2,
                               Anchor::right, picture::tick_label(at)});
      }
    }
  };
  label(call.call.keys, true);
  label(call.call.queries, false);
  sheet.texts.push_back({margin, sheet.plot_y + height + line / 2, Anchor::left,
                         "a colour for each rank; light: queries of others"});
  return sheet;
}

}  // namespace treadle::cli
