// What a treadle::Layout holds.
#pragma once

#include <optional>

#include "base/hash.h"
#include "layout/layout.h"
#include "layout/selection.h"
#include "treadle/layout.h"

namespace treadle {

struct Layout::Held {
  layout::Layout layout;
  base::Hash mask;  // the graph it was made for
  // The keys that were listed, if some were: then the mask alone does not say what is visible.
  std::optional<layout::Selection> listed = {};
};

}  // namespace treadle
