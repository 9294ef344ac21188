// A picture as it is put on paper, once for all kinds of files: rectangles, and texts on top.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "picture/picture.h"

namespace treadle::picture {

struct Colour {
  std::uint8_t red = 0, green = 0, blue = 0;

  bool operator==(const Colour&) const = default;
};

// Blue and orange also differ for those who do not see red and green.
inline constexpr Colour paper{255, 255, 255};
inline constexpr Colour ink{33, 37, 41};
inline constexpr Colour colour_of(layout::BlockKind kind) {
  switch (kind) {
    case layout::BlockKind::empty: return {233, 236, 239};
    case layout::BlockKind::partial: return {240, 160, 60};
    case layout::BlockKind::full: return {36, 91, 142};
  }
  return ink;
}

// Of a picture that tells passes apart: a colour for each, light where it is partial.
inline constexpr Colour colour_of(layout::BlockKind kind, std::size_t pass) {
  constexpr std::array<std::array<Colour, 2>, most_passes> shades{
      {{{{120, 170, 216}, {36, 91, 142}}},
       {{{244, 178, 100}, {214, 112, 16}}},
       {{{96, 194, 156}, {0, 128, 96}}},
       {{{196, 148, 206}, {128, 64, 140}}}}};
  if (kind == layout::BlockKind::empty) return colour_of(kind);
  return shades[pass][kind == layout::BlockKind::full ? 1 : 0];
}

struct Rectangle {
  std::int64_t x = 0, y = 0, width = 0, height = 0;
  Colour colour;
};

struct Text {
  enum class Anchor : std::uint8_t { left, middle, right };

  std::int64_t x = 0, y = 0;  // of the anchor, and the top of the letters
  Anchor anchor = Anchor::left;
  std::string text;  // printable ASCII
};

// Every letter takes so much room.
inline constexpr std::int64_t letter_width = 12;
inline constexpr std::int64_t letter_height = 14;

struct Sheet {
  std::int64_t width = 0, height = 0;
  std::int64_t plot_x = 0, plot_y = 0;  // where the cells begin
  std::int64_t cell_width = 1, cell_height = 1;
  std::vector<Rectangle> rectangles;  // later ones lie above earlier ones
  std::vector<Text> texts;
};

Sheet compose(const Picture& picture);

std::string to_svg(const Sheet& sheet);
void write_png(const Sheet& sheet, const std::filesystem::path& path);
// As write_picture.
void write_sheet(const Sheet& sheet, const std::filesystem::path& path);

// Positions along an axis that deserve a label: multiples of a power of two that cut it into at
// most so many parts.
std::vector<std::int64_t> ticks_of(std::int64_t length, std::int64_t most = 8);
// "512", "64k", "1M"; k is 1024.
std::string tick_label(std::int64_t position);

}  // namespace treadle::picture
