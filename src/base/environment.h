// Variables of the environment, each read once per process.
//
//   if (std::optional<std::string> folder = variable("TREADLE_CACHE_DIR")) ...
//
// getenv() races with a setenv() of another thread, so no call of ours may read the environment
// again: what was found first stays. A program that runs with another user's rights (setuid) finds
// none of them, because they would tell it where to write.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace treadle::base {

// Nothing when it is not set.
std::optional<std::string> variable(const std::string& name);

// For tests, which set variables: all are read again when next asked for.
void forget_variables();

// Another number after each forget_variables(), for who keeps what it made of a variable.
std::uint64_t reading_of_variables();

}  // namespace treadle::base
