// Flags: a few bools, one for each capture or read of a mod. Like a std::vector<bool>, but up to 64 of
// them need no memory of their own: facts about mods are found and compared in every call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace treadle::plan {

class Flags {
 public:
  Flags() = default;
  Flags(std::initializer_list<bool> flags) {
    for (const bool flag : flags) push_back(flag);
  }
  Flags(const std::vector<bool>& flags) {  // NOLINT(google-explicit-constructor)
    for (const bool flag : flags) push_back(flag);
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool operator[](std::size_t i) const {
    return ((i < few ? first_ : more_[i / few - 1]) >> i % few & 1) != 0;
  }
  void push_back(bool flag) {
    const std::size_t i = size_++;
    if (i >= few && i % few == 0) more_.push_back(0);
    set(i, flag);
  }
  void set(std::size_t i, bool flag) {
    std::uint64_t& word = i < few ? first_ : more_[i / few - 1];
    const std::uint64_t bit = std::uint64_t{1} << i % few;
    word = flag ? word | bit : word & ~bit;
  }

  bool operator==(const Flags&) const = default;

 private:
  static constexpr std::size_t few = 64;

  std::size_t size_ = 0;
  std::uint64_t first_ = 0;
  std::vector<std::uint64_t> more_;  // the 65th and those after it
};

}  // namespace treadle::plan
