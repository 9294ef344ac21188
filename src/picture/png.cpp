// Writes a picture as PNG.
//
// In: a sheet of rectangles and texts. Out: pixels, in a file.
#include <png.h>

#include <algorithm>

#include "base/error.h"
#include "picture/bitmap_font.h"
#include "picture/sheet.h"

namespace treadle::picture {
namespace {

constexpr std::int64_t dot = 2;  // pixels of a dot of the font, in both directions
static_assert(letter_height == glyph_height * dot && letter_width == (glyph_columns + 1) * dot);

class Canvas {
 public:
  Canvas(std::int64_t width, std::int64_t height)
      : width_(width), height_(height), pixels_(static_cast<std::size_t>(width * height), paper) {}

  // What lies outside is left out.
  void fill(const Rectangle& r) {
    const std::int64_t left = std::max<std::int64_t>(r.x, 0);
    const std::int64_t right = std::min(r.x + r.width, width_);
    for (std::int64_t y = std::max<std::int64_t>(r.y, 0); y < std::min(r.y + r.height, height_);
         ++y) {
      const auto row = pixels_.begin() + y * width_;
      if (left < right) std::fill(row + left, row + right, r.colour);
    }
  }

  void write(const Text& text) {
    // Without the gap behind the last letter.
    const std::int64_t width = static_cast<std::int64_t>(text.text.size()) * letter_width - dot;
    std::int64_t x = text.x;
    if (text.anchor == Text::Anchor::middle) x -= width / 2;
    if (text.anchor == Text::Anchor::right) x -= width;
    for (const char letter : text.text) {
      for (int column = 0; column < glyph_columns; ++column) {
        for (int row = 0; row < glyph_rows; ++row) {
          if (glyph_dot(letter, column, row)) {
            fill({x + column * dot, text.y + row * dot, dot, dot, ink});
          }
        }
      }
      x += letter_width;
    }
  }

  // Three bytes per pixel, as PNG wants them.
  [[nodiscard]] const void* data() const {
    static_assert(sizeof(Colour) == 3);
    return pixels_.data();
  }

 private:
  std::int64_t width_, height_;
  std::vector<Colour> pixels_;
};

}  // namespace

void write_png(const Picture& picture, const std::filesystem::path& path) {
  write_png(compose(picture), path);
}

void write_png(const Sheet& sheet, const std::filesystem::path& path) {
  Canvas canvas(sheet.width, sheet.height);
  for (const Rectangle& rectangle : sheet.rectangles) canvas.fill(rectangle);
  for (const Text& text : sheet.texts) canvas.write(text);

  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(sheet.width);
  image.height = static_cast<png_uint_32>(sheet.height);
  image.format = PNG_FORMAT_RGB;
  if (png_image_write_to_file(&image, path.c_str(), 0, canvas.data(), 0, nullptr) == 0) {
    base::fail("picture: cannot write \"{}\": {}", path.string(), image.message);
  }
}

}  // namespace treadle::picture
