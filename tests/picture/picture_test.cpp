// Pictures: cells are exact, files can be read, mistakes are told.
#include "picture/picture.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "brute_layout.h"
#include "expect_error.h"
#include "ir/parse.h"
#include "picture/sheet.h"

namespace treadle::picture {
namespace {

using layout::BlockKind;
using layout::blocks_of;
using layout::Extent;
using layout::Mask;
using ::testing::HasSubstr;

Mask mask_of(std::string_view text) { return {ir::parse(text, {}), {}}; }

Picture causal(std::int64_t queries, std::int64_t keys, const Grid& grid) {
  Picture picture =
      draw(mask_of("q >= kv"), {.queries = queries, .keys = keys}, 0, 0, grid, *serial_executor());
  picture.title = "q >= kv && \"<&>\"";
  picture.work = "visible 50.8 %";
  return picture;
}

class Folder {
 public:
  Folder()
      : path_(std::filesystem::path(::testing::TempDir()) /
              ("treadle_pictures-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// --- cells ---------------------------------------------------------------------------------------

TEST(Picture, CellsAreExact) {
  const Extent extent{.batch = 2, .heads = 2, .queries = 50, .keys = 37};
  const Mask mask = mask_of("(q - kv) % 3 == h && q + b >= kv || kv // 8 == 2");
  const Grid grid{.queries_per_row = 4, .keys_per_column = 3};
  const Picture picture = draw(mask, extent, 1, 0, grid, *serial_executor());
  ASSERT_EQ(picture.rows, 13);
  ASSERT_EQ(picture.columns, 13);
  const auto sights = test::every_pair(mask, extent, 1, 0);
  for (std::int64_t row = 0; row < picture.rows; ++row) {
    for (std::int64_t column = 0; column < picture.columns; ++column) {
      bool some = false;
      bool all = true;
      for (std::int64_t q = row * 4; q < std::min<std::int64_t>(row * 4 + 4, 50); ++q) {
        for (std::int64_t kv = column * 3; kv < std::min<std::int64_t>(column * 3 + 3, 37); ++kv) {
          const bool seen = sights[static_cast<std::size_t>(q * 37 + kv)] == test::Sight::visible;
          some = some || seen;
          all = all && seen;
        }
      }
      EXPECT_EQ(picture.cell(row, column), all    ? BlockKind::full
                                           : some ? BlockKind::partial
                                                  : BlockKind::empty);
    }
  }
}

TEST(Picture, GridsKeepWithinTheirSizes) {
  for (const std::int64_t queries : {0, 1, 40, 41, 1000, 4096, 1 << 20}) {
    for (const std::int64_t keys : {0, 1, 80, 81, 1000, 4096, 1 << 20}) {
      const Extent extent{.queries = queries, .keys = keys};
      const Grid terminal = terminal_grid(extent);
      EXPECT_LE(blocks_of(queries, terminal.queries_per_row), 40);
      EXPECT_LE(blocks_of(keys, terminal.keys_per_column), 80);
      const Grid image = image_grid(extent);
      EXPECT_LE(blocks_of(queries, image.queries_per_row), 512);
      EXPECT_LE(blocks_of(keys, image.keys_per_column), 512);
    }
  }
  EXPECT_EQ(image_grid({.queries = 4096, .keys = 4096}).queries_per_row, 8);
  EXPECT_EQ(image_grid({.queries = 64, .keys = 1 << 20}).queries_per_row, 1);
}

TEST(Picture, Terminal) {
  EXPECT_EQ(to_terminal(causal(10, 12, {.queries_per_row = 4, .keys_per_column = 3})),
            " kv 0   6\n"
            "q 0 ▒▒▒▒····\n"
            "  4 ██▒▒▒▒··\n"
            "  8 ██████▒▒\n");
}

Picture two_passes(const Extent& extent, const Grid& grid) {
  Picture picture =
      draw(mask_of("q >= kv || (kv - q) % 4 == 0"), extent, 0, 0, grid, *serial_executor());
  tell_apart(picture,
             {{"pass 1: near", mask_of("q >= kv")},
              {"pass 2: far", mask_of("q < kv && (kv - q) % 4 == 0")}},
             extent, 0, 0, *serial_executor());
  return picture;
}

TEST(Picture, PassesHaveGlyphsOfTheirOwn) {
  const Picture picture = two_passes({.queries = 6, .keys = 9}, {});
  EXPECT_EQ(to_terminal(picture),
            " kv 0   2   4   6   8\n"
            "q 0 ██······▓▓······▓▓\n"
            "  1 ████······▓▓······\n"
            "  2 ██████······▓▓····\n"
            "  3 ████████······▓▓··\n"
            "  4 ██████████······▓▓\n"
            "  5 ████████████······\n");
  EXPECT_EQ(terminal_legend(picture),
            "· empty\n"
            "▒ partial  █ full  pass 1: near\n"
            "░ partial  ▓ full  pass 2: far\n");
  EXPECT_EQ(terminal_legend(causal(4, 4, {})), "· empty  ▒ partial  █ full\n");
}

// A cell with pairs of several passes belongs to the first of them.
TEST(Picture, CellsOfSeveralPasses) {
  const Picture picture =
      two_passes({.queries = 8, .keys = 8}, {.queries_per_row = 4, .keys_per_column = 4});
  EXPECT_EQ(to_terminal(picture),
            " kv 0 4\n"
            "q 0 ▒▒░░\n"
            "  4 ██▒▒\n");
}

TEST(Picture, Ticks) {
  EXPECT_EQ(ticks_of(10), (std::vector<std::int64_t>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(ticks_of(1000, 4), (std::vector<std::int64_t>{0, 256, 512, 768}));
  EXPECT_EQ(tick_label(0), "0");
  EXPECT_EQ(tick_label(8192), "8192");
  EXPECT_EQ(tick_label(131072), "128k");
  EXPECT_EQ(tick_label(3 << 20), "3M");
}

// --- files ---------------------------------------------------------------------------------------

struct Pixels {
  std::int64_t width = 0, height = 0;
  std::vector<Colour> colours;

  [[nodiscard]] Colour at(std::int64_t x, std::int64_t y) const {
    return colours[static_cast<std::size_t>(y * width + x)];
  }
};

Pixels read_png(const std::filesystem::path& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_file(&image, path.c_str()), 0) << image.message;
  image.format = PNG_FORMAT_RGB;
  Pixels pixels{.width = image.width,
                .height = image.height,
                .colours = std::vector<Colour>(std::size_t{image.width} * image.height)};
  EXPECT_NE(png_image_finish_read(&image, nullptr, pixels.colours.data(), 0, nullptr), 0);
  return pixels;
}

TEST(Picture, PngHasTheCells) {
  const Folder folder;
  const Picture picture = causal(64, 64, {.queries_per_row = 2, .keys_per_column = 2});
  write_picture(picture, folder / "causal.png");
  const Pixels pixels = read_png(folder / "causal.png");
  const Sheet sheet = compose(picture);
  EXPECT_EQ(pixels.width, sheet.width);
  EXPECT_EQ(pixels.height, sheet.height);
  const auto cell = [&](std::int64_t row, std::int64_t column) {
    return pixels.at(sheet.plot_x + column * sheet.cell_width + sheet.cell_width / 2,
                     sheet.plot_y + row * sheet.cell_height + sheet.cell_height / 2);
  };
  EXPECT_EQ(cell(0, 0), colour_of(BlockKind::partial));
  EXPECT_EQ(cell(31, 31), colour_of(BlockKind::partial));
  EXPECT_EQ(cell(31, 0), colour_of(BlockKind::full));
  EXPECT_EQ(cell(0, 31), colour_of(BlockKind::empty));
  EXPECT_EQ(pixels.at(0, 0), paper);
  // Axes, and letters of the title.
  EXPECT_EQ(pixels.at(sheet.plot_x - 1, sheet.plot_y + 5), ink);
  const auto title = std::span(pixels.colours).first(static_cast<std::size_t>(pixels.width * 30));
  EXPECT_GT(std::ranges::count(title, ink), 100);
}

// Tags close in the order in which they open, and no bare & or < stands in a text.
void expect_well_formed(std::string_view xml) {
  std::vector<std::string> open;
  while (!xml.empty()) {
    const auto tag = xml.find('<');
    const std::string_view text = xml.substr(0, tag);
    for (auto at = text.find('&'); at != std::string_view::npos; at = text.find('&', at + 1)) {
      const std::string_view entity = text.substr(at, text.find(';', at) - at + 1);
      EXPECT_TRUE(entity == "&lt;" || entity == "&gt;" || entity == "&amp;") << entity;
    }
    if (tag == std::string_view::npos) break;
    const auto end = xml.find('>', tag);
    ASSERT_NE(end, std::string_view::npos);
    const std::string_view inside = xml.substr(tag + 1, end - tag - 1);
    EXPECT_EQ(std::ranges::count(inside, '"') % 2, 0) << inside;
    if (inside.starts_with('/')) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), inside.substr(1));
      open.pop_back();
    } else if (!inside.ends_with('/')) {
      open.emplace_back(inside.substr(0, inside.find(' ')));
    }
    xml.remove_prefix(end + 1);
  }
  EXPECT_TRUE(open.empty());
}

TEST(Picture, SvgIsXmlAndSaysTheSame) {
  const std::string svg = to_svg(causal(64, 64, {.queries_per_row = 2, .keys_per_column = 2}));
  expect_well_formed(svg);
  EXPECT_THAT(svg, HasSubstr(">q &gt;= kv &amp;&amp; \"&lt;&amp;&gt;\"</text>"));
  for (const char* part : {"<svg xmlns=", ">visible 50.8 %<", ">q\\kv<", ">64<", ">empty<",
                           ">partial<", ">full<", "#f0a03c", "#245b8e"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  const Folder folder;
  write_picture(causal(64, 64, {2, 2}), folder / "causal.svg");
  std::ifstream file(folder / "causal.svg");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), svg);
}

TEST(Picture, FilesHaveAColourForEachPass) {
  const std::string svg = to_svg(two_passes({.queries = 64, .keys = 64}, {}));
  expect_well_formed(svg);
  const auto hex = [](Colour c) {
    return fmt::format("#{:02x}{:02x}{:02x}", c.red, c.green, c.blue);
  };
  for (const std::string& part :
       {hex(colour_of(BlockKind::full, 0)), hex(colour_of(BlockKind::full, 1)),
        hex(colour_of(BlockKind::partial, 1)), std::string(">pass 1: near<"),
        std::string(">pass 2: far<")}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  const std::vector<Pass> five(5, {"pass", mask_of("false")});
  Picture picture = causal(4, 4, {});
  EXPECT_ERROR(tell_apart(picture, five, {.queries = 4, .keys = 4}, 0, 0, *serial_executor()),
               "picture: 5 passes; at most 4 are told apart");
}

TEST(Picture, NothingAndNarrowOnesCanBeDrawn) {
  const Folder folder;
  for (const Extent& extent : {Extent{1, 1, 0, 0}, Extent{1, 1, 1, 5000}, Extent{1, 1, 700, 1}}) {
    const Picture picture =
        draw(mask_of("true"), extent, 0, 0, image_grid(extent), *serial_executor());
    write_picture(picture, folder / "p.png");
    EXPECT_GT(read_png(folder / "p.png").width, 64);
    expect_well_formed(to_svg(picture));
    EXPECT_THAT(to_terminal(picture), HasSubstr("kv"));
  }
}

TEST(Picture, BadInput) {
  const Folder folder;
  const Picture picture = causal(4, 4, {});
  EXPECT_ERROR(write_picture(picture, "mask.jpg"),
               "picture: \"mask.jpg\" ends in \".jpg\"; known are .png and .svg");
  EXPECT_ERROR(write_picture(picture, "mask"),
               "picture: \"mask\" ends in \"\"; known are .png and .svg");
  for (const char* name : {"none/mask.png", "none/mask.svg"}) {
    EXPECT_ERROR(
        write_picture(picture, folder / name),
        "picture: cannot write \"" + (folder / name).string() + "\": No such file or directory");
  }
  EXPECT_ERROR(draw(mask_of("true"), {1, 2, 4, 4}, 0, 2, {}, *serial_executor()),
               "picture: batch 0 and head 2 were requested; there are 1 and 2");
}

}  // namespace
}  // namespace treadle::picture
