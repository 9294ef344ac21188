// In: sections. Out: one page of HTML, with its style inside.
#include "cli/explain_page.h"

#include <fmt/core.h>

#include <fstream>

#include "base/error.h"

namespace treadle::cli {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

constexpr const char* style =
    "body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 "
    "1rem; }\n"
    "pre { background: #f4f4f4; padding: 0.7rem; overflow-x: auto; line-height: 1.3; }\n"
    "svg { max-width: 100%; height: auto; }\n"
    "@media (prefers-color-scheme: dark) { body { background: #1e1e24; color: #ddd; } pre { "
    "background: #2a2a32; } svg { background: #fff; } }\n";

}  // namespace

std::string page_of(const std::string& title, const std::vector<Section>& sections) {
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
      "name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>{0}</title>\n<style>\n{1}</style>\n</"
      "head>\n<body>\n<h1>{0}</h1>\n",
      escaped(title), style);
  for (const Section& section : sections) {
    page += fmt::format("<h2>{}</h2>\n", escaped(section.title));
    // The declaration of XML has no place inside of HTML.
    const auto svg = section.svg.find("<svg");
    page += svg != std::string::npos ? section.svg.substr(svg)
                                     : fmt::format("<pre>{}</pre>\n", escaped(section.text));
  }
  return page + "</body>\n</html>\n";
}

void write_page(const std::string& file, const std::string& title,
                const std::vector<Section>& sections) {
  std::ofstream out(file, std::ios::binary);
  out << page_of(title, sections);
  if (!out.flush()) base::fail("explain: --html: {} cannot be written", file);
}

}  // namespace treadle::cli
