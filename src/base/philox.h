// Philox 4x32 with ten rounds (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3):
// 128 random bits for every counter and key, without a state.
#pragma once

#include <array>
#include <cstdint>

namespace treadle::base {

struct Philox {
  using Counter = std::array<std::uint32_t, 4>;
  using Key = std::array<std::uint32_t, 2>;

  static constexpr int rounds = 10;
  static constexpr std::array<std::uint32_t, 2> factors{0xd2511f53, 0xcd9e8d57};
  static constexpr std::array<std::uint32_t, 2> key_steps{0x9e3779b9, 0xbb67ae85};

  static constexpr Counter bits(Counter x, Key key) {
    for (int round = 0; round < rounds; ++round) {
      const std::uint64_t a = std::uint64_t{factors[0]} * x[0];
      const std::uint64_t b = std::uint64_t{factors[1]} * x[2];
      x = {static_cast<std::uint32_t>(b >> 32) ^ x[1] ^ key[0], static_cast<std::uint32_t>(b),
           static_cast<std::uint32_t>(a >> 32) ^ x[3] ^ key[1], static_cast<std::uint32_t>(a)};
      key[0] += key_steps[0];
      key[1] += key_steps[1];
    }
    return x;
  }
};

}  // namespace treadle::base
