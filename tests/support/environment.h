// An environment variable, for the length of a test. Treadle reads it again, before and after.
//
//   const Environment dump("TREADLE_DUMP", "time");   // nullptr: not set
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "base/environment.h"

namespace treadle::test {

class Environment {
 public:
  Environment(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    set(value);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() { set(before_ ? before_->c_str() : nullptr); }

 private:
  void set(const char* value) {
    if (value == nullptr) {
      unsetenv(name_.c_str());
    } else {
      setenv(name_.c_str(), value, 1);
    }
    base::forget_variables();
  }

  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace treadle::test
