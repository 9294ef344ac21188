// Attention sinks: a logit per head beside the scores of every row.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "treadle/attention.h"

namespace treadle::api {

// The sinks of a call, checked; empty if there are none.
std::vector<double> sinks_of(std::string_view call, const std::optional<ConstView>& given,
                             const backend::Sizes& sizes);
// The same into `sinks`, whose memory is used again.
void find_sinks(std::string_view call, const std::optional<ConstView>& given,
                const backend::Sizes& sizes, std::vector<double>& sinks);

// What a row gives to its sink's gradient depends on its results alone.
struct SinkRows {
  const Saved& saved;  // of a forward pass with these sinks
  const ConstView& dout;
  const std::optional<ConstView>& dlse;
};

// dsink = sum over rows of exp(sink - lse) * (dlse - <out, dout>), of each head. Rows of a head are
// added by a tree that depends on their number alone, batch entries in order: the same bits for any
// number of threads.
std::vector<double> sink_gradients(const std::vector<double>& sinks, const backend::Sizes& sizes,
                                   const SinkRows& rows, const base::Workers& workers);

// Of rows here .. of a head alone: the largest nodes of its tree that they complete, in order; `rows` has these rows
// alone, and the head has `all`. And from those of all who have rows, `owners` their ranges: the head's sum.
void add_sink_nodes(double sink, const SinkRows& rows, std::int64_t b, std::int64_t h,
                    layout::Range here, std::int64_t all, std::vector<double>& nodes);
double join_sink_nodes(std::span<const layout::Range> owners,
                       std::span<std::span<const double>> nodes, std::int64_t all);

// The gradients to a view [heads] of any type of sinks.
void store_dsinks(const View& to, const std::vector<double>& dsinks);

}  // namespace treadle::api
