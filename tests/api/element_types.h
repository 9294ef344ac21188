// Element types by short names, for tables of cases. (bf16 and f16 themselves are types of C++.)
#pragma once

#include "treadle/dtype.h"

namespace treadle::test {

inline constexpr DType f64 = DType::f64, f32 = DType::f32, bf16_type = DType::bf16,
                       f16_type = DType::f16;

}  // namespace treadle::test
