// Faults: which allocation fails, and how many there are. operator new of the whole test program is
// replaced for this (faults.cpp).
#pragma once

#include <atomic>
#include <cstdint>

namespace treadle::test {

// Which allocation fails. All threads count, or one of them.
struct Faults {
  std::atomic<bool> one_thread{false};
  static inline constinit thread_local bool is_the_one = false;
  std::atomic<bool> armed{false}, lasting{false};
  std::atomic<std::int64_t> seen{0}, at{0};

  void arm(std::int64_t number, bool from_then_on) {
    seen = 0;
    at = number;
    lasting = from_then_on;
    armed = true;
  }
  void arm_this_thread(std::int64_t number) {
    one_thread = is_the_one = true;
    arm(number, false);
  }
  // None fails, and all are counted.
  void count() { arm(-1, false); }
  // How many there were.
  std::int64_t disarm() {
    armed = false;
    one_thread = is_the_one = false;
    return seen;
  }
  bool now() {
    if (!armed.load(std::memory_order_relaxed)) return false;
    if (one_thread.load(std::memory_order_relaxed) && !is_the_one) return false;
    const std::int64_t number = seen++;
    return number == at || (lasting && number > at);
  }
};

extern constinit Faults faults;

}  // namespace treadle::test
