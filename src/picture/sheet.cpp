// Composes a sheet, from top to bottom: title, share of work, key axis, cells with the query axis
// at their left, legend.
//
// In: a picture. Out: rectangles and texts, each in its place. Read compose() first.
#include "picture/sheet.h"

#include <fmt/format.h>

#include <algorithm>

namespace treadle::picture {
namespace {

using layout::BlockKind;

using Anchor = Text::Anchor;

constexpr std::int64_t plot_size = 640;  // of the longer side, at most
constexpr std::int64_t thinnest = 64;    // of the shorter side, at least
constexpr std::int64_t margin = 16;
constexpr const char* corner = "q\\kv";  // where the axes meet
constexpr std::int64_t line = letter_height + 10;
constexpr std::int64_t tick = 6;                // length of the lines at the labels
constexpr std::int64_t swatch = 14;             // side of the squares in the legend
constexpr std::int64_t smallest_with_gaps = 8;  // smaller cells touch each other

std::int64_t width_of(std::string_view text) {
  return static_cast<std::int64_t>(text.size()) * letter_width;
}

// What neither the bitmap font nor XML knows is a question mark.
std::string printable(std::string_view text) {
  std::string clean(text);
  for (char& c : clean) {
    if (c == '\n' || c == '\t') c = ' ';
    if (c < ' ' || c > '~') c = '?';
  }
  return clean;
}

std::string shortened(std::string text, std::int64_t width) {
  const std::int64_t letters = std::max<std::int64_t>(width / letter_width, 3);
  if (static_cast<std::int64_t>(text.size()) <= letters) return text;
  return text.substr(0, static_cast<std::size_t>(letters - 3)) + "...";
}

class Composer {
 public:
  explicit Composer(const Picture& picture) : picture_(picture) {}

  Sheet compose() {
    place();
    add_cells();
    add_key_axis();
    add_query_axis();
    add_legend();
    add_text(margin, margin, Anchor::left,
             shortened(printable(picture_.title), sheet_.width - 2 * margin));
    add_text(margin, margin + line, Anchor::left, printable(picture_.work));
    return std::move(sheet_);
  }

 private:
  void place() {
    const std::int64_t longer = std::max({picture_.rows, picture_.columns, std::int64_t{1}});
    const std::int64_t side = std::max<std::int64_t>(plot_size / longer, 1);
    const auto at_least_thin = [&](std::int64_t cells) {
      return cells == 0 ? side : std::max(side, thinnest / cells);
    };
    sheet_.cell_width = at_least_thin(picture_.columns);
    sheet_.cell_height = at_least_thin(picture_.rows);
    width_ = picture_.columns * sheet_.cell_width;
    height_ = picture_.rows * sheet_.cell_height;

    std::int64_t label = 0;
    for (const std::int64_t query : query_ticks()) {
      label = std::max(label, width_of(tick_label(query)));
    }
    sheet_.plot_x = margin + std::max(label + tick + 4, width_of(corner) + letter_width);
    sheet_.plot_y = margin + 2 * line + 12 + line + tick;
    const std::int64_t right = width_of(tick_label(picture_.keys)) / 2;
    sheet_.width = std::max({sheet_.plot_x + width_ + right, margin + width_of(picture_.work),
                             margin + width_of("empty partial full") + 3 * (swatch + 24)}) +
                   margin;
    sheet_.height = sheet_.plot_y + height_ + 20 + swatch + margin;
    for (std::size_t pass = 0; tells_passes() && pass < picture_.pass_names.size(); ++pass) {
      sheet_.width = std::max(sheet_.width, sheet_.plot_x + width_of("partial full") +
                                                2 * (swatch + 8) + 4 * letter_width +
                                                width_of(picture_.pass_names[pass]) + margin);
      sheet_.height += line;
    }
    sheet_.rectangles.push_back({0, 0, sheet_.width, sheet_.height, paper});
  }

  // As many as there is room for.
  [[nodiscard]] std::vector<std::int64_t> query_ticks() const {
    return ticks_of(picture_.queries, std::clamp<std::int64_t>(height_ / line, 1, 8));
  }
  [[nodiscard]] std::vector<std::int64_t> key_ticks() const {
    return ticks_of(picture_.keys, std::clamp<std::int64_t>(width_ / (5 * letter_width), 1, 8));
  }

  [[nodiscard]] bool tells_passes() const { return picture_.pass_names.size() > 1; }

  [[nodiscard]] Colour colour_at(std::int64_t row, std::int64_t column) const {
    const BlockKind kind = picture_.cell(row, column);
    return tells_passes() ? colour_of(kind, picture_.pass(row, column)) : colour_of(kind);
  }

