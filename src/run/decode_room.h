// The memory of decoding: states of rows, and what a thread needs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "run/decode.h"
#include "run/decode_blocks.h"
#include "run/scratch.h"
#include "run/tile.h"

namespace treadle::run {

// m, l and O of rows, one after the other.
template <class F>
struct DecodeStates {
  F *maximum, *weight, *sums;
  std::int64_t rows, value_dim;

  DecodeStates(Carver& carver, std::int64_t count, std::int64_t width)
      : maximum(carver.take<F>(count)),
        weight(carver.take<F>(count)),
        sums(carver.take<F>(count * width)),
        rows(count),
        value_dim(width) {}

  static std::size_t bytes(std::int64_t count, std::int64_t width) {
    return static_cast<std::size_t>(
        measured([&](Carver& carver) { DecodeStates(carver, count, width); }));
  }

  // Some of them.
  [[nodiscard]] DecodeStates part(std::int64_t first, std::int64_t count) const {
    DecodeStates some = *this;
    some.maximum += first;
    some.weight += first;
    some.sums += first * value_dim;
    some.rows = count;
    return some;
  }
  void clear() const {
    TileState<F> all{maximum, weight, sums};
    all.clear(rows, value_dim);
  }
  void copy(const DecodeStates& from) const {
    std::copy_n(from.maximum, rows, maximum);
    std::copy_n(from.weight, rows, weight);
    std::copy_n(from.sums, rows * value_dim, sums);
  }
  void merge(const DecodeStates& after) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto row = [&](const DecodeStates& of) {
        return TileState<F>{of.maximum + r, of.weight + r, of.sums + r * value_dim};
      };
      run::merge(row(*this), row(after), std::int64_t{1}, value_dim);
    }
  }
};

// Of all kernels and items of a call.
struct DecodeSizes {
  std::int64_t rows = 0, frame = 0, dim = 0, value_dim = 0;
  DecodeBlockSize block;

  void cover(const DecodeKernels& kernels, std::int64_t of_rows) {
    const plan::DecodeKernelSpec& spec = kernels.spec;
    rows = std::max(rows, of_rows);
    frame = std::max(frame, kernels.frame);
    dim = spec.dim;
    value_dim = spec.value_dim;
    block = {.keys = std::max(block.keys, spec.key_block),
             .lanes = spec.target.lanes(spec.compute),
             .key_bytes = dim * static_cast<std::int64_t>(size_of(spec.key_type)),
             .value_bytes = value_dim * static_cast<std::int64_t>(size_of(spec.value_type))};
  }
};

// A thread's memory.
template <class F>
struct DecodeRoom {
  F *queries, *turned, *values, *scores, *results;
  std::int32_t *positions, *heads, *entries;
  std::byte* frame;
  DecodeStates<F> part, total;
  DecodeBlocks::Room blocks;

  DecodeRoom(Carver& carver, const DecodeSizes& most)
      : queries(carver.take<F>(most.rows * most.dim)),
        turned(carver.take<F>(most.block.keys * most.dim)),
        values(carver.take<F>(most.block.keys * most.value_dim)),
        scores(carver.take<F>(most.rows * most.block.keys)),
        results(carver.take<F>(most.rows * most.value_dim)),
        positions(carver.take<std::int32_t>(most.rows)),
        heads(carver.take<std::int32_t>(most.rows)),
        entries(carver.take<std::int32_t>(most.rows)),
        frame(carver.take<std::byte>(most.frame)),
        part(carver, most.rows, most.value_dim),
        total(carver, most.rows, most.value_dim),
        blocks(carver, most.block) {}
};

}  // namespace treadle::run
