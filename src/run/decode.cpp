// Rows of a key head against its keys, chunk by chunk, joined in order.
//
//   phase 0, for (kept chunk, key head):        on any thread; run/decode_lists.h says which there are
//     for block of keys:                        a kernel: m, l and O of the chunk go on
//   phase 1, for (sequence, key head):          on any thread
//     for chunk:
//       for block of keys, unless it is kept:   a kernel
//       merge the chunk's m, l and O into those before
//     divide O by l, write rows, lse and max
//
// Read DecoderOf::run_list() first.
#include "run/decode.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <span>
#include <utility>

#include "plan/chunks.h"
#include "run/decode_blocks.h"
#include "run/decode_lists.h"
#include "run/decode_room.h"
#include "run/row_results.h"
#include "run/wanted_keys.h"

namespace treadle::run {

// One for each compute type.
class DecodeWork::Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void start(const DecodeProblem& problem, const base::Workers& workers,
                     Scratch& scratch) = 0;
  virtual void end() = 0;
  virtual void keep(std::int64_t item, Workspace& workspace) = 0;
  virtual void run_list(std::int64_t number, Workspace& workspace) = 0;

  DecodeLists lists;
  std::size_t room = 0;                    // bytes of a thread's memory
  std::int64_t kept_items = 0;             // chunks of key heads
  std::vector<std::int64_t> order;         // of lists: longest first
  std::vector<std::atomic<bool>> unclear;  // of each sequence; there may be more
};

namespace {

// What keys cost (layout::TileWeights): reading them takes as long as multiplying so many rows.
double cost_of(std::int64_t keys, std::int64_t rows) {
  constexpr double reading = 8;
  return static_cast<double>(keys) * (reading + static_cast<double>(rows));
}

template <class F>
class DecoderOf final : public DecodeWork::Decoder {
 public:
  void start(const DecodeProblem& problem, const base::Workers& workers, Scratch& scratch) override;
  void end() override { between_.reset(); }
  void keep(std::int64_t item, Workspace& workspace) override;
  void run_list(std::int64_t number, Workspace& workspace) override;

 private:
  using Sequence = DecodeLists::Sequence;

  [[nodiscard]] const DecodeSequence& given(std::int64_t sequence) const {
    return problem_->sequences[static_cast<std::size_t>(sequence)];
  }
  [[nodiscard]] const Sequence& measured_of(std::int64_t sequence) const {
    return lists.sequences[static_cast<std::size_t>(sequence)];
  }
  DecodeRoom<F> room_of(Workspace& workspace, const DecodeKernels& kernels) const;
  // Where the sums of a kept chunk are.
  [[nodiscard]] DecodeStates<F> kept_at(std::int64_t kept, std::int64_t key_head,
                                        std::int64_t chunk) const;

  // Of a sequence, behind `row` rows that are there already. Returns how many there are then.
  std::int64_t load_queries(std::int64_t sequence, std::int64_t key_head, std::int64_t row,
                            const DecodeRoom<F>& room) const;
  void run_keys(const DecodeKernels& kernels, std::int64_t sequence, std::int64_t key_head,
                layout::Range keys, const DecodeRoom<F>& room, const DecodeStates<F>& states) const;
  // A chunk of a list: the states of its rows, or none if they look at nothing there.
  [[nodiscard]] std::optional<DecodeStates<F>> chunk_of(std::int64_t sequence,
                                                        std::int64_t key_head, std::int64_t chunk,
                                                        const DecodeRoom<F>& room,
                                                        bool& loaded) const;
  void write(std::int64_t sequence, std::int64_t key_head, const DecodeRoom<F>& room,
             const DecodeStates<F>& total);