  void add_cells() {
    add_rectangle(sheet_.plot_x, sheet_.plot_y, width_, height_, colour_of(BlockKind::empty));
    const bool gaps = std::min(sheet_.cell_width, sheet_.cell_height) >= smallest_with_gaps;
    for (std::int64_t row = 0; row < picture_.rows; ++row) {
      for (std::int64_t column = 0; column < picture_.columns;) {
        const Colour colour = colour_at(row, column);
        std::int64_t next = column + 1;
        while (!gaps && next < picture_.columns && colour_at(row, next) == colour) ++next;
        const std::int64_t gap = gaps ? 1 : 0;
        if (colour != colour_of(BlockKind::empty)) {
          add_rectangle(
              sheet_.plot_x + column * sheet_.cell_width, sheet_.plot_y + row * sheet_.cell_height,
              (next - column) * sheet_.cell_width - gap, sheet_.cell_height - gap, colour);
        }
        column = next;
      }
    }
  }

  void add_key_axis() {
    const std::int64_t y = sheet_.plot_y;
    add_rectangle(sheet_.plot_x - 1, y - 1, width_ + 1, 1, ink);
    for (const std::int64_t key : key_ticks()) {
      const std::int64_t x =
          sheet_.plot_x + key * sheet_.cell_width / picture_.grid.keys_per_column;
      add_rectangle(x - 1, y - tick, 1, tick, ink);
      add_text(x, y - tick - 4 - letter_height, Anchor::middle, tick_label(key));
    }
    add_text(margin, y - tick - 4 - letter_height, Anchor::left, corner);
  }

  void add_query_axis() {
    const std::int64_t x = sheet_.plot_x;
    add_rectangle(x - 1, sheet_.plot_y - 1, 1, height_ + 1, ink);
    for (const std::int64_t query : query_ticks()) {
      const std::int64_t y =
          sheet_.plot_y + query * sheet_.cell_height / picture_.grid.queries_per_row;
      add_rectangle(x - tick, y - 1, tick, 1, ink);
      // The first label stands beside its cell, where it does not meet those of the keys.
      add_text(x - tick - 4, query == 0 ? y : y - letter_height / 2, Anchor::right,
               tick_label(query));
    }
  }

  void add_legend() {
    std::int64_t x = sheet_.plot_x;
    std::int64_t y = sheet_.plot_y + height_ + 20;
    const auto add = [&](Colour colour, const char* name) {
      add_rectangle(x, y, swatch, swatch, colour);
      add_text(x + swatch + 8, y, Anchor::left, name);
      x += swatch + 8 + width_of(name) + 2 * letter_width;
    };
    add(colour_of(BlockKind::empty), "empty");
    if (!tells_passes()) {
      add(colour_of(BlockKind::partial), "partial");
      add(colour_of(BlockKind::full), "full");
    }
    // Below that a line for each pass.
    for (std::size_t pass = 0; tells_passes() && pass < picture_.pass_names.size(); ++pass) {
      x = sheet_.plot_x;
      y += line;
      add(colour_of(BlockKind::partial, pass), "partial");
      add(colour_of(BlockKind::full, pass), "full");
      add_text(x, y, Anchor::left, printable(picture_.pass_names[pass]));
    }
  }

  void add_rectangle(std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height,
                     Colour colour) {
    sheet_.rectangles.push_back({x, y, width, height, colour});
  }

  void add_text(std::int64_t x, std::int64_t y, Anchor anchor, std::string text) {
    sheet_.texts.push_back({x, y, anchor, std::move(text)});
  }

  const Picture& picture_;
  Sheet sheet_;
  std::int64_t width_ = 0, height_ = 0;  // of all cells
};

}  // namespace

Sheet compose(const Picture& picture) { return Composer(picture).compose(); }

std::vector<std::int64_t> ticks_of(std::int64_t length, std::int64_t most) {
  std::int64_t step = 1;
  while (length / step > most) step *= 2;
  std::vector<std::int64_t> ticks;
  for (std::int64_t at = 0; at <= length; at += step) ticks.push_back(at);
  return ticks;
}

std::string tick_label(std::int64_t position) {
  constexpr std::int64_t kilo = 1024;
  if (position != 0 && position % (kilo * kilo) == 0) {
    return fmt::format("{}M", position / (kilo * kilo));
  }
  if (position >= 16 * kilo && position % kilo == 0) return fmt::format("{}k", position / kilo);
  return fmt::format("{}", position);
}

}  // namespace treadle::picture
