// Records sent to the owners of slices, and added there. Read join() first.
#include "distributed/capture_records.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <tuple>

#include "distributed/bytes.h"
#include "run/scratch.h"
#include "run/sum_tree.h"

namespace treadle::distributed {
namespace {

using layout::Range;

constexpr std::int64_t page = 64;  // elements; slices are of whole pages

// As it lies in a message, before its values.
struct Head {
  RecordPlace place;
  Range elements;
};

struct Record {
  Head head;
  std::int64_t rank = 0;
  const std::byte* values = nullptr;

  [[nodiscard]] auto order(Sums sums) const {
    const RecordPlace& p = head.place;
    return std::tuple(p.capture, p.pass, p.task, sums == Sums::per_rank ? 0 : p.first_leaf, rank);
  }
  [[nodiscard]] bool same_task(const Record& other) const {
    const RecordPlace &a = head.place, &b = other.head.place;
    return std::tie(a.capture, a.pass, a.task) == std::tie(b.capture, b.pass, b.task);
  }
  [[nodiscard]] bool same_node(const Record& other) const {
    const RecordPlace &a = head.place, &b = other.head.place;
    return same_task(other) && std::tie(a.level, a.first_leaf, a.end_leaf) ==
                                   std::tie(b.level, b.first_leaf, b.end_leaf);
  }
};

// Values lie wherever a message put them.
template <class F>
void add_values(F* to, const Record& record, std::int64_t first) {
  const Range elements = record.head.elements;
  for (std::int64_t e = 0; e < elements.count(); ++e) {
    F value;
    std::memcpy(&value, record.values + e * static_cast<std::int64_t>(sizeof(F)), sizeof(F));
    to[elements.begin - first + e] += value;
  }
}

// Adds a task's records to a slice.
template <class F>
void add_task(std::span<const Record> records, Range slice, F* to, Sums sums) {
  const RecordPlace& place = records.front().head.place;
  if (place.level < 0 || sums == Sums::per_rank) {
    for (const Record& record : records) add_values(to, record, slice.begin);
    return;
  }
  run::SumTree<F> tree;
  run::Workspace work;
  const std::int64_t rows = (slice.count() + page - 1) / page;
  const auto carve = [&](run::Carver& carver) { tree.carve(carver, rows, page, place.leaves); };
  work.reserve({.bytes = static_cast<std::size_t>(run::measured(carve))});
  run::Carver carver(work.memory());
  carve(carver);
  tree.clear();
  for (std::size_t i = 0; i < records.size();) {
    const std::size_t first = i;
    const RecordPlace& node = records[first].head.place;
    const plan::TreePiece piece{static_cast<int>(node.level), {node.first_leaf, node.end_leaf}};
    tree.open_piece(piece);
    for (; i < records.size() && records[i].same_node(records[first]); ++i) {
      const Range elements = records[i].head.elements;
      tree.touch((elements.begin - slice.begin) / page,
                 (elements.end - slice.begin + page - 1) / page);
      add_values(tree.leaf(), records[i], slice.begin);
    }
    tree.close_piece(piece);
  }
  tree.finish_touched([&](std::int64_t begin, std::int64_t end, const F* own) {
    const std::int64_t count = std::min(end * page, slice.count()) - begin * page;
    for (std::int64_t e = 0; e < count; ++e) to[begin * page + e] += own[e];
  });
}

template <class F>
std::vector<std::byte> sums_of(std::span<const Record> records, Range slice, Sums sums) {
  std::vector<F> total(static_cast<std::size_t>(slice.count()), F{0});
  for (std::size_t i = 0; i < records.size();) {
    const std::size_t first = i;
    while (i < records.size() && records[i].same_task(records[first])) ++i;
    add_task(records.subspan(first, i - first), slice, total.data(), sums);
  }
  const auto bytes = std::as_bytes(std::span(total));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

CaptureRecords::CaptureRecords(std::vector<std::int64_t> counts, DType compute, int ranks)
    : counts_(std::move(counts)),
      compute_(compute),
      ranks_(ranks),
      to_(static_cast<std::size_t>(ranks)) {}

Range CaptureRecords::slice_of(std::size_t capture, int rank) const {
  const std::int64_t count = counts_[capture];
  const Shards pages = Shards::even((count + page - 1) / page, ranks_);
  return {std::min(pages.begin(rank) * page, count), std::min(pages.end(rank) * page, count)};
}

void CaptureRecords::add(const RecordPlace& place, Range elements, const void* values) {
  const auto size = static_cast<std::int64_t>(size_of(compute_));
  const std::lock_guard lock(mutex_);
  for (int r = 0; r < ranks_; ++r) {
    const Range slice = slice_of(static_cast<std::size_t>(place.capture), r);
    const Range some{std::max(slice.begin, elements.begin), std::min(slice.end, elements.end)};
    if (some.empty()) continue;
    const Head head{place, some};
    std::vector<std::byte>& to = to_[static_cast<std::size_t>(r)];
    const auto raw = std::as_bytes(std::span(&head, 1));
    to.insert(to.end(), raw.begin(), raw.end());
    const auto* from = static_cast<const std::byte*>(values) + (some.begin - elements.begin) * size;
    to.insert(to.end(), from, from + some.count() * size);
  }
}

void CaptureRecords::clear() {
  for (std::vector<std::byte>& bytes : to_) bytes.clear();
}

std::vector<Tensor> CaptureRecords::join(Channel& channel, std::string_view call, Sums sums) const {
  const auto size = static_cast<std::int64_t>(size_of(compute_));
  const auto given = channel.swap(to_, call);
  std::vector<Record> records;
  for (std::size_t rank = 0; rank < given.size(); ++rank) {
    Reader from(given[rank]);
    while (!from.done()) {
      Record record{from.get<Head>(), static_cast<std::int64_t>(rank), nullptr};
      record.values =
          from.take(static_cast<std::size_t>(record.head.elements.count() * size)).data();
      records.push_back(record);
    }
  }
  std::ranges::stable_sort(records, {}, [&](const Record& record) { return record.order(sums); });
  std::vector<std::byte> own;
  for (std::size_t c = 0; c < counts_.size(); ++c) {
    const auto some =
        std::ranges::equal_range(records, static_cast<std::int64_t>(c), {},
                                 [](const Record& record) { return record.head.place.capture; });
    const std::span<const Record> of_capture(some.begin(), some.end());
    const Range slice = slice_of(c, channel.rank());
    const std::vector<std::byte> sums_here = compute_ == DType::f64
                                                 ? sums_of<double>(of_capture, slice, sums)
                                                 : sums_of<float>(of_capture, slice, sums);
    own.insert(own.end(), sums_here.begin(), sums_here.end());
  }
  std::vector<Tensor> totals;
  for (const std::int64_t count : counts_) totals.emplace_back(compute_, Dims{count});
  const auto slices = channel.share(own, call);
  for (int r = 0; r < ranks_; ++r) {
    Reader from(slices[static_cast<std::size_t>(r)]);
    for (std::size_t c = 0; c < counts_.size(); ++c) {
      const Range slice = slice_of(c, r);
      if (slice.empty()) continue;
      const auto bytes = from.take(static_cast<std::size_t>(slice.count() * size));
      std::memcpy(static_cast<std::byte*>(totals[c].view().data()) + slice.begin * size,
                  bytes.data(), bytes.size());
    }
  }
  return totals;
}

std::vector<std::int64_t> task_numbers(const layout::Layout& layout, const backend::Sizes& all,
                                       const Part& part,
                                       std::span<const plan::CaptureReach> reaches,
                                       std::int64_t chunks_per_task) {
  const backend::Sizes own = part.sizes(all);
  std::map<std::array<std::int64_t, 3>, std::int64_t> global;
  const auto schedule = [&](std::int64_t batch, std::int64_t heads) {
    return plan::schedule_chunks(layout, {batch, heads}, reaches, chunks_per_task);
  };
  for (const auto& group : schedule(all.key_batch, all.key_heads).groups)
    for (const plan::BackwardTask& task : group)
      global[{task.chunks.begin, task.key_batch, task.key_head}] = task.number;
  const plan::BackwardSchedule local = schedule(own.key_batch, own.key_heads);
  const std::int64_t first_b = all.key_batch == 1 ? 0 : part.piece.batch.begin;
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(local.tasks));
  for (const auto& group : local.groups)
    for (const plan::BackwardTask& task : group)
      numbers[static_cast<std::size_t>(task.number)] = global[{
          task.chunks.begin, first_b + task.key_batch, part.piece.key_heads.begin + task.key_head}];
  return numbers;
}

}  // namespace treadle::distributed