  const DecodeProblem* problem_ = nullptr;
  const base::Workers* workers_ = nullptr;
  DecodeSizes most_;
  std::vector<std::size_t> offsets_;  // of each of lists.kept in states_
  std::vector<std::int64_t> first_items_;
  std::optional<Scratch::Share> between_;
  std::byte* states_ = nullptr;
};

template <class F>
void DecoderOf<F>::start(const DecodeProblem& problem, const base::Workers& workers,
                         Scratch& scratch) {
  problem_ = &problem;
  workers_ = &workers;
  most_ = {};
  offsets_.clear();
  first_items_.clear();
  between_.reset();
  states_ = nullptr;
  kept_items = 0;
  decode_lists(problem, workers.threads(), lists);
  if (unclear.size() < problem.sequences.size())
    unclear = std::vector<std::atomic<bool>>(problem.sequences.size());
  for (std::atomic<bool>& flag : unclear) flag.store(false, std::memory_order_relaxed);
  for (std::size_t i = 0; i < problem.sequences.size(); ++i)
    most_.cover(problem.sequences[i].kernels, lists.sequences[i].rows);
  std::size_t bytes = 0;
  for (const KeptChunks& kept : lists.kept) {
    most_.cover(*kept.kernels, kept.rows);
    offsets_.push_back(bytes);
    first_items_.push_back(kept_items);
    const std::int64_t items = kept.chunks.count() * lists.key_heads;
    bytes += static_cast<std::size_t>(items) * DecodeStates<F>::bytes(kept.rows, most_.value_dim);
    kept_items += items;
  }
  if (bytes > 0) {
    between_.emplace(scratch, 1, WorkspaceNeed{.bytes = bytes});
    states_ = between_->front().memory();
  }
  room = static_cast<std::size_t>(measured([&](Carver& carver) { DecodeRoom<F>(carver, most_); }));
  order.resize(problem.sequences.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  std::ranges::sort(order, {}, [&](std::int64_t sequence) {
    const Sequence& of = measured_of(sequence);
    return std::pair(-of.chunks.count() * of.rows, sequence);
  });
}

template <class F>
DecodeRoom<F> DecoderOf<F>::room_of(Workspace& workspace, const DecodeKernels& kernels) const {
  Carver carver(workspace.memory());
  DecodeRoom<F> room(carver, most_);
  workspace.check(carver);
  room.blocks.size.keys = kernels.spec.key_block;
  return room;
}

template <class F>
DecodeStates<F> DecoderOf<F>::kept_at(std::int64_t number, std::int64_t key_head,
                                      std::int64_t chunk) const {
  const auto at = static_cast<std::size_t>(number);
  const KeptChunks& kept = lists.kept[at];
  const std::int64_t item = key_head * kept.chunks.count() + chunk - kept.chunks.begin;
  Carver carver(states_ + offsets_[at] +
                static_cast<std::size_t>(item) *
                    DecodeStates<F>::bytes(kept.rows, most_.value_dim));
  return {carver, kept.rows, most_.value_dim};
}

// Rows in the compute type, scaled.
template <class F>
std::int64_t DecoderOf<F>::load_queries(std::int64_t sequence, std::int64_t key_head,
                                        std::int64_t row, const DecodeRoom<F>& room) const {
  const DecodeSequence& from = given(sequence);
  const std::int64_t queries = measured_of(sequence).queries, dim = most_.dim;
  F* first = room.queries + row * dim;
  for (std::int64_t g = 0; g < lists.group; ++g) {
    const std::int64_t h = key_head * lists.group + g;
    load_rows(from.kernels.load_q, from.problem.q, from.entry, h, nullptr, queries,
              room.queries + row * dim, dim);
    for (std::int64_t i = 0; i < queries; ++i, ++row) {
      room.heads[row] = static_cast<std::int32_t>(h);
      room.entries[row] = static_cast<std::int32_t>(from.b);
      room.positions[row] = static_cast<std::int32_t>(from.layout.extent.queries.begin + i);
    }
  }
  const F factor = static_cast<F>(from.problem.scale * from.kernels.query_factor);
  for (F* x = first; x < room.queries + row * dim; ++x) *x *= factor;
  return row;
}

// What the rows in the room see of some keys of a chunk.
template <class F>
void DecoderOf<F>::run_keys(const DecodeKernels& kernels, std::int64_t sequence,
                            std::int64_t key_head, layout::Range keys, const DecodeRoom<F>& room,
                            const DecodeStates<F>& states) const {
  workers_->check();
  const DecodeSequence& of = given(sequence);
  DecodeBlocks blocks(of.problem.keys, of.entry, key_head, room.blocks);
  for (blocks.start(lists.runs(*problem_, sequence, key_head), keys); blocks.next();) {
    const DecodeBlock &now = blocks.now(), &ahead = blocks.ahead();
    (now.full ? kernels.full : kernels.masked)({.groups = now.groups,
                                                .next = ahead.groups,
                                                .key_scales = now.key_scales,
                                                .value_scales = now.value_scales,
                                                .key_positions = now.positions,
                                                .count = now.count,
                                                .queries = room.queries,
                                                .positions = room.positions,
                                                .heads = room.heads,
                                                .entries = room.entries,
                                                .rows = states.rows,
                                                .score_captures = problem_->score_captures.data(),
                                                .mask_captures = problem_->mask_captures.data(),
                                                .dropout = &of.problem.dropout,
                                                .frame = room.frame,
                                                .turned = room.turned,
                                                .values = room.values,
                                                .scores = room.scores,
                                                .sums = states.sums,
                                                .maximum = states.maximum,
                                                .weight = states.weight});
  }
}

template <class F>
void DecoderOf<F>::keep(std::int64_t item, Workspace& workspace) {
  const auto after = std::ranges::upper_bound(first_items_, item);
  const std::int64_t number = after - first_items_.begin() - 1;
  const KeptChunks& kept = lists.kept[static_cast<std::size_t>(number)];
  item -= first_items_[static_cast<std::size_t>(number)];
  const std::int64_t key_head = item / kept.chunks.count();
  const std::int64_t chunk = kept.chunks.begin + item % kept.chunks.count();
  layout::Range keys = plan::keys_of_chunk(chunk);
  keys.end = std::min(keys.end, kept.end);
  const std::int64_t first = kept.sequences().front();
  if (!reaches(lists.runs(*problem_, first, key_head), keys)) return;
  const DecodeRoom<F> room = room_of(workspace, *kept.kernels);
  std::int64_t rows = 0;
  for (const std::int64_t sequence : kept.sequences())
    rows = load_queries(sequence, key_head, rows, room);
  const DecodeStates<F> states = kept_at(number, key_head, chunk);
  states.clear();
  run_keys(*kept.kernels, first, key_head, keys, room, states);
}

template <class F>
std::optional<DecodeStates<F>> DecoderOf<F>::chunk_of(std::int64_t number, std::int64_t key_head,
                                                      std::int64_t chunk, const DecodeRoom<F>& room,
                                                      bool& loaded) const {
  const Sequence& sequence = measured_of(number);
  const auto runs = lists.runs(*problem_, number, key_head);
  layout::Range keys = plan::keys_of_chunk(chunk);
  std::optional<DecodeStates<F>> found;
  for (const std::int64_t part : {sequence.shared, sequence.own}) {
    if (part < 0) continue;
    const KeptChunks& kept = lists.kept[static_cast<std::size_t>(part)];
    if (chunk < kept.chunks.begin || chunk >= kept.chunks.end) continue;
    const layout::Range seen{keys.begin, std::min(keys.end, kept.end)};
    const std::int64_t row = part == sequence.shared ? sequence.shared_row : 0;
    if (reaches(runs, seen)) found = kept_at(part, key_head, chunk).part(row, sequence.rows);
    keys.begin = seen.end;
  }
  if (!reaches(runs, keys)) return found;
  if (!loaded) load_queries(number, key_head, 0, room);
  loaded = true;
  const DecodeStates<F> states = room.part.part(0, sequence.rows);
  if (found) {
    states.copy(*found);
  } else {
    states.clear();
  }
  run_keys(given(number).kernels, number, key_head, keys, room, states);
  return states;
}

template <class F>
void DecoderOf<F>::run_list(std::int64_t list, Workspace& workspace) {
  const std::int64_t number = order[static_cast<std::size_t>(list / lists.key_heads)];
  const std::int64_t key_head = list % lists.key_heads;
  const Sequence& sequence = measured_of(number);
  DecodeRoom<F> room = room_of(workspace, given(number).kernels);
  bool loaded = false;
  std::optional<DecodeStates<F>> total;
  for (std::int64_t chunk = sequence.chunks.begin; chunk < sequence.chunks.end; ++chunk) {
    const auto part = chunk_of(number, key_head, chunk, room, loaded);
    if (!part) continue;
    if (total) {
      total->merge(*part);
      continue;
    }
    total = part;
    // The next chunk needs the room that this one's sums are in.
    if (part->sums == room.part.sums) std::swap(room.part, room.total);
  }
  if (!total) {
    total = room.total.part(0, sequence.rows);
    total->clear();
  }
  write(number, key_head, room, *total);
}

template <class F>
void DecoderOf<F>::write(std::int64_t number, std::int64_t key_head, const DecodeRoom<F>& room,
                         const DecodeStates<F>& total) {
  const DecodeSequence& to = given(number);
  const std::int64_t queries = measured_of(number).queries, value_dim = total.value_dim;
  for (std::int64_t r = 0; r < total.rows; ++r) {
    F* row = room.results + r * value_dim;
    const F* sums = total.sums + r * value_dim;
    const double* sink = to.problem.sink(key_head * lists.group + r / queries);
    const F factor = factor_of(total.maximum[r], total.weight[r], sink, to.problem.dropout.scale);
    for (std::int64_t d = 0; d < value_dim; ++d) row[d] = sums[d] * factor;
    if (!settle(total.maximum[r], total.weight[r], row, value_dim))
      unclear[static_cast<std::size_t>(number)] = true;
  }
  for (std::int64_t g = 0; g < lists.group; ++g) {
    const std::int64_t h = key_head * lists.group + g, first = g * queries;
    store_rows(to.kernels.store_out, room.results + first * value_dim, value_dim, to.problem.out,
               to.entry, h, nullptr, queries);
    const auto put = [&](const std::optional<View>& view, auto value_of) {
      put_rows<F>(view, to.entry, h, nullptr, queries, value_of);
    };
    const F *maximum = total.maximum + first, *weight = total.weight + first;
    put(to.problem.max, [&](std::int64_t i) { return natural_maximum(maximum[i]); });
    put(to.problem.lse,
        [&](std::int64_t i) { return natural_lse(maximum[i], weight[i], to.problem.sink(h)); });
  }
}

}  // namespace

DecodeWork::DecodeWork() = default;
DecodeWork::~DecodeWork() = default;

void DecodeWork::start(const DecodeProblem& problem, const base::Workers& workers,
                       Scratch& scratch) {
  if (problem.sequences.front().kernels.spec.compute == DType::f64) {
    if (f64_ == nullptr) f64_ = std::make_unique<DecoderOf<double>>();
    decoder_ = f64_.get();
  } else {
    if (f32_ == nullptr) f32_ = std::make_unique<DecoderOf<float>>();
    decoder_ = f32_.get();
  }
  decoder_->start(problem, workers, scratch);
}

void DecodeWork::end() {
  if (decoder_ != nullptr) decoder_->end();
  decoder_ = nullptr;
}

int DecodeWork::phases() const { return 2; }

std::int64_t DecodeWork::count(int phase) const {
  const DecodeLists& lists = decoder_->lists;
  return phase == 0 ? decoder_->kept_items : std::ssize(lists.sequences) * lists.key_heads;
}

double DecodeWork::cost(int phase, std::int64_t item) const {
  const DecodeLists& lists = decoder_->lists;
  if (phase == 0) {  // each is at most a chunk
    std::int64_t rows = 0;
    for (const KeptChunks& kept : lists.kept) rows = std::max(rows, kept.rows);
    return cost_of(plan::keys_of_chunk(0).count(), rows);
  }
  const auto number =
      static_cast<std::size_t>(decoder_->order[static_cast<std::size_t>(item / lists.key_heads)]);
  const DecodeLists::Sequence& sequence = lists.sequences[number];
  return cost_of(sequence.chunks.empty() ? 0 : plan::keys_of_chunks(sequence.chunks).count(),
                 sequence.rows);
}

WorkspaceNeed DecodeWork::need() const { return {.bytes = decoder_->room}; }

void DecodeWork::run(int phase, std::int64_t item, std::int64_t, Workspace& workspace) {
  if (phase == 0) {
    decoder_->keep(item, workspace);
  } else {
    decoder_->run_list(item, workspace);
  }
}

std::vector<std::int64_t> DecodeWork::unclear() const {
  std::vector<std::int64_t> found;
  for (std::size_t i = 0; i < decoder_->lists.sequences.size(); ++i)
    if (decoder_->unclear[i]) found.push_back(static_cast<std::int64_t>(i));
  return found;
}

std::int64_t decode_scratch(const DecodeKernels& kernels, const DecodeCapacity& capacity) {
  const auto bytes_for = [&]<class F>(F) {
    DecodeSizes sizes;
    sizes.cover(kernels, capacity.rows);
    const std::int64_t kept =
        capacity.chunks > 1 ? std::min(enough_lists, capacity.lists) * capacity.chunks : 0;
    const std::size_t state = DecodeStates<F>::bytes(capacity.rows, kernels.spec.value_dim);
    return measured([&](Carver& carver) { DecodeRoom<F>(carver, sizes); }) +
           kept * static_cast<std::int64_t>(state);
  };
  return kernels.spec.compute == DType::f64 ? bytes_for(double{}) : bytes_for(float{});
}

void needed(const DecodeKernels& kernels, const layout::OneTile& layout, Missing& missing) {
  if (layout.has_full) missing.add(kernels.full);
  if (layout.has_partial) missing.add(kernels.masked);
  missing.add(kernels.load_q);
  missing.add(kernels.store_out);
}

void all_of(const DecodeKernels& kernels, bool may_hide, Missing& missing) {
  missing.add(kernels.full);
  if (may_hide) missing.add(kernels.masked);
  missing.add(kernels.load_q);
  missing.add(kernels.store_out);
}

}  // namespace treadle::run
