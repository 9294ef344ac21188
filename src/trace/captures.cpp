// Gives captures slots while mods are traced, and names afterwards.
//
// In: captures as mods use them. Out: slots, and in the end names that depend on the graphs alone.
// Read slot_of() first, then settle().
#include "trace/captures.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "ir/builder.h"

namespace treadle::trace {
namespace {

bool same_memory(const ConstView& a, const ConstView& b) {
  return a.data() == b.data() && a.dtype() == b.dtype() && a.shape() == b.shape() &&
         a.strides() == b.strides();
}

ir::Slot slot(const Capture& capture) {
  return {capture.name(), capture.view().dtype(), capture.view().rank()};
}

[[noreturn]] void fail_name(const std::string& name, bool by_the_user) {
  if (by_the_user)
    base::fail("capture \"{}\": two captures have this name; one name is one buffer", name);
  base::fail("capture \"{}\": a capture without a name is already called so; give that one a name",
             name);
}

}  // namespace

bool CaptureTable::taken(std::string_view name) const {
  return std::ranges::any_of(entries_,
                             [&](const Entry& entry) { return entry.capture.name() == name; });
}

std::string CaptureTable::free_name(std::string_view prefix) const {
  for (int i = 0;; ++i) {
    std::string name = fmt::format("{}{}", prefix, i);
    if (!taken(name)) return name;
  }
}

ir::Slot CaptureTable::slot_of(const Capture& capture) {
  const bool named = !capture.name().empty();
  for (const Entry& known : entries_) {
    const bool same = same_memory(known.capture.view(), capture.view());
    const bool same_name = named && known.capture.name() == capture.name();
    if (same_name && !same) fail_name(capture.name(), known.named);
    if (same_name || (!named && !known.named && same)) return slot(known.capture);
  }
  entries_.push_back({capture, named, false});
  Capture& kept = entries_.back().capture;
  // Stands in messages only, until the capture's place in the graph is known.
  if (!named) kept.rename(free_name("unnamed"));
  ir::check_slot_name(kept.name());
  return slot(kept);
}

ir::Graph CaptureTable::settle(const ir::Graph& graph) {
  std::vector<ir::Slot> slots;
  for (const ir::Slot& read : graph.slots()) {
    Entry& entry = *std::ranges::find_if(
        entries_, [&](const Entry& e) { return e.capture.name() == read.name; });
    if (!entry.settled) {
      if (!entry.named) entry.capture.rename(free_name("c"));
      entry.settled = true;
      settled_.push_back(entry.capture);
    }
    slots.push_back(slot(entry.capture));
  }
  std::erase_if(entries_, [](const Entry& entry) { return !entry.settled; });
  return {{graph.nodes().begin(), graph.nodes().end()},
          slots,
          {graph.outputs().begin(), graph.outputs().end()}};
}

}  // namespace treadle::trace
