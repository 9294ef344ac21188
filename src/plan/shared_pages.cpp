// Sequences with the same first page, then those among them that have the most in common.
#include "plan/shared_pages.h"

#include <algorithm>
#include <utility>

namespace treadle::plan {
namespace {

std::int64_t common_pages(const PageTable& a, const PageTable& b) {
  const std::int64_t count = std::min(a.count, b.count);
  std::int64_t same = 0;
  while (same < count && a.pages[same * a.stride] == b.pages[same * b.stride]) ++same;
  return same;
}

struct Member {
  std::int64_t sequence = 0, common = 0;  // pages in common with the first
};

}  // namespace

std::vector<SharedPages> shared_pages(std::span<const PageTable> tables, std::int64_t most,
                                      std::int64_t fewest_pages) {
  // By their first page, read once: a table may change meanwhile.
  std::vector<std::pair<std::int32_t, std::int64_t>> order;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    if (tables[i].count >= fewest_pages && tables[i].count > 0)
      order.emplace_back(tables[i].pages[0], static_cast<std::int64_t>(i));
  }
  std::ranges::sort(order);
  const auto table = [&](std::int64_t i) -> const PageTable& {
    return tables[static_cast<std::size_t>(i)];
  };
  std::vector<SharedPages> groups;
  std::vector<Member> members;
  std::vector<std::int64_t> left;
  for (std::size_t begin = 0; begin < order.size();) {
    left.clear();
    const std::int32_t first = order[begin].first;
    for (; begin < order.size() && order[begin].first == first; ++begin)
      left.push_back(order[begin].second);
    while (left.size() > 1) {
      members.clear();
      for (const std::int64_t i : left)
        members.push_back({i, common_pages(table(left.front()), table(i))});
      std::ranges::sort(members, {}, [](const Member& member) {
        return std::pair(-member.common, member.sequence);
      });
      // So many of them that the most pages are not read again.
      std::size_t best = 0;
      std::int64_t saved = 0;
      for (std::size_t n = 1; n < members.size() && static_cast<std::int64_t>(n) < most; ++n) {
        const std::int64_t spared = static_cast<std::int64_t>(n) * members[n].common;
        if (members[n].common < fewest_pages || spared < saved) continue;
        best = n;
        saved = spared;
      }
      SharedPages group;
      for (std::size_t n = 0; n <= best; ++n) group.sequences.push_back(members[n].sequence);
      group.pages = members[best].common;
      std::ranges::sort(group.sequences);
      std::erase_if(left,
                    [&](std::int64_t i) { return std::ranges::binary_search(group.sequences, i); });
      if (best > 0) groups.push_back(std::move(group));
    }
  }
  return groups;
}

}  // namespace treadle::plan
