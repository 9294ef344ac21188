// libFuzzer on what Python hands over: the texts of a score mod and a mask with the captures they
// may read. They are compiled as Python's module does it, or refused with a treadle::Error.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "api/inspect.h"
#include "treadle/attention.h"
#include "treadle/error.h"
#include "treadle/mod.h"

using namespace treadle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Two texts, apart by a zero byte.
  const std::string all(reinterpret_cast<const char*>(data), size);
  const std::size_t end = all.find('\0');
  const std::string score = all.substr(0, end);
  const std::string mask = end == std::string::npos ? "" : all.substr(end + 1);
  static Tensor table(DType::f32, {8}), ids(DType::i32, {8});
  const std::vector<Capture> captures{{"c0", table.view()}, {"c1", ids.view()}};
  try {
    Options options;
    if (!score.empty()) options.score_mod = parse(score, captures);
    if (!mask.empty()) options.mask = parse(mask, captures);
    for (const std::string& text : {score, mask}) {
      if (text.empty()) continue;
      for (const std::string& name : api::captures_read(text, captures))
        if (text == score && name == "c0") options.gradients = {name};
    }
    compile(options);
  } catch (const Error&) {
  }
  return 0;
}
