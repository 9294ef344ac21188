// What a distributed backward call is given but for its results: rows of this rank.
#pragma once

#include <optional>

#include "treadle/distributed.h"

namespace treadle::distributed {

struct Given {
  const Inputs& mine;
  const Saved& saved;
  const ConstView& dout;
  const std::optional<ConstView>& dlse;
};

}  // namespace treadle::distributed
