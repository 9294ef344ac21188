// Numbers on a command line: "3", "0,0,1", "0*512,1*512" (512 times 0, then 512 times 1).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace treadle::cli {

// Commas or white space between them. T is std::int64_t or double. Throws treadle::Error that
// begins with `where` for what is no such list.
template <class T>
std::vector<T> numbers_from(std::string_view where, std::string_view text);

// Exactly one.
std::int64_t integer_from(std::string_view where, std::string_view text);

}  // namespace treadle::cli
