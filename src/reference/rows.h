// Rows of scores: what forward and backward share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/interpret.h"
#include "reference/attention.h"

namespace treadle::reference {

struct Sizes {
  std::int64_t batch, heads, key_batch, key_heads, queries, keys, dim, value_dim;

  explicit Sizes(const Problem& problem);
  [[nodiscard]] std::int64_t group() const { return heads / key_heads; }
  [[nodiscard]] std::int64_t key_batch_of(std::int64_t b) const { return key_batch == 1 ? 0 : b; }
};

// The rows of one head, widened to F and contiguous.
template <class F>
std::vector<F> head_rows(const ConstView& view, std::int64_t batch, std::int64_t head);

// [rows, columns] -> [columns, rows]. Loops over keys then run along memory.
template <class F>
std::vector<F> transposed(std::span<const F> matrix, std::int64_t rows, std::int64_t columns);

// out[n] = sum_d x[d] * matrix[d][n]
template <class F>
void row_times(std::span<const F> x, std::span<const F> matrix, std::span<F> out);

// Scores of one query against all keys, after the score mod and the mask.
template <class F>
class ScoreRow {
 public:
  ScoreRow(const Problem& problem, std::int64_t keys);

  // From plain dot products, scaled, of batch b, head h and query q as mods see them. Throws treadle::Error on
  // poison that matters.
  void compute(std::span<const F> plain, std::int64_t b, std::int64_t h, std::int64_t q);

  [[nodiscard]] std::span<const F> scores() const { return scores_; }  // -inf where hidden
  [[nodiscard]] std::span<const std::uint8_t> visible() const { return visible_; }
  [[nodiscard]] std::span<const std::int64_t> keys() const { return keys_; }

  // What dropout multiplies the weight of key number n with.
  [[nodiscard]] double dropout_factor(const base::DropoutRule* dropout, std::int64_t b,
                                      std::int64_t h, std::int64_t q, std::size_t n) const {
    return dropout == nullptr ? 1 : dropout->factor(b, h, q, keys_[n]);
  }

 private:
  ir::Interpreter<F> score_mod_;
  ir::Interpreter<double> mask_;
  std::vector<std::int64_t> keys_;  // as mods see them
  std::vector<F> scores_;
  std::vector<std::uint8_t> visible_;
};

}  // namespace treadle::reference
