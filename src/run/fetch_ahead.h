// FetchAhead: the rows that a thread's next task reads and writes, for the kernels of this task to
// bring into the cache while they multiply (plan::FetchList).
//
//   FetchAhead ahead = FetchAhead::carve(carver);
//   ahead.look_at(shared, &next);
//   kernel({..., .fetch = ahead.list()});
//
// Rows of a residue class lie far apart, so the hardware does not see them coming, and a task with few
// keys would wait for memory as long as it multiplies.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "plan/fetch_list.h"
#include "plan/schedule.h"
#include "run/backward_worker.h"
#include "run/forward_worker.h"
#include "run/scratch.h"

namespace treadle::run {

class FetchAhead {
 public:
  // More would push one another out of the cache before they are needed.
  static constexpr std::int64_t most = 1024;

  FetchAhead() = default;
  static FetchAhead carve(Carver& carver) {
    return FetchAhead(carver.take<const std::byte*>(most + 1));
  }

  // The rows of a task: its queries, results, keys and values. None for null.
  void look_at(const ForwardShared& shared, const plan::Task* next);
  // The same, with gradients that come in and go out.
  template <class F>
  void look_at(const BackwardShared<F>& shared, const plan::BackwardTask* next);

  [[nodiscard]] plan::FetchList* list() { return &list_; }
  // Addresses of pieces of plan::fetch_bytes, all that there are.
  [[nodiscard]] std::span<const std::byte* const> pieces() const {
    return {pieces_, static_cast<std::size_t>(count_)};
  }

 private:
  explicit FetchAhead(const std::byte** pieces) : pieces_(pieces) {}

  void add_queries(const ForwardShared& shared, const plan::Task& task);
  void add_keys(const ForwardShared& shared, const plan::Task& task, const layout::Layout& layout);
  template <class F>
  void add_queries(const BackwardShared<F>& shared, const plan::BackwardTask& task);
  template <class F>
  void add_keys(const BackwardShared<F>& shared, const plan::BackwardTask& task);
  void finish();
  // Rows at equal distances.
  struct Rows {
    const std::byte* first;
    std::int64_t step, bytes;  // from one row to the next; of each
  };
  // So many rows of each. False if there is no room for more.
  template <std::same_as<Rows>... More>
  bool add(std::int64_t count, const More&... rows);

  const std::byte** pieces_ = nullptr;  // [most + 1]
  std::int64_t count_ = 0;
  plan::FetchList list_;
};

}  // namespace treadle::run
