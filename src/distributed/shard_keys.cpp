// What travels of K and V. Read pack() first.
#include "distributed/shard_keys.h"

#include <algorithm>
#include <cstring>

#include "distributed/bytes.h"
#include "run/rows.h"

namespace treadle::distributed {
namespace {

using layout::Range;

Ranges united(const Ranges& a, const Ranges& b) {
  Ranges all;
  all.reserve(a.size() + b.size());
  std::size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    const bool takes_a = j == b.size() || (i < a.size() && a[i].begin <= b[j].begin);
    const Range& next = takes_a ? a[i++] : b[j++];
    if (!all.empty() && next.begin <= all.back().end) {
      all.back().end = std::max(all.back().end, next.end);
    } else {
      all.push_back(next);
    }
  }
  return all;
}

std::int64_t bytes_of_row(const ConstView& view) {
  return view.size(3) * static_cast<std::int64_t>(size_of(view.dtype()));
}

void copy_rows(const ConstView& from, std::int64_t b, std::int64_t h, Range rows, std::byte*& to) {
  const std::int64_t bytes = bytes_of_row(from), stride = run::row_bytes(from);
  const std::byte* at = run::rows_of(from, b, h) + rows.begin * stride;
  if (stride == bytes) {
    std::memcpy(to, at, static_cast<std::size_t>(rows.count() * bytes));
    to += rows.count() * bytes;
    return;
  }
  for (std::int64_t i = 0; i < rows.count(); ++i, at += stride, to += bytes)
    std::memcpy(to, at, static_cast<std::size_t>(bytes));
}

}  // namespace

void KeyNeeds::add(Range batch, Range heads, const Ranges& keys) {
  if (keys.empty()) return;
  // Equal lists stay one.
  std::vector<std::size_t> became(lists_.size(), static_cast<std::size_t>(-1));
  for (std::int64_t b = batch.begin; b < batch.end; ++b) {
    for (std::int64_t h = heads.begin; h < heads.end; ++h) {
      std::size_t& list = list_of_[static_cast<std::size_t>(b * heads_ + h)];
      if (became[list] == static_cast<std::size_t>(-1)) {
        became[list] = lists_.size();
        lists_.push_back(united(lists_[list], keys));
      }
      list = became[list];
    }
  }
}

KeyNeeds KeyNeeds::inside(Range positions) const {
  KeyNeeds some = *this;
  for (Ranges& list : some.lists_) list = distributed::inside(list, positions);
  return some;
}

std::int64_t KeyNeeds::rows() const {
  std::int64_t rows = 0;
  for (const std::size_t list : list_of_)
    for (const Range& range : lists_[list]) rows += range.count();
  return rows;
}

std::vector<std::byte> KeyNeeds::to_bytes() const {
  Writer to;
  to.put(batch_);
  to.put(heads_);
  // Only lists that are still somebody's.
  std::vector<std::size_t> number(lists_.size(), 0);
  std::vector<std::size_t> used{0};
  for (const std::size_t list : list_of_) {
    if (list == 0 || number[list] != 0) continue;
    number[list] = used.size();
    used.push_back(list);
  }
  for (const std::size_t list : list_of_) to.put(static_cast<std::int64_t>(number[list]));
  to.put(static_cast<std::int64_t>(used.size()));
  for (const std::size_t list : used) to.put_list(lists_[list]);
  return to.take();
}

KeyNeeds KeyNeeds::from_bytes(std::span<const std::byte> bytes) {
  Reader from(bytes);
  const auto batch = from.get<std::int64_t>();
  KeyNeeds needs(batch, from.get<std::int64_t>());
  for (std::size_t& list : needs.list_of_)
    list = static_cast<std::size_t>(from.get<std::int64_t>());
  const auto lists = from.get<std::int64_t>();
  needs.lists_.clear();
  for (std::int64_t i = 0; i < lists; ++i) needs.lists_.push_back(from.get_list<Range>());
  return needs;
}

