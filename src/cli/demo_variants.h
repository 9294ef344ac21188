// The variants of attention that `treadle demo` runs.
//
//   for (const Variant& variant : demo_variants()) {
//     const Prepared ready = variant.prepare({.heads = 8, .queries = 1024, .keys = 1024},
//     DType::f32); compile(ready.options).forward(...);      // k and v with ready.key_heads heads
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "treadle/attention.h"

namespace treadle::cli {

struct Sizes {
  std::int64_t batch = 1, heads = 8, queries = 1024, keys = 1024, dim = 64;
};

// Options for one size, and the memory that their captures read.
struct Prepared {
  Options options;
  std::int64_t key_heads = 1;
  std::vector<Tensor> memory;
};

struct Variant {
  std::string name;  // one word, for the command line
  std::string what;  // a few words that explain it
  // The element type is that of float captures. Their values are the same in f32 and in f64.
  std::function<Prepared(const Sizes&, DType)> prepare;
  // The size at which it is timed, where that is not the size that was asked for.
  std::function<Sizes(const Sizes&)> timed_at = {};
  bool decodes = false;  // a forward pass alone, limited by how fast keys and values are read
};

std::vector<Variant> demo_variants();

}  // namespace treadle::cli
