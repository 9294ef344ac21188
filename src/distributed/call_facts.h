// What a distributed call is made of but for its tensors: checked and bound.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "api/compiled.h"
#include "backend/backend.h"
#include "base/dropout.h"
#include "distributed/agreement.h"
#include "distributed/held_plan.h"
#include "treadle/distributed.h"

namespace treadle::distributed {

struct CallFacts {
  // Throws if the plan is not one for this attention, or the call has what no distributed call may have.
  CallFacts(std::string_view of, const Attention::Compiled& with, const Plan::Held& held,
            const Call& call);
  CallFacts(const CallFacts&) = delete;
  CallFacts& operator=(const CallFacts&) = delete;

  std::string_view name;
  const Attention::Compiled& compiled;
  std::vector<const Capture*> captures;
  backend::Bindings bound;
  std::vector<double> sinks;
  std::optional<base::DropoutRule> dropout;
  base::Workers workers;
  double scale;
  // Of all that ranks must give alike and that is no contents of a tensor.
  base::Hasher what;

  // Of a part's call.
  [[nodiscard]] backend::Request request(const backend::Sizes& sizes, const Inputs& inputs,
                                         const Layout& layout, const run::KeySource& keys) const;
};

// The beginning of a call: numbers it, and says what this rank is about to do. `facts` is null if it failed.
Envelope begin_call(Plan::Held& held, Envelope::Kind kind, const CallFacts* facts,
                    const Failure& failure);
// Its end: what has become of it on all ranks.
std::vector<Envelope> end_call(Plan::Held& held, const Envelope& begun, const Failure& failure,
                               bool unclear);

// A view with contiguous rows: the caller's, or a copy.
class ContiguousRows {
 public:
  explicit ContiguousRows(const ConstView& given);
  [[nodiscard]] const ConstView& view() const { return view_; }

 private:
  Tensor copy_;
  ConstView view_;
};

}  // namespace treadle::distributed
