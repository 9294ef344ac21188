// libFuzzer on what Python hands over: the texts of a score mod and a mask, the captures declared for
// them, and a call's numbers and memory. The module's own function is made of them and lays out its
// mask, or refuses with a treadle::Error; the texts it shows are taken again.
//
// An input is two texts, each ended by a $, then bytes for all the rest. Those in seeds/function are
// where it begins.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "function.h"
#include "treadle/error.h"

using namespace treadle;

namespace {

class Reader {
 public:
  explicit Reader(std::string_view left) : left_(left) {}

  std::string text() {
    const std::string_view taken = left_.substr(0, left_.find('$'));
    left_.remove_prefix(std::min(taken.size() + 1, left_.size()));
    return std::string(taken);
  }
  // From 0 to before `end`; 0 after the last byte.
  int number(int end) {
    if (left_.empty()) return 0;
    const auto byte = static_cast<unsigned char>(left_.front());
    left_.remove_prefix(1);
    return byte % end;
  }

 private:
  std::string_view left_;
};

constexpr int longest_axis = 4, most_axes = 4;

// Of any type, with zeros, small and huge numbers, also negative ones.
const std::byte* memory() {
  static const auto bytes = [] {
    std::array<std::byte, 8 * longest_axis * longest_axis * longest_axis * longest_axis> all{};
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = static_cast<std::byte>(i % 11 == 0 ? 0xff : i % 8 == 0 ? i / 8 % 5 : 0);
    }
    return all;
  }();
  return bytes.data();
}

struct Given {
  python::FunctionOptions options;
  python::BoundCaptures captures;
};

// As Python does: arrays c0, c1, ... and then numbers s0, s1, ..., each a double or an int64.
Given given(Reader& in) {
  Given made;
  made.options.score_mod = in.text();
  made.options.mask = in.text();
  const int arrays = in.number(4), numbers = in.number(4);
  for (int i = 0; i < arrays; ++i) {
    const auto type = static_cast<DType>(in.number(static_cast<int>(DType::boolean) + 1));
    Dims shape(static_cast<std::size_t>(in.number(most_axes + 1)));
    for (std::int64_t& size : shape) size = in.number(longest_axis + 1);
    const std::string name = "c" + std::to_string(i);
    made.options.captures.push_back({name, type, static_cast<int>(shape.size())});
    made.captures.views.emplace_back(memory(), type, shape);
    if (in.number(2) == 1) made.options.gradients.push_back(name);
  }
  for (int i = 0; i < numbers; ++i) {
    const auto type = in.number(2) == 0 ? DType::f64 : DType::i64;
    made.options.captures.push_back({"s" + std::to_string(i), type, 0});
    made.captures.views.emplace_back(memory() + 8 * in.number(8), type, Dims{});
  }
  if (in.number(2) == 1) made.options.scale = in.number(256) - 128.0;
  return made;
}

void lay_out(const python::Function& function, const python::BoundCaptures& captures, Reader& in) {
  const Dims shape{1, 2, 1 + in.number(70), 4};
  const ConstView x(memory(), DType::f32, shape, {0, 0, 0, 1});
  try {
    (void)function.layout({.inputs = Inputs{x, x, x}, .captures = captures}, {.threads = 1});
  } catch (const ModError&) {  // a read outside of a capture
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Reader in({reinterpret_cast<const char*>(data), size});
  Given made = given(in);
  try {
    const python::Function function(made.options);
    lay_out(function, made.captures, in);
    made.options.score_mod = function.score_mod();
    made.options.mask = function.mask();
  } catch (const Error&) {
    return 0;
  }
  const python::Function again(made.options);  // which must not throw
  return 0;
}
