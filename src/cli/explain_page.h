// What `treadle explain` tells, section by section: for a terminal, or as a page of HTML.
#pragma once

#include <string>
#include <vector>

namespace treadle::cli {

struct Section {
  std::string title;
  std::string text;
  std::string svg = {};  // on a page in the place of the text
};

// The page needs nothing but itself.
std::string page_of(const std::string& title, const std::vector<Section>& sections);

// Throws treadle::Error if the file cannot be written.
void write_page(const std::string& file, const std::string& title,
                const std::vector<Section>& sections);

}  // namespace treadle::cli
