// DecodeLists: how the work of decoding is cut.
//
// A list is a sequence and a key head: its keys, chunk by chunk, are one item of the last phase. Some
// chunks are items of a phase before that, and what they leave is kept: those of keys that several
// sequences share, and those of lists that are too long for one thread.
//
// In: sequences with their layouts, shared keys. Out: lists, and parts of them that are kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layout/range.h"
#include "layout/run.h"
#include "run/decode.h"

namespace treadle::run {

// Chunks of some sequences, each sequence with its rows, whose sums are kept for every key head.
struct KeptChunks {
  const SharedKeys* shared = nullptr;  // whose sequences these are, or null: of one sequence,
  std::int64_t sequence = 0;           // this one
  layout::Range chunks;
  std::int64_t end = 0;  // keys from here on are not in it, though their chunk may be
  std::int64_t rows = 0;
  const DecodeKernels* kernels = nullptr;

  [[nodiscard]] std::span<const std::int64_t> sequences() const {
    return shared == nullptr ? std::span(&sequence, 1) : std::span(shared->sequences);
  }
};

// Lists per thread that keep all threads busy to the end; chunks of fewer lists are kept.
inline constexpr std::int64_t enough_lists = 4;

struct DecodeLists {
  struct Sequence {
    std::int64_t queries = 0, rows = 0;  // of a key head
    layout::Range chunks;                // of all key heads
    // Its parts among `kept`, or -1: keys that it shares, and its own. The second begins after the
    // first ends.
    std::int64_t shared = -1, own = -1;
    std::int64_t shared_row = 0;  // its first one among those of `shared`
  };
  std::vector<Sequence> sequences;
  std::vector<KeptChunks> kept;
  std::int64_t key_heads = 0, group = 1;

  [[nodiscard]] std::span<const layout::Run> runs(const DecodeProblem& problem,
                                                  std::int64_t sequence,
                                                  std::int64_t key_head) const;
};

// Into `made`, whose memory is used again. The problem outlives it.
void decode_lists(const DecodeProblem& problem, std::int64_t threads, DecodeLists& made);

}  // namespace treadle::run
