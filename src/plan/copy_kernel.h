// Rows of one type copied into rows of another, a float of 16 bits or more: keys and values into the
// scratch of a block, results to where the caller wants them.
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "plan/target.h"

namespace treadle::plan {

// Row i goes from source + source_index[i] * source_stride to target + target_index[i] *
// target_stride; without an index it is row i. Strides are in bytes; the elements of a row are
// contiguous.
struct CopyArgs {
  const void* source = nullptr;
  std::int64_t source_stride = 0;
  const std::int32_t* source_index = nullptr;
  void* target = nullptr;
  std::int64_t target_stride = 0;
  const std::int32_t* target_index = nullptr;
  std::int64_t count = 0;
  // What row i is multiplied with, if the spec says so: scales[source_index[i] * scale_stride].
  const float* scales = nullptr;
  std::int64_t scale_stride = 0;  // in elements
};

// Exact from a narrow type to a wide one, rounded to nearest even the other way. A row with a scale is
// f32(element) * scale, rounded once.
struct CopySpec {
  using Args = CopyArgs;

  Target target;
  DType from = DType::f32, to = DType::f32;
  std::int64_t length = 0;  // of a row
  bool scaled = false;

  bool operator==(const CopySpec&) const = default;
};

base::Key key(const CopySpec& spec);

}  // namespace treadle::plan
