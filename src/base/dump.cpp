// Prints what stages show when TREADLE_DUMP asks for it.
//
// In: the environment variable; the title and text of a stage. Out: text on stderr.
#include "base/dump.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>

#include "base/environment.h"
#include "base/error.h"

namespace treadle::base {
namespace {

constexpr std::array all_dumps{Dump::graph, Dump::layout,   Dump::plan,
                               Dump::ir,    Dump::assembly, Dump::time};

std::string_view name_of(Dump what) {
  switch (what) {
    case Dump::graph: return "graph";
    case Dump::layout: return "layout";
    case Dump::plan: return "plan";
    case Dump::ir: return "ir";
    case Dump::assembly: return "asm";
    case Dump::time: return "time";
  }
  internal_error("dump: no stage has the number {}", static_cast<int>(what));
}

void check_name(std::string_view name) {
  if (std::ranges::count(all_dumps, name, name_of) > 0) return;
  std::array<std::string_view, all_dumps.size()> known;
  std::ranges::transform(all_dumps, known.begin(), name_of);
  fail("TREADLE_DUMP: unknown name '{}'; known are {}", name, fmt::join(known, ", "));
}

// Cuts the text up to the next comma off and returns it without the spaces around it.
std::string_view next_name(std::string_view& list) {
  const auto comma = std::min(list.find(','), list.size());
  std::string_view name = list.substr(0, comma);
  list.remove_prefix(std::min(comma + 1, list.size()));
  name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
  return name.substr(0, name.find_last_not_of(' ') + 1);
}

std::uint64_t bit_of(Dump what) { return std::uint64_t{1} << static_cast<int>(what); }

// A bit for each stage that the list names. Throws for a name that is none.
std::uint64_t bits_of(std::string_view list) {
  std::uint64_t bits = 0;
  while (!list.empty()) {
    const std::string_view name = next_name(list);
    if (name.empty()) continue;
    check_name(name);
    for (const Dump what : all_dumps) bits |= name == name_of(what) ? bit_of(what) : 0;
  }
  return bits;
}

constexpr int bits_per_reading = 8;
static_assert(all_dumps.size() <= bits_per_reading);

}  // namespace

bool dump_wanted(Dump what) {
  // The bits, and above them which reading of the environment they are of: a single word, so that
  // asking costs two loads.
  static std::atomic<std::uint64_t> known = 0;
  const std::uint64_t reading = reading_of_variables();
  std::uint64_t word = known.load(std::memory_order_relaxed);
  if (word >> bits_per_reading != reading) {
    word = reading << bits_per_reading | bits_of(variable("TREADLE_DUMP").value_or(""));
    known.store(word, std::memory_order_relaxed);
  }
  return (word & bit_of(what)) != 0;
}

void dump(Dump what, std::string_view title, std::string_view text) {
  const bool ends = !text.empty() && text.back() == '\n';
  const std::string piece =
      fmt::format("== {}: {}\n{}{}", name_of(what), title, text, ends ? "" : "\n");
  std::fwrite(piece.data(), 1, piece.size(), stderr);
}

}  // namespace treadle::base
