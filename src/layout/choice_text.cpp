// Puts what was costed into words.
//
// In: costed candidates, best first. Out: a table, and the best beside the next ones.
#include "layout/choice_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace treadle::layout {
namespace {

std::string number(const Choice& choice, double value) {
  return fmt::format("{}{:.0f}", choice.estimated ? "~" : "", value);
}

// Known even if not all of them were looked at.
std::string tiles_of(const Choice& choice) { return fmt::format("{:.0f}", choice.work.tiles); }

std::string work_of(const Choice& choice) {
  return fmt::format("{} columns, {} tiles, {} runs", number(choice, choice.work.columns),
                     tiles_of(choice), number(choice, choice.work.runs));
}

std::string against(const char* which, const Choice& best, const Choice& other) {
  const std::string times =
      best.cost > 0 ? fmt::format("{:.3g} times the cost", other.cost / best.cost) : "no cheaper";
  return fmt::format("{}: {}: {}; {}\n", which, name_of(other), times, work_of(other));
}

}  // namespace

std::string name_of(const Choice& choice) {
  return fmt::format("{}, tiles of {}", to_text(choice.order), choice.height);
}

std::string comparison_of_first(std::span<const Choice> costed) {
  if (costed.empty()) return "";
  const Choice& best = costed.front();
  std::string text = fmt::format("cheapest: {}: cost {}; {}\n", name_of(best),
                                 number(best, best.cost), work_of(best));
  if (costed.size() == 1) return text;
  text += against("next", best, costed[1]);
  if (costed[1].order != best.order) return text;
  const auto other =
      std::ranges::find_if(costed, [&](const Choice& c) { return c.order != best.order; });
  return other == costed.end() ? text : text + against("next order", best, *other);
}

std::string to_text(std::span<const Choice> costed, std::size_t most) {
  const bool is_costed = costed.size() != 1 || costed.front().work.tiles > 0;
  if (!is_costed) return "few queries: one tile, nothing to choose\n";
  constexpr std::size_t columns = 7;
  using Line = std::array<std::string, columns>;
  std::vector<Line> lines{{"order", "tiles of", "cost", "columns", "tiles", "runs", "pieces"}};
  for (const Choice& choice : costed.first(std::min(most, costed.size()))) {
    const auto cell = [&](double value) { return number(choice, value); };
    const Work& work = choice.work;
    lines.push_back({to_text(choice.order), std::to_string(choice.height), cell(choice.cost),
                     cell(work.columns), tiles_of(choice), cell(work.runs), cell(work.pieces)});
  }
  Line widest;  // as a text that is as long
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < columns; ++i)
      if (line[i].size() > widest[i].size()) widest[i] = line[i];
  }
  std::string text;
  for (const Line& line : lines) {
    text += fmt::format("{:<{}}", line[0], widest[0].size());
    for (std::size_t i = 1; i < columns; ++i)
      text += fmt::format("  {:>{}}", line[i], widest[i].size());
    text += '\n';
  }
  if (costed.size() > most) {
    text += fmt::format("{} more, up to a cost of {}\n", costed.size() - most,
                        number(costed.back(), costed.back().cost));
  }
  return text + comparison_of_first(costed);
}

}  // namespace treadle::layout
