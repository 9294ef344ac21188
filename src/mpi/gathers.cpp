// Steps of gathers: begin_step() fills `out`, MPI fills `in`, end_step() empties it.
#include "mpi/gathers.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "distributed/exchange_checks.h"

namespace treadle::mpi {
namespace {

// The first step: the size, then as many bytes as there are and fit.
constexpr std::size_t header_size = sizeof(std::uint64_t);
constexpr std::size_t first_step = 64;

std::uint64_t size_at(const std::byte* header) {
  std::uint64_t size = 0;
  std::memcpy(&size, header, sizeof size);
  return size;
}

}  // namespace

void Gathers::start(const std::shared_ptr<Gather>& gather, std::span<const std::byte> own,
                    std::span<std::byte> all) {
  gather->mine.assign(own.begin(), own.end());
  gather->all = all;
  queue_.push_back(gather);
  move_on();
}

void Gathers::move_on() {
  while (!queue_.empty()) {
    const std::shared_ptr<Gather> gather = queue_.front();
    if (gather->in_flight > 0) return;
    if (gather->has_step) end_step(*gather);
    if (gather->all_begun) {
      queue_.pop_front();
    } else {
      begin_step(gather);
    }
  }
}

// How many bytes of each rank the next step brings.
std::size_t Gathers::piece(const Gather& gather) const {
  const std::size_t left = gather.mine.size() - gather.gathered;
  if (gather.gathered == 0) return std::min(left, first_step - header_size);
  const std::size_t most = limits_.gathered / static_cast<std::size_t>(comm_.ranks());
  return std::min(left, std::max<std::size_t>(most, 1));
}

void Gathers::begin_step(const std::shared_ptr<Gather>& gather) {
  const bool is_first = gather->gathered == 0;
  const std::size_t header = is_first ? header_size : 0, bytes = piece(*gather);
  const std::size_t size = is_first ? first_step : bytes;
  requests_.reserve();
  gather->out.assign(size, std::byte{0});
  gather->in.resize(size * static_cast<std::size_t>(comm_.ranks()));
  if (is_first) {
    const std::uint64_t total = gather->mine.size();
    std::memcpy(gather->out.data(), &total, sizeof total);
  }
  std::copy_n(gather->mine.begin() + static_cast<std::ptrdiff_t>(gather->gathered), bytes,
              gather->out.begin() + static_cast<std::ptrdiff_t>(header));
  MPI_Request request = MPI_REQUEST_NULL;
  comm_.check(
      MPI_Iallgather(gather->out.data(), static_cast<int>(size), MPI_BYTE, gather->in.data(),
                     static_cast<int>(size), MPI_BYTE, comm_.get(), &request),
      "MPI_Iallgather of {} bytes of each rank", size);
  gather->has_step = true;
  requests_.add(request, gather);
}

void Gathers::end_step(Gather& gather) {
  gather.has_step = false;
  const bool is_first = gather.gathered == 0;
  for (int rank = 0; is_first && rank < comm_.ranks() && gather.error.empty(); ++rank) {
    const std::uint64_t size = size_at(&gather.in[static_cast<std::size_t>(rank) * first_step]);
    if (size != gather.mine.size()) {
      gather.error = distributed::wrong_size(comm_.rank(), size, rank, gather.mine.size());
    }
  }
  if (gather.error.empty()) deliver(gather, is_first ? header_size : 0);
  gather.all_begun = !gather.error.empty() || gather.gathered == gather.mine.size();
}

void Gathers::deliver(Gather& gather, std::size_t header) {
  const std::size_t bytes = piece(gather), step = gather.out.size(), each = gather.mine.size();
  for (std::size_t rank = 0; gather.wanted && bytes > 0 && rank * step < gather.in.size(); ++rank) {
    std::memcpy(gather.all.data() + rank * each + gather.gathered,
                gather.in.data() + rank * step + header, bytes);
  }
  gather.gathered += bytes;
}

}  // namespace treadle::mpi
