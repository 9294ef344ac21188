// Gathers over MPI_Iallgather, one after the other, so that all ranks begin the same ones in the same
// order, whoever ends its transfers early.
//
// The first step of each has the same size on all ranks: it tells how many bytes each rank brings,
// and brings the first of them. So ranks that disagree get an error, and all of them do.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>

#include "mpi/communicator.h"
#include "mpi/limits.h"
#include "mpi/requests.h"

namespace treadle::mpi {

struct Gather : Work {
  Bytes mine;                // a copy: it goes on when its transfer has ended
  std::span<std::byte> all;  // written to while it is wanted
  std::size_t gathered = 0;  // bytes of each rank that are there
  // The step that MPI is at work on.
  bool has_step = false;
  Bytes out, in;
};

class Gathers {
 public:
  Gathers(const Communicator& comm, const Limits& limits, Requests& requests)
      : comm_(comm), limits_(limits), requests_(requests) {}

  void start(const std::shared_ptr<Gather>& gather, std::span<const std::byte> own,
             std::span<std::byte> all);

  // Moves the first gather on, and the next when it is over.
  void move_on();

 private:
  void begin_step(const std::shared_ptr<Gather>& gather);
  void end_step(Gather& gather);
  void deliver(Gather& gather, std::size_t header);
  [[nodiscard]] std::size_t piece(const Gather& gather) const;

  const Communicator& comm_;
  const Limits limits_;
  Requests& requests_;
  std::deque<std::shared_ptr<Gather>> queue_;
};

}  // namespace treadle::mpi
