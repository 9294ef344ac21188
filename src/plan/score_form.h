// How a score mod enters the softmax, which works in powers of two: s2 = log2(e) * mod(score).
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace treadle::plan {

struct ScoreForm {
  enum class Kind : std::uint8_t {
    plain,    // mod(score) = score: log2(e) goes into the queries, and nothing is left to do
    added,    // mod(score) = score + graph, which does not use the score: log2(e) goes into the
              // queries, and log2(e) * graph is added
    general,  // mod(score) = graph
  };
  Kind kind = Kind::plain;
  ir::Graph graph;  // empty when plain

  // What the queries are multiplied with besides the scale.
  [[nodiscard]] double factor() const;
  bool operator==(const ScoreForm&) const = default;
};

ScoreForm score_form(const ir::Graph& score_mod);

}  // namespace treadle::plan
