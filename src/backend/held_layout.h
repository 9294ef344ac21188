// What a treadle::Layout holds.
#pragma once

#include "base/hash.h"
#include "layout/layout.h"
#include "treadle/layout.h"

namespace treadle {

struct Layout::Held {
  layout::Layout layout;
  base::Hash mask;  // the graph it was made for
};

}  // namespace treadle
