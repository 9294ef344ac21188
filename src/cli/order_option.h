// Query orders on a command line: identity, residue:128, blocks:64, rect:32:4x12.
#pragma once

#include <string>
#include <string_view>

#include "layout/order.h"

namespace treadle::cli {

inline constexpr const char* order_forms = "identity, residue:S, blocks:S, rect:WIDTH:ROWSxCOLUMNS";

// Throws treadle::Error that begins with the name of the command for what is no order.
layout::Order order_from(std::string_view command, const std::string& text);

}  // namespace treadle::cli
