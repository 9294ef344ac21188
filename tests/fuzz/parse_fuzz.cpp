// libFuzzer on text: whatever it is, it is parsed or refused with a treadle::Error. What is parsed
// prints as text that means the same graph, is simplified, and can be evaluated.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "ir/parse.h"
#include "ir/print.h"
#include "passes/simplify.h"
#include "treadle/error.h"

using namespace treadle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<ir::Slot> captures{{"x", DType::f32, 0},
                                       {"i", DType::i64, 0},
                                       {"p", DType::boolean, 0},
                                       {"a", DType::f32, 1},
                                       {"m", DType::i32, 2}};
  try {
    const ir::Graph graph = ir::parse(text, captures);
    if (ir::parse(ir::to_text(graph), graph.slots()) != graph) std::abort();
    passes::simplify(graph);
  } catch (const Error&) {
  }
  return 0;
}
