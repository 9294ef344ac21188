// What `treadle mask` found out about a mask, for people and for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/build.h"
#include "picture/picture.h"

namespace treadle::cli {

// A pass over a part of the mask, or over all of it. Densities are shares of all pairs.
struct PassReport {
  layout::Mask mask;
  layout::Layout layout;
  double visible = 0, runs = 0;
};

struct MaskReport {
  std::string title;
  layout::Extent extent;
  std::vector<PassReport> passes;
  double build_ms = 0;
  double blocks = 0;  // what square blocks would look at

  [[nodiscard]] double visible() const;
  [[nodiscard]] double runs() const;
};

inline constexpr std::int64_t square_block = 128;  // what FlexAttention's masks are made of

// Of the pairs that are looked at, those that are visible.
double useful(double visible, double runs);

// "visible 12.1 %, runs 13.5 %, 128 x 128 blocks 56.2 %; useful work 90 %"
std::string work_of(const MaskReport& report);
// "pass 2: residues of 128, tiles of 32"
std::string name_of(const MaskReport& report, std::size_t pass);

void print_json(const MaskReport& report);
void print_text(const MaskReport& report, const picture::Picture& drawing);

}  // namespace treadle::cli
