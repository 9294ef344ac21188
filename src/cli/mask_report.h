// What `treadle mask` found out about a mask, for people and for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/build.h"
#include "picture/picture.h"

namespace treadle::cli {

// A term of the mask, or all of it. Densities are shares of all pairs.
struct TermReport {
  layout::Mask mask;
  layout::Layout layout;
  std::size_t pass = 0;  // which one looks at it, from 0
  double visible = 0, runs = 0;
};

struct MaskReport {
  std::string title;
  layout::Extent extent;
  std::vector<TermReport> terms;  // in their order
  double build_ms = 0;
  double blocks = 0;  // what square blocks would look at

  [[nodiscard]] std::size_t passes() const { return terms.back().pass + 1; }
  [[nodiscard]] double visible() const;
  [[nodiscard]] double runs() const;
};

inline constexpr std::int64_t square_block = 128;  // what FlexAttention's masks are made of

// Of the pairs that are looked at, those that are visible.
double useful(double visible, double runs);

// "visible 12.1 %, runs 13.5 %, 128 x 128 blocks 56.2 %; useful work 90 %"
std::string work_of(const MaskReport& report);
// "term 2 in pass 2: residues of 128, tiles of 32"
std::string name_of(const MaskReport& report, std::size_t term);

void print_json(const MaskReport& report);
void print_text(const MaskReport& report, const picture::Picture& drawing);

}  // namespace treadle::cli
