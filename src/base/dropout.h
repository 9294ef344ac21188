// A call's dropout as numbers: which pairs are kept, and what their weights are multiplied with.
//
// Pairs of eight neighbouring keys share the bits of a counter, 16 for each:
//
//     bits = Philox(kv / 8, h, q, b; the call's key), from the lowest: those of kv % 8 = 0, 1, ... 7
//     a pair is kept if they are at least 65536 * probability, rounded to a whole number
//
// The call's key is the first half of Philox(offset; seed).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/philox.h"
#include "treadle/dropout.h"

namespace treadle::base {

struct DropoutRule {
  Philox::Key key{};
  std::uint32_t threshold = 0;  // at most 65535
  double scale = 1;             // 1 / (1 - probability); 0 where everything is dropped

  [[nodiscard]] bool keeps(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t kv) const;
  // What a weight is multiplied with.
  [[nodiscard]] double factor(std::int64_t b, std::int64_t h, std::int64_t q,
                              std::int64_t kv) const {
    return keeps(b, h, q, kv) ? scale : 0;
  }
};

// None if nothing is dropped. Throws treadle::Error for what is no probability; `call` is its name.
std::optional<DropoutRule> dropout_rule(std::string_view call, const Dropout& dropout);

}  // namespace treadle::base
