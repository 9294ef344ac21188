// Numbers for distributed calls, and rows of a rank against those of the whole.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "base/element.h"
#include "treadle/distributed.h"
#include "treadle/tensor.h"

namespace treadle::test {

struct Random {
  std::mt19937_64& engine;
  std::int64_t operator()(std::int64_t most) {
    return static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(most));
  }
  bool one_in(std::int64_t n) { return (*this)(n) == 0; }
};

inline Tensor random_tensor(Random& random, DType type, const Dims& shape, double size = 1) {
  Tensor wide(DType::f32, shape);
  for (float& x : wide.data<float>())
    x = static_cast<float>(size * (static_cast<double>(random(2001)) - 1000) / 700);
  if (type == DType::f32) return wide;
  Tensor narrow(type, shape);
  for (std::int64_t i = 0; i < wide.count(); ++i)
    base::store_double(narrow.view().data(), type, i,
                       static_cast<double>(wide.data<float>()[static_cast<std::size_t>(i)]));
  return narrow;
}

// Rows begin .. end of axis 2.
inline ConstView rows_of(const ConstView& view, std::int64_t begin, std::int64_t end,
                         int axis = 2) {
  Dims shape = view.shape();
  shape[static_cast<std::size_t>(axis)] = end - begin;
  const auto* data = static_cast<const std::byte*>(view.data()) +
                     begin * view.stride(axis) * static_cast<std::int64_t>(size_of(view.dtype()));
  return {data, view.dtype(), shape, view.strides()};
}

// Whether some rows of the whole are the part, bit for bit; of a NaN nobody promises sign and payload.
inline bool same_bits(const ConstView& part, const ConstView& whole, std::int64_t begin,
                      std::int64_t end, std::string& where) {
  const ConstView rows = rows_of(whole, begin, end);
  if (part.shape() != rows.shape() || part.dtype() != rows.dtype()) {
    where = "shapes differ";
    return false;
  }
  const std::int64_t length = part.rank() == 4 ? part.size(3) : 1;
  const auto size = static_cast<std::int64_t>(size_of(part.dtype()));
  for (std::int64_t b = 0; b < part.size(0); ++b) {
    for (std::int64_t h = 0; h < part.size(1); ++h) {
      for (std::int64_t r = 0; r < part.size(2); ++r) {
        const auto at = [&](const ConstView& view) {
          return static_cast<const std::byte*>(view.data()) +
                 (b * view.stride(0) + h * view.stride(1) + r * view.stride(2)) * size;
        };
        if (std::memcmp(at(part), at(rows), static_cast<std::size_t>(length * size)) != 0) {
          for (std::int64_t d = 0; d < length; ++d) {
            const double x = base::load_double(at(part), part.dtype(), d),
                         y = base::load_double(at(rows), rows.dtype(), d);
            if (std::isnan(x) && std::isnan(y)) continue;
            if (x == y && std::signbit(x) == std::signbit(y)) continue;
            where =
                fmt::format("b {} h {} row {}: element {} is {} for {}", b, h, begin + r, d, x, y);
            return false;
          }
        }
      }
    }
  }
  return true;
}

inline distributed::Shards random_shards(Random& random, std::int64_t length, int ranks) {
  if (random.one_in(3)) return distributed::Shards::even(length, ranks);
  distributed::Shards shards;
  for (int r = 1; r < ranks; ++r)
    shards.starts.push_back(random.one_in(5) ? 0 : random(length + 1));
  shards.starts.push_back(0);
  shards.starts.push_back(length);
  std::ranges::sort(shards.starts);
  return shards;
}

}  // namespace treadle::test
