// The patterns of treadle/patterns.h by name, with parameters given as text.
//
//   MaskMod mask = pattern_mask("sliding_window", {"window=64", "sinks=4"}, {.keys = 1024});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/table.h"
#include "layout/layout.h"
#include "treadle/mod.h"

namespace treadle::cli {

// Throws treadle::Error for names and parameters that are not known, are missing or make no sense.
MaskMod pattern_mask(const std::string& name, const std::vector<std::string>& parameters,
                     const layout::Extent& extent);

// Name, parameters with their defaults, and what is visible.
Table pattern_table();

}  // namespace treadle::cli
