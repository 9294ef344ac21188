// In: name:dtype:rank. Out: a Capture, or an Error that says which of the three is wrong.
#include "cli/capture_option.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>

#include "base/element.h"
#include "base/error.h"
#include "ir/builder.h"

namespace treadle::cli {
namespace {

constexpr int highest_rank = 16;  // far beyond use, and no typing mistake fills the memory

std::optional<int> rank_from(std::string_view text) {
  int rank = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && rank >= 0 && rank <= highest_rank ? std::optional(rank) : std::nullopt;
}

// Graphs know name, type and rank, and nothing is computed here: all buffers have length 0, all
// scalars are this one.
alignas(std::max_align_t) constexpr std::array<std::byte, 16> nothing{};

Capture capture_from(std::string_view text) {
  const auto first = text.find(':');
  const auto last = text.rfind(':');
  if (first == std::string_view::npos || first == last) {
    base::fail("explain: --capture \"{}\" is not name:dtype:rank, as in slopes:f32:1", text);
  }
  const std::string_view type_name = text.substr(first + 1, last - first - 1);
  const DType dtype = dtype_from(fmt::format("explain: --capture \"{}\"", text), type_name);
  const std::optional<int> rank = rank_from(text.substr(last + 1));
  if (!rank) {
    base::fail("explain: --capture \"{}\" has the rank \"{}\"; it must be a number from 0 to {}",
               text, text.substr(last + 1), highest_rank);
  }
  return {std::string(text.substr(0, first)),
          ConstView(nothing.data(), dtype, Dims(static_cast<std::size_t>(*rank), 0))};
}

}  // namespace

std::vector<Capture> captures_from(const std::vector<std::string>& texts) {
  std::vector<Capture> captures;
  for (const std::string& text : texts) add_capture("explain", captures, capture_from(text));
  return captures;
}

DType dtype_from(std::string_view where, std::string_view name) {
  const auto found = std::ranges::find(base::all_dtypes, name, name_of);
  if (found != base::all_dtypes.end()) return *found;
  std::string known;
  for (const DType type : base::all_dtypes) {
    known.append(known.empty() ? "" : ", ").append(name_of(type));
  }
  base::fail("{} has the element type \"{}\"; known are {}", where, name, known);
}

void add_capture(std::string_view command, std::vector<Capture>& captures, Capture capture) {
  ir::check_slot_name(capture.name());
  if (std::ranges::count(captures, capture.name(), &Capture::name) > 0) {
    base::fail("{}: --capture names \"{}\" twice", command, capture.name());
  }
  captures.push_back(std::move(capture));
}

}  // namespace treadle::cli
