// Captures of which every rank has its own rows: collected for the time of a call.
#pragma once

#include <deque>
#include <string_view>
#include <vector>

#include "api/compiled.h"
#include "distributed/agreement.h"
#include "distributed/held_plan.h"
#include "treadle/distributed.h"

namespace treadle::distributed {

// Throws for two of one name, and for axes that no tensor has.
void check_sharded(const std::vector<ShardedCapture>& sharded);

class GatheredCaptures {
 public:
  // All ranks make it, of the same call; if one fails, all throw. Where nothing is sharded it says nothing to anybody.
  GatheredCaptures(Plan::Held& held, Envelope::Kind kind, const Attention::Compiled& compiled,
                   const Call& call);
  GatheredCaptures(const GatheredCaptures&) = delete;
  GatheredCaptures& operator=(const GatheredCaptures&) = delete;

  // The same call with whole captures.
  [[nodiscard]] const Call& call() const { return call_; }

 private:
  Call call_;
  std::deque<Tensor> whole_;
};

// Of the gradient of a whole capture, the rows of this rank; of one that all ranks have, all of it.
ConstView own_slice(const Plan::Held& held, std::string_view name, const ConstView& whole);

}  // namespace treadle::distributed
