// Plays how leaves close, with those of others missing. Read Player::close() first.
#include "plan/tree_parts.h"

#include <array>

namespace treadle::plan {
namespace {

using layout::Range;

class Player {
 public:
  Player(std::int64_t all, TreeParts& parts) : levels_(tree_levels(all)), parts_(parts) {}

  // The leaf joins the nodes above it as far as they have all that comes before; what cannot join is
  // handed over.
  void close(std::int64_t leaf) {
    parts_.ends.emplace_back();
    LeafEnd& end = parts_.ends.back();
    Range node{leaf, leaf + 1};
    if (levels_ == 0) return hand_over(0, 0, node);
    std::int64_t size = 1;
    for (int level = 1; level <= levels_; ++level) {
      size *= tree_children;
      Range& above = begun_[static_cast<std::size_t>(level)];
      const std::int64_t first = level == levels_ ? 0 : node.begin / size * size;
      const bool goes_on = !above.empty() && above.begin == first && above.end == node.begin;
      if (!goes_on && node.begin != first) return hand_over(level - 1, level, node);
      above = {first, node.end};
      ++end.joins;
      if (level == levels_ || above.end != first + size) return;
      node = above;
      above = {};
    }
  }

  // Others have the next leaves: what is begun will not be completed here.
  void stop() {
    for (int level = levels_; level > 0; --level) {
      Range& begun = begun_[static_cast<std::size_t>(level)];
      if (!begun.empty()) hand_over(level, level, begun);
      begun = {};
    }
  }

 private:
  void hand_over(int from, int level, Range leaves) {
    parts_.ends.back().hand_over.push_back({from, parts_.pieces.size()});
    parts_.pieces.push_back({level, leaves});
  }

  int levels_;
  TreeParts& parts_;
  std::array<Range, most_tree_levels + 1>
      begun_{};  // by level: leaves of a node that is not complete
};

}  // namespace

int tree_levels(std::int64_t leaves) {
  int levels = 0;
  for (std::int64_t reach = 1; reach < leaves && levels < most_tree_levels; reach *= tree_children)
    ++levels;
  return levels;
}

TreeParts tree_parts(std::span<const std::int64_t> leaves, std::int64_t all) {
  TreeParts parts;
  Player player(all, parts);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    player.close(leaves[i]);
    if (i + 1 == leaves.size() || leaves[i + 1] != leaves[i] + 1) player.stop();
  }
  return parts;
}

}  // namespace treadle::plan
