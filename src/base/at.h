// Our signed indices and sizes as the standard library's unsigned ones: words[at(row)].
#pragma once

#include <cstddef>
#include <cstdint>

namespace treadle::base {

constexpr std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

}  // namespace treadle::base
