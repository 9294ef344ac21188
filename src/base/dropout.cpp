// From probability, seed and offset to decisions about pairs.
#include "base/dropout.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace treadle {
namespace base {
namespace {

constexpr double decisions = 65536;  // of 16 bits

constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
constexpr std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }
constexpr std::uint32_t word(std::int64_t x) { return static_cast<std::uint32_t>(x); }

}  // namespace

bool DropoutRule::keeps(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t kv) const {
  if (scale == 0) return false;
  const Philox::Counter bits = Philox::bits({word(kv) >> 3, word(h), word(q), word(b)}, key);
  const std::uint32_t place = word(kv) % 8;
  return (bits[place / 2] >> (place % 2 * 16) & 0xffff) >= threshold;
}

std::optional<DropoutRule> dropout_rule(std::string_view call, const Dropout& dropout) {
  const double p = dropout.probability;
  if (!(p >= 0 && p <= 1))
    fail("{}: the probability of dropout is {}; it must be from 0 to 1", call, p);
  if (p == 0) return std::nullopt;
  const std::uint64_t offset = dropout.offset, seed = dropout.seed;
  const Philox::Counter key =
      Philox::bits({low(offset), high(offset), 0, 0}, {low(seed), high(seed)});
  return DropoutRule{
      .key = {key[0], key[1]},
      .threshold = static_cast<std::uint32_t>(std::min(std::rint(p * decisions), decisions - 1)),
      .scale = p == 1 ? 0 : 1 / (1 - p)};
}

}  // namespace base

bool keeps(const Dropout& dropout, std::int64_t b, std::int64_t h, std::int64_t q,
           std::int64_t kv) {
  const auto rule = base::dropout_rule("keeps", dropout);
  return !rule || rule->keeps(b, h, q, kv);
}

}  // namespace treadle
