// docs/patterns.md shows every pattern as it is: each call with the picture that it makes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>

#include "mask_picture.h"
#include "paths.h"
#include "treadle/treadle.h"

namespace treadle::patterns {
namespace {

using test::Frame;

std::string page() {
  std::ifstream file(test::project_folder() / "docs" / "patterns.md");
  EXPECT_TRUE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

// Pictures side by side, as the page has them: first the calls, named a, b, c, then the pictures.
class Sheet {
 public:
  void add(const std::string& call, const MaskMod& mask, const Frame& frame) {
    const auto width = static_cast<std::size_t>(frame.keys) + 2;
    const std::string name(1, static_cast<char>('a' + count_++));
    calls_ += name + "  " + call + "\n";
    const test::Picture rows = test::picture(mask, frame);
    lines_.resize(std::max(lines_.size(), rows.size() + 1));
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      std::string part = i == 0 ? name : i <= rows.size() ? rows[i - 1] : "";
      part.resize(width, ' ');
      lines_[i].resize(width_, ' ');
      lines_[i] += part;
    }
    width_ += width;
  }

  [[nodiscard]] std::string text() const {
    std::string text = "```\n" + calls_ + "\n";
    for (const std::string& line : lines_) {
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text + "```\n";
  }

 private:
  int count_ = 0;
  std::size_t width_ = 0;
  std::string calls_;
  std::vector<std::string> lines_;
};

#define SHOW(sheet, frame, ...) sheet.add(#__VA_ARGS__, __VA_ARGS__, frame)

constexpr Frame square{.queries = 12, .keys = 12};

TEST(PatternsPage, SparseTransformer) {
  Sheet sheet;
  SHOW(sheet, square, all());
  SHOW(sheet, square, local({.window = 4}));
  SHOW(sheet, square, strided({.stride = 4}));
  SHOW(sheet, square, local({.window = 4}) | strided({.stride = 4}));
  EXPECT_THAT(page(), testing::HasSubstr(sheet.text()));
}

TEST(PatternsPage, Fixed) {
  Sheet sheet;
  const Blocks blocks{.size = 2, .heads = 2};
  SHOW(sheet, square, fixed({.window = 4, .num_verts = 1}, {.size = 1}));
  SHOW(sheet, square, fixed({.window = 4, .num_verts = 2}, blocks));
  SHOW(sheet, (Frame{.queries = 12, .keys = 12, .h = 1}),
       fixed({.window = 4, .num_verts = 2}, blocks));
  EXPECT_THAT(page(), testing::HasSubstr(sheet.text()));
}

TEST(PatternsPage, Conv) {
  Sheet sheet;
  SHOW(sheet, square, conv({.width = 12, .filter_width = 5}));
  SHOW(sheet, (Frame{.queries = 6, .keys = 12}),
       conv({.width = 12, .filter_width = 4, .stride = 2}));
  SHOW(sheet, (Frame{.queries = 12, .keys = 6}),
       deconv({.width = 12, .filter_width = 4, .stride = 2}));
  SHOW(sheet, square, conv({.height = 3, .width = 4, .filter_height = 3, .filter_width = 3}));
  EXPECT_THAT(page(), testing::HasSubstr(sheet.text()));
}

TEST(PatternsPage, Prefixes) {
  Sheet sheet;
  const Capture key("key", 5);
  SHOW(sheet, square, autoregress_at_key(MaskMod(), key, 12));
  SHOW(sheet, square, autoregress_at_key(dilated_window({.window = 6, .dilation = 2}), key, 12));
  SHOW(sheet, square, prefix_lm({.lengths = {4}}));
  SHOW(sheet, (Frame{.queries = 8, .keys = 12}), mods::causal_lower_right(8, 12));
  EXPECT_THAT(page(), testing::HasSubstr(sheet.text()));
}

TEST(PatternsPage, Windows) {
  Sheet sheet;
  std::array<bool, 12> bytes{};
  bytes[0] = bytes[7] = true;
  const Capture global("global", View(bytes.data(), {12}));
  SHOW(sheet, square, sliding_window({.window = 3, .sinks = 2}));
  SHOW(sheet, square, dilated_window({.window = 3, .dilation = 2}));
  SHOW(sheet, square, longformer({.reach = 1, .global = global}));
  SHOW(sheet, square, bigbird({.length = 12, .block_size = 1, .random = 2, .seed = 1}));
  EXPECT_THAT(page(), testing::HasSubstr(sheet.text()));
}

TEST(PatternsPage, Neighborhoods) {
  Sheet sheet;
  SHOW(sheet, square, neighborhood({{.length = 12, .window = 5}}));
  SHOW(sheet, square, neighborhood({{.length = 12, .window = 3, .dilation = 2}}));
  SHOW(sheet, square, neighborhood({{.length = 12, .window = 5, .causal = true}}));
  SHOW(sheet, square, neighborhood({{.length = 3, .window = 2}, {.length = 4, .window = 3}}));
  EXPECT_THAT(page(), testing::HasSubstr(sheet.text()));
}

TEST(PatternsPage, SeveralSequences) {
  Sheet sheet;
  const std::vector<std::int64_t> queries{0, 2, 6};
  const std::vector<std::int64_t> keys{0, 5, 12};
  SHOW(sheet, square, block_diagonal({.size = 5}));
  SHOW(sheet, square, documents({.lengths = {3, 5, 4}}) & mods::causal());
  SHOW(sheet, (Frame{.queries = 6, .keys = 12}),
       jagged({.query_ends = queries, .key_ends = keys, .inner = mods::causal()}));
  SHOW(sheet, (Frame{.queries = 6, .keys = 12}),
       jagged({queries, keys, mods::causal(), Jagged::Align::last}));
  EXPECT_THAT(page(), testing::HasSubstr(sheet.text()));
}

TEST(PatternsPage, Trees) {
  Sheet sheet;
  const Capture context("context", 4);
  SHOW(sheet, (Frame{.queries = 6, .keys = 6}), tree({.parents = {-1, 0, 0, 1, 1, 2}}));
  SHOW(sheet, (Frame{.queries = 6, .keys = 10}),
       tree({.parents = {-1, 0, 0, 1, 1, 2}, .context = context}));
  EXPECT_THAT(page(), testing::HasSubstr(sheet.text()));
}

}  // namespace
}  // namespace treadle::patterns
