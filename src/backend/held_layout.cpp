// Numbers about a layout, for its holder.
#include "backend/held_layout.h"

#include <fmt/format.h>

namespace treadle {

double Layout::density() const {
  if (empty()) return 0;
  const auto all = static_cast<double>(held_->terms.front().layout.all_pairs());
  std::int64_t looked_at = 0;
  for (const Held::Term& term : held_->terms) looked_at += term.layout.run_pairs();
  return all == 0 ? 0 : static_cast<double>(looked_at) / all;
}

std::int64_t Layout::bytes() const {
  std::int64_t sum = 0;
  if (!empty())
    for (const Held::Term& term : held_->terms) sum += term.layout.bytes();
  return sum;
}

std::string Layout::describe() const {
  if (empty()) return "no layout\n";
  if (held_->terms.size() == 1) return to_text(held_->terms.front().layout);
  std::string text;
  for (std::size_t i = 0; i < held_->terms.size(); ++i)
    text += fmt::format("term {}: {}", i + 1, to_text(held_->terms[i].layout));
  return text;
}

}  // namespace treadle
