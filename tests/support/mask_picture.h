// Masks and block layouts as pictures: one text per query, '#' where it sees the key.
//
//   EXPECT_EQ(picture(mods::causal(), {.queries = 3, .keys = 3}), (Picture{"#..", "##.", "###"}));
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "ir/interpret.h"
#include "traced.h"
#include "treadle/block_layout.h"

namespace treadle::test {

using Picture = std::vector<std::string>;

struct Frame {
  std::int64_t queries = 0, keys = 0;
  std::int64_t b = 0, h = 0;
};

// Every pair must have a visibility; a poisoned one fails the test and is drawn as '?'.
inline Picture picture(const Traced& mask, const Frame& frame) {
  std::vector<ConstView> views;
  for (const ir::Slot& slot : mask.graph.slots()) {
    views.push_back(std::ranges::find(mask.captures, slot.name, &Capture::name)->view());
  }
  std::vector<std::int64_t> keys(static_cast<std::size_t>(frame.keys));
  std::iota(keys.begin(), keys.end(), 0);
  ir::Interpreter<double> run(mask.graph, views);
  Picture rows;
  for (std::int64_t q = 0; q < frame.queries; ++q) {
    run({.score = {}, .grad = {}, .b = {&frame.b, 1}, .h = {&frame.h, 1}, .q = {&q, 1}, .kv = keys},
        frame.keys);
    std::string row;
    for (std::size_t kv = 0; kv < keys.size(); ++kv) {
      const bool poison = !run.poison(0).empty() && run.poison(0)[kv] != 0;
      if (poison) ADD_FAILURE() << run.poison_reason(0, static_cast<std::int64_t>(kv));
      row += poison ? '?' : run.booleans(0)[kv] != 0 ? '#' : '.';
    }
    rows.push_back(row);
  }
  return rows;
}

inline Picture picture(const MaskMod& mask, const Frame& frame) {
  return picture(traced_mask(mask), frame);
}

// visible(q, kv) by any other means.
template <class Visible>
Picture drawn(std::int64_t queries, std::int64_t keys, Visible visible) {
  Picture rows;
  for (std::int64_t q = 0; q < queries; ++q) {
    rows.emplace_back();
    for (std::int64_t kv = 0; kv < keys; ++kv) rows.back() += visible(q, kv) ? '#' : '.';
  }
  return rows;
}

// The blocks of one head of a layout.
inline Picture blocks_of(const BlockLayout& layout, std::int64_t head = 0) {
  const std::int64_t first = head * layout.query_blocks * layout.key_blocks;
  return drawn(layout.query_blocks, layout.key_blocks, [&](std::int64_t query, std::int64_t key) {
    return layout.present[static_cast<std::size_t>(first + query * layout.key_blocks + key)] != 0;
  });
}

// The pairs inside one block, whether it is present or not.
inline Picture inside_block(const BlockLayout& layout, std::int64_t query, std::int64_t key) {
  return drawn(layout.block_size, layout.block_size, [&](std::int64_t row, std::int64_t column) {
    return !layout.mask ||
           layout.mask({.query_block = query, .key_block = key, .row = row, .column = column});
  });
}

// The pairs of one head of a layout: present blocks, and the mask inside them.
inline Picture pairs_of(const BlockLayout& layout, std::int64_t head = 0) {
  const std::int64_t size = layout.block_size;
  Picture rows(static_cast<std::size_t>(layout.query_blocks * size),
               std::string(static_cast<std::size_t>(layout.key_blocks * size), '.'));
  const Picture blocks = blocks_of(layout, head);
  std::int64_t block = 0;
  for (std::int64_t query = 0; query < layout.query_blocks; ++query) {
    for (std::int64_t key = 0; key < layout.key_blocks; ++key) {
      if (blocks[static_cast<std::size_t>(query)][static_cast<std::size_t>(key)] == '.') continue;
      for (std::int64_t pair = 0; pair < size * size; ++pair) {
        const BlockCell cell{.head = head,
                             .query_block = query,
                             .key_block = key,
                             .block = block,
                             .row = pair / size,
                             .column = pair % size};
        if (layout.mask && !layout.mask(cell)) continue;
        rows[static_cast<std::size_t>(query * size + cell.row)]
            [static_cast<std::size_t>(key * size + cell.column)] = '#';
      }
      ++block;
    }
  }
  return rows;
}

}  // namespace treadle::test
