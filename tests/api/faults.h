// Faults: which allocation fails, and how many there are. operator new of the whole test program is
// replaced for this (faults.cpp).
#pragma once

#include <atomic>
#include <cstdint>

namespace treadle::test {

// Which allocation fails. All threads count.
struct Faults {
  std::atomic<bool> armed{false}, lasting{false};
  std::atomic<std::int64_t> seen{0}, at{0};

  void arm(std::int64_t number, bool from_then_on) {
    seen = 0;
    at = number;
    lasting = from_then_on;
    armed = true;
  }
  // None fails, and all are counted.
  void count() { arm(-1, false); }
  // How many there were.
  std::int64_t disarm() {
    armed = false;
    return seen;
  }
  bool now() {
    if (!armed.load(std::memory_order_relaxed)) return false;
    const std::int64_t number = seen++;
    return number == at || (lasting && number > at);
  }
};

extern constinit Faults faults;

}  // namespace treadle::test
