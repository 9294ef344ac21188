// Makes masks of several sequences in one, and of trees.
//
// In: lengths of sequences, or parents of nodes. Out: masks that read from their own tables where a
// position belongs.
#include <vector>

#include "base/error.h"
#include "patterns/check_parameters.h"
#include "patterns/owned_capture.h"
#include "treadle/mods.h"
#include "treadle/patterns.h"

namespace treadle::patterns {
namespace {

using base::fail;
using Lengths = std::vector<std::int64_t>;

Capture table_of(const Lengths& values) {
  return owned<std::int64_t>(values, {static_cast<std::int64_t>(values.size())});
}

// For each position, the number that its sequence has in `value`: 2, 3 -> value[0] twice, value[1]
// three times.
Capture spread(const Lengths& lengths, const Lengths& value) {
  Lengths positions;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    positions.insert(positions.end(), static_cast<std::size_t>(lengths[i]), value[i]);
  }
  return table_of(positions);
}

// The sequence each position belongs to.
Capture ids_of(const Lengths& lengths) {
  Lengths numbers;
  for (std::size_t i = 0; i < lengths.size(); ++i) numbers.push_back(static_cast<std::int64_t>(i));
  return spread(lengths, numbers);
}

Lengths lengths_of(std::string_view what, const Lengths& ends) {
  if (ends.empty() || ends.front() != 0) {
    fail("jagged: {} are {}; they must begin with 0", what, to_string(ends));
  }
  Lengths lengths;
  for (std::size_t i = 1; i < ends.size(); ++i) {
    if (ends[i] < ends[i - 1]) {
      fail("jagged: {} are {}; they must not fall", what, to_string(ends));
    }
    lengths.push_back(ends[i] - ends[i - 1]);
  }
  return lengths;
}

// When a depth-first walk enters each node, counted from 0, and the first time after its subtree.
struct Times {
  Lengths enter, leave;
};

Times walk(const Lengths& parents) {
  const auto count = static_cast<std::int64_t>(parents.size());
  std::vector<Lengths> children(parents.size());
  Lengths roots;
  for (std::int64_t node = 0; node < count; ++node) {
    const std::int64_t parent = parents[static_cast<std::size_t>(node)];
    if (parent < -1 || parent >= count) {
      fail("tree: node {} has parent {}; it must be one of {} nodes, or -1 for a root", node,
           parent, count);
    }
    (parent == -1 ? roots : children[static_cast<std::size_t>(parent)]).push_back(node);
  }
  Times times{Lengths(parents.size(), -1), Lengths(parents.size(), -1)};
  std::int64_t now = 0;
  Lengths open(roots.rbegin(), roots.rend());  // a drafted tree may be a chain: no recursion
  while (!open.empty()) {
    const auto node = static_cast<std::size_t>(open.back());
    if (times.enter[node] >= 0) {  // seen before: all below it is done
      times.leave[node] = now;
      open.pop_back();
      continue;
    }
    times.enter[node] = now++;
    open.insert(open.end(), children[node].rbegin(), children[node].rend());
  }
  for (std::int64_t node = 0; node < count; ++node) {
    if (times.enter[static_cast<std::size_t>(node)] < 0) {
      fail("tree: node {} is its own ancestor, or has one that is; there must be no cycle", node);
    }
  }
  return times;
}

}  // namespace

MaskMod documents(const Documents& pattern) {
  for (const std::int64_t length : pattern.lengths) {
    check_at_least("documents", "length of a document", length, 0);
  }
  return mods::document(ids_of(pattern.lengths));
}

MaskMod jagged(const Jagged& pattern) {
  const Lengths& key_ends = pattern.key_ends.empty() ? pattern.query_ends : pattern.key_ends;
  const Lengths queries = lengths_of("query ends", pattern.query_ends);
  const Lengths keys = lengths_of("key ends", key_ends);
  if (queries.size() != keys.size()) {
    fail("jagged: {} sequences of queries, {} of keys; they must be equal", queries.size(),
         keys.size());
  }
  Lengths query_starts, key_starts;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    // Where a query of the sequence would have to stand to be at its first key.
    const std::int64_t ahead = pattern.align == Jagged::Align::last ? keys[i] - queries[i] : 0;
    query_starts.push_back(pattern.query_ends[i] - ahead);
    key_starts.push_back(key_ends[i]);
  }
  const Capture query_ids = ids_of(queries);
  const Capture key_ids = ids_of(keys);
  const Capture query_start = spread(queries, query_starts);
  const Capture key_start = spread(keys, key_starts);
  return [=, inner = pattern.inner](Index b, Index h, Index q, Index kv) {
    return query_ids(q) == key_ids(kv) &&
           inner(b, h, Index(q - query_start(q)), Index(kv - key_start(kv)));
  };
}

MaskMod prefix_lm(const PrefixLm& pattern) {
  for (const std::int64_t length : pattern.lengths) {
    check_at_least("prefix_lm", "length of a prefix", length, 0);
  }
  return mods::prefix_lm(table_of(pattern.lengths));
}

MaskMod tree(const Tree& pattern) {
  const ConstView& view = pattern.context.view();
  if (view.rank() != 0 || !is_integer(view.dtype())) {
    fail("tree: the context is {} of shape {}; it must be an integer scalar", name_of(view.dtype()),
         to_string(view.shape()));
  }
  const Times times = walk(pattern.parents);
  const Capture enter = table_of(times.enter);
  const Capture leave = table_of(times.leave);
  return [=, context = pattern.context](Index, Index, Index q, Index kv) {
    // Keys of the context belong to no node; node 0 stands in, so that every read is inside the
    // tables.
    const Value node = max(kv - context(), 0);
    return kv < context() || (enter(node) <= enter(q) && enter(q) < leave(node));
  };
}

}  // namespace treadle::patterns