std::int64_t bytes_of(const KeyNeeds& needs, const OwnKeys& keys) {
  return needs.rows() * (bytes_of_row(keys.k) + bytes_of_row(keys.v));
}

void pack(const KeyNeeds& needs, const OwnKeys& keys, std::byte* to) {
  for (std::int64_t b = 0; b < needs.batch(); ++b) {
    for (std::int64_t h = 0; h < needs.heads(); ++h) {
      for (const Range& range : needs.of(b, h)) {
        const Range rows{range.begin - keys.positions.begin, range.end - keys.positions.begin};
        copy_rows(keys.k, b, h, rows, to);
        copy_rows(keys.v, b, h, rows, to);
      }
    }
  }
}

ShardKeys::ShardKeys(const OwnKeys& own, const Shards& shards, int rank,
                     const std::vector<KeyNeeds>& needs, Mail& mail)
    : own_(own),
      shards_(shards),
      rank_(rank),
      mail_(mail),
      heads_(own.k.size(1)),
      key_row_(bytes_of_row(own.k)),
      value_row_(bytes_of_row(own.v)),
      segments_(static_cast<std::size_t>(own.k.size(0) * own.k.size(1))) {
  for (std::size_t r = 0; r < needs.size(); ++r) {
    const bool comes = static_cast<int>(r) != rank && needs[r].rows() > 0;
    sends_.push_back(comes ? 1 : 0);
    if (!comes) continue;
    const std::byte* at = mail.receives[r].bytes.data();
    for (std::int64_t b = 0; b < needs[r].batch(); ++b) {
      for (std::int64_t h = 0; h < heads_; ++h) {
        auto& segments = segments_[static_cast<std::size_t>(b * heads_ + h)];
        for (const Range& range : needs[r].of(b, h)) {
          const std::byte* values = at + range.count() * key_row_;
          segments.push_back({range.begin, range.end, at, values});
          at = values + range.count() * value_row_;
        }
      }
    }
  }
}

run::KeyRows ShardKeys::rows(std::int64_t b, std::int64_t head, std::int64_t position) const {
  const Range here = own_.positions;
  if (position >= here.begin && position < here.end) {
    return {.begin = here.begin,
            .end = here.end,
            .keys = run::rows_of(own_.k, b, head),
            .values = run::rows_of(own_.v, b, head),
            .key_stride = run::row_bytes(own_.k),
            .value_stride = run::row_bytes(own_.v)};
  }
  const auto& segments = segments_[static_cast<std::size_t>(b * heads_ + head)];
  const auto at = std::ranges::partition_point(
      segments, [&](const Segment& segment) { return segment.end <= position; });
  if (at == segments.end() || position < at->begin)
    base::internal_error("key {} of head {} did not travel to rank {}", position, head, rank_);
  return {.begin = at->begin,
          .end = at->end,
          .keys = at->keys,
          .values = at->values,
          .key_stride = key_row_,
          .value_stride = value_row_};
}

void ShardKeys::await(Range keys) const {
  mail_.poll();
  for (std::size_t r = 0; r < sends_.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (sends_[r] == 0 || shards_.end(rank) <= keys.begin) continue;
    if (shards_.begin(rank) >= keys.end) break;
    if (!mail_.has(r)) mail_.await(r);
  }
}

int ShardKeys::turn(int rank) const {
  const auto ranks = static_cast<int>(sends_.size());
  const int after = (rank - rank_ + ranks) % ranks;
  return std::min(2 * after - 1, 2 * (ranks - after));
}

int ShardKeys::stage(Range keys) const {
  int stage = 0;
  for (std::size_t r = 0; r < sends_.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (sends_[r] == 0 || shards_.end(rank) <= keys.begin) continue;
    if (shards_.begin(rank) >= keys.end) break;
    stage = std::max(stage, turn(rank));
  }
  return stage;
}

bool PartKeys::needs_copy(DType compute) const {
  const OwnKeys& own = all_.own();
  return own.k.dtype() != compute || own.v.dtype() != compute || !run::rows_touch(own.k) ||
         !run::rows_touch(own.v);
}

}  // namespace treadle::distributed
