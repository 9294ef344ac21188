#include "ir/exchange.h"

#include <gtest/gtest.h>

#include <vector>

#include "ir/parse.h"
#include "ir/print.h"

namespace treadle::ir {
namespace {

TEST(Exchange, QAndKv) {
  const std::vector<Slot> slots{{"bias", DType::f32, 3}};
  const Graph graph = parse("bias[h, q, kv] + q * 2 - kv", slots);
  EXPECT_EQ(to_text(exchanged(graph)), to_text(parse("bias[h, kv, q] + kv * 2 - q", slots)));
  EXPECT_EQ(exchanged(exchanged(graph)), graph);
}

TEST(Exchange, NothingToExchange) {
  const Graph graph = parse("score * 2 + h", {});
  EXPECT_EQ(exchanged(graph), graph);
}

}  // namespace
}  // namespace treadle::ir
