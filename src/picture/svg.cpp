// Writes a picture as SVG.
//
// In: a sheet. Out: text. Rectangles of one colour that follow each other share one path.
#include <fmt/format.h>

#include "picture/sheet.h"

namespace treadle::picture {
namespace {

constexpr int font_size = 16;
constexpr int baseline = 13;  // below the top of the letters

std::string escaped(std::string_view text) {
  std::string xml;
  for (const char c : text) {
    if (c == '<') {
      xml += "&lt;";
    } else if (c == '>') {
      xml += "&gt;";
    } else if (c == '&') {
      xml += "&amp;";
    } else {
      xml += c;
    }
  }
  return xml;
}

const char* name_of(Text::Anchor anchor) {
  switch (anchor) {
    case Text::Anchor::left: return "start";
    case Text::Anchor::middle: return "middle";
    case Text::Anchor::right: return "end";
  }
  return "start";
}

std::string hex(Colour colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", colour.red, colour.green, colour.blue);
}

}  // namespace

std::string to_svg(const Picture& picture) { return to_svg(compose(picture)); }

std::string to_svg(const Sheet& sheet) {
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" shape-rendering=\"crispEdges\">\n",
      sheet.width, sheet.height);
  const auto& rectangles = sheet.rectangles;
  for (std::size_t i = 0; i < rectangles.size();) {
    const Colour colour = rectangles[i].colour;
    svg += fmt::format("<path fill=\"{}\" d=\"", hex(colour));
    for (; i < rectangles.size() && rectangles[i].colour == colour; ++i) {
      const Rectangle& r = rectangles[i];
      svg += fmt::format("M{} {}h{}v{}h-{}z", r.x, r.y, r.width, r.height, r.width);
    }
    svg += "\"/>\n";
  }
  svg += fmt::format("<g fill=\"{}\" font-family=\"monospace\" font-size=\"{}\">\n", hex(ink),
                     font_size);
  for (const Text& text : sheet.texts) {
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", text.x,
                       text.y + baseline, name_of(text.anchor), escaped(text.text));
  }
  return svg + "</g>\n</svg>\n";
}

}  // namespace treadle::picture
