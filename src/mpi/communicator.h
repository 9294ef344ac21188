// A communicator of our own, and what all calls of MPI need: errors that name the rank and the call.
//
//   const Communicator comm(MPI_COMM_WORLD);
//   comm.check(MPI_Isend(...), "MPI_Isend of {} bytes to rank {}", size, to);
//
// Throws Error itself, since libtreadle.so hides the functions of base/error.h.
#pragma once

#include <fmt/core.h>
#include <mpi.h>

#include <string>
#include <utility>

#include "treadle/error.h"

namespace treadle::mpi {

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(fmt::format(text, std::forward<Args>(args)...));
}

class Communicator {
 public:
  // Duplicates `ranks`; all of them take part. Throws on all when one lacks the thread level.
  explicit Communicator(MPI_Comm ranks);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  [[nodiscard]] MPI_Comm get() const { return comm_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }

  // Whether MPI can still be called.
  [[nodiscard]] static bool is_alive();

  // `call` is what returned `code`.
  template <class... Args>
  void check(int code, fmt::format_string<Args...> call, Args&&... args) const {
    if (code == MPI_SUCCESS) return;
    fail("exchange: rank {}: {}: {}", rank_, fmt::format(call, std::forward<Args>(args)...),
         text_of(code));
  }
  [[nodiscard]] static std::string text_of(int code);

  // Prints why and ends the job, also ranks of other communicators.
  void abandon(const std::string& why) const noexcept;

 private:
  void check_thread_levels(int own) const;

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, ranks_ = 0;
};

}  // namespace treadle::mpi
