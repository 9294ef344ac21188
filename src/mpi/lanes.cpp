// Parts of messages to MPI and back. Read match(int) first.
#include "mpi/lanes.h"

#include <algorithm>

#include "distributed/exchange_checks.h"

namespace treadle::mpi {
namespace {

enum Tag : int { more_follows = 1, last_part = 2 };

}  // namespace

Lanes::Lanes(const Communicator& comm, const Limits& limits, Requests& requests)
    : comm_(comm),
      limits_(limits),
      requests_(requests),
      lanes_(static_cast<std::size_t>(comm.ranks())) {}

void Lanes::send(const std::shared_ptr<Outgoing>& message, int to,
                 std::span<const std::byte> bytes) {
  message->copied = bytes.size() <= limits_.copied;
  if (message->copied) bytes = message->own.emplace_back(bytes.begin(), bytes.end());
  for (std::size_t begun = 0; begun < bytes.size();) {
    const std::size_t size = std::min(bytes.size() - begun, limits_.part);
    begin_send(message, to, &bytes[begun], size, begun + size == bytes.size());
    begun += size;
  }
  message->all_begun = true;
}

void Lanes::begin_send(const std::shared_ptr<Outgoing>& message, int to, const std::byte* bytes,
                       std::size_t size, bool is_last) {
  requests_.reserve();
  MPI_Request request = MPI_REQUEST_NULL;
  comm_.check(MPI_Isend(bytes, static_cast<int>(size), MPI_BYTE, to,
                        is_last ? last_part : more_follows, comm_.get(), &request),
              "MPI_Isend of {} bytes to rank {}", size, to);
  requests_.add(request, message);
}

void Lanes::receive(const std::shared_ptr<Incoming>& message, int from,
                    std::span<std::byte> bytes) {
  message->bytes = bytes;
  Lane& lane = lanes_[static_cast<std::size_t>(from)];
  lane.waiting.push_back(message);
  ++waiting_;
  if (!lane.parts.empty()) is_behind_ = true;
}

void Lanes::match() {
  if (is_behind_) {
    for (int from = 0; from < comm_.ranks(); ++from) match(from);
    is_behind_ = false;
  }
  while (waiting_ > 0 && find_part()) {
  }
}

// Whether one was there. It is of any rank, also of one from which nothing is waited for yet.
bool Lanes::find_part() {
  if (new_part_.empty()) new_part_.emplace_back();
  Part& part = new_part_.front();
  int found = 0;
  MPI_Status status;
  comm_.check(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_.get(), &found, &part.message, &status),
              "MPI_Improbe");
  if (found == 0) return false;
  int size = 0;
  MPI_Get_count(&status, MPI_BYTE, &size);
  part.size = static_cast<std::size_t>(size);
  part.is_last = status.MPI_TAG == last_part;
  Lane& lane = lanes_[static_cast<std::size_t>(status.MPI_SOURCE)];
  lane.parts.splice(lane.parts.end(), new_part_);
  is_behind_ = true;  // should the next line throw
  match(status.MPI_SOURCE);
  is_behind_ = false;
  return true;
}

// The parts that have come belong to the receives that wait, in their order.
void Lanes::match(int from) {
  Lane& lane = lanes_[static_cast<std::size_t>(from)];
  while (!lane.parts.empty() && !lane.waiting.empty()) {
    begin_part(from, lane.parts.front());
    const bool is_last = lane.parts.front().is_last;
    lane.parts.pop_front();
    if (!is_last) continue;
    Incoming& message = *lane.waiting.front();
    message.all_begun = true;
    if (message.filled != message.bytes.size()) {
      message.error =
          distributed::wrong_size(comm_.rank(), message.filled, from, message.bytes.size());
    }
    lane.waiting.pop_front();
    --waiting_;
  }
}

// What nobody wants, or what has no room, is received all the same: its sender waits for that.
void Lanes::begin_part(int from, Part& part) {
  const std::shared_ptr<Incoming>& message = lanes_[static_cast<std::size_t>(from)].waiting.front();
  requests_.reserve();
  std::byte* into = nullptr;
  if (message->wanted && message->filled + part.size <= message->bytes.size()) {
    into = message->bytes.data() + message->filled;
  } else {
    into = message->own.emplace_back(part.size).data();
  }
  MPI_Request request = MPI_REQUEST_NULL;
  comm_.check(MPI_Imrecv(into, static_cast<int>(part.size), MPI_BYTE, &part.message, &request),
              "MPI_Imrecv of {} bytes from rank {}", part.size, from);
  requests_.add(request, message);
  message->filled += part.size;
}

}  // namespace treadle::mpi
