// Sizes and times of an exchange over MPI. Tests make them small.
#pragma once

#include <chrono>
#include <cstddef>

namespace treadle::mpi {

struct Limits {
  // A message goes in parts of at most so many bytes, because MPI counts in ints.
  std::size_t part = std::size_t{1} << 30;
  // Sends of at most so many bytes are copied, so that nobody has to wait for them.
  std::size_t copied = std::size_t{64} << 10;
  // A gather goes in pieces that together, of all ranks, have at most so many bytes.
  std::size_t gathered = std::size_t{16} << 20;
  // How long a transfer that ends early waits for MPI to let go of its memory.
  std::chrono::milliseconds let_go{60'000};
};

}  // namespace treadle::mpi
