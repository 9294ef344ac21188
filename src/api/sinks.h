// Attention sinks: a logit per head beside the scores of every row.
#pragma once

#include <cstdint>
#include <optional>
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

// The gradients to a view [heads] of any type of sinks.
void store_dsinks(const View& to, const std::vector<double>& dsinks);

}  // namespace treadle::api
