// A transpose of a square of vectors, by interleaving.
//
// In: n vectors of n elements. Out: the transposed square. Read network() first: vectors i and
// i + n/2 become 2i and 2i + 1, log2(n) times. First elements are interleaved inside 16 bytes,
// which every machine can do in one instruction; then whole pieces of 16 bytes.
#include "emit/llvm/transpose_vectors.h"

#include <algorithm>

namespace treadle::emit::llvm {
namespace {

// Interleaves the `unit`-element units of a and b within every `segment` elements: their lower
// halves, or their upper ones.
Value* interleave(Builder& build, Value* a, Value* b, int unit, int segment, bool upper) {
  const auto size =
      static_cast<int>(::llvm::cast<::llvm::FixedVectorType>(a->getType())->getNumElements());
  ::llvm::SmallVector<int> mask;
  for (int begin = 0; begin < size; begin += segment) {
    const int half = begin + (upper ? segment / 2 : 0);
    for (int at = half; at < half + segment / 2; at += unit) {
      for (int i = 0; i < unit; ++i) mask.push_back(at + i);
      for (int i = 0; i < unit; ++i) mask.push_back(size + at + i);
    }
  }
  return build.CreateShuffleVector(a, b, mask);
}

Values network(Builder& build, Values rows, int unit, int segment) {
  const std::size_t n = rows.size();
  for (std::size_t step = 1; step < n; step *= 2) {
    Values next(n);
    for (std::size_t i = 0; i < n / 2; ++i) {
      next[2 * i] = interleave(build, rows[i], rows[i + n / 2], unit, segment, false);
      next[2 * i + 1] = interleave(build, rows[i], rows[i + n / 2], unit, segment, true);
    }
    rows = std::move(next);
  }
  return rows;
}

}  // namespace

Values transpose_vectors(Builder& build, const Values& rows) {
  const std::size_t n = rows.size();
  const std::size_t bytes = rows[0]->getType()->getScalarSizeInBits() / 8;
  const std::size_t piece = std::min(n, 16 / bytes);
  const std::size_t pieces = n / piece;
  // Groups of as many rows as a piece has elements: each piece becomes a transposed square.
  Values squares;
  for (std::size_t group = 0; group < pieces; ++group) {
    const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(group * piece);
    const Values done = network(build, Values(begin, begin + static_cast<std::ptrdiff_t>(piece)), 1,
                                static_cast<int>(piece));
    squares.insert(squares.end(), done.begin(), done.end());
  }
  // Row e of every group: the pieces change places as elements did before.
  Values result(n);
  for (std::size_t e = 0; e < piece; ++e) {
    Values same;
    for (std::size_t group = 0; group < pieces; ++group) same.push_back(squares[group * piece + e]);
    same = network(build, std::move(same), static_cast<int>(piece), static_cast<int>(n));
    for (std::size_t s = 0; s < pieces; ++s) result[s * piece + e] = same[s];
  }
  return result;
}

}  // namespace treadle::emit::llvm
