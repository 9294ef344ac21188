// The first poisoned tile, by the order of batches, heads, tiles and terms.
#include "run/poisoned.h"

namespace treadle::run {

void FirstPoisoned::report(const Poisoned& where) {
  const std::int64_t here =
      ((where.b * layout_.extent().heads + where.h) * layout_.tiles().count() + where.tile) *
          terms_ +
      static_cast<std::int64_t>(where.term);
  std::int64_t known = first_.load();
  while ((known < 0 || here < known) && !first_.compare_exchange_weak(known, here)) {
  }
}

std::optional<Poisoned> FirstPoisoned::found() const {
  const std::int64_t first = first_.load();
  if (first < 0) return std::nullopt;
  const std::int64_t tiles = layout_.tiles().count();
  const std::int64_t heads = layout_.extent().heads;
  const std::int64_t tile = first / terms_;
  return Poisoned{tile / tiles / heads, tile / tiles % heads, tile % tiles,
                  first_term_ + static_cast<std::size_t>(first % terms_)};
}

}  // namespace treadle::run
