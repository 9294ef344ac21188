// Blocks of a tensor, each contiguous.
#include "api/add.h"

#include "base/element.h"
#include "base/error.h"

namespace treadle::api {

void add(const View& to, const Tensor& from) {
  const std::int64_t blocks = to.rank() == 4 ? to.size(0) * to.size(1) : 1;
  const std::int64_t length = blocks == 0 ? 0 : from.count() / blocks;
  base::visit_dtype(to.dtype(), [&](auto element) {
    using T = typename decltype(element)::type;
    if constexpr (std::is_floating_point_v<T>) {
      const T* part = static_cast<const T*>(from.view().data());
      for (std::int64_t block = 0; block < blocks; ++block) {
        T* sum = static_cast<T*>(to.data());
        if (to.rank() == 4)
          sum += block / to.size(1) * to.stride(0) + block % to.size(1) * to.stride(1);
        for (std::int64_t i = 0; i < length; ++i) sum[i] += part[block * length + i];
      }
    } else {
      base::internal_error("api: parts of gradients are f32 or f64, not {}", name_of(to.dtype()));
    }
  });
}

}  // namespace treadle::api
