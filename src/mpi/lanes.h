// Messages between two ranks each, in the order in which they were sent.
//
// A receive is begun only when its message is there (MPI_Improbe): its size is known by then, and a
// receive that was given up before has no memory that MPI could write to.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <deque>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "mpi/communicator.h"
#include "mpi/limits.h"
#include "mpi/requests.h"

namespace treadle::mpi {

struct Outgoing : Work {
  bool copied = false;
};

struct Incoming : Work {
  std::span<std::byte> bytes;
  std::size_t filled = 0;  // by the parts that were begun
};

class Lanes {
 public:
  Lanes(const Communicator& comm, const Limits& limits, Requests& requests);

  // The message is made by the caller, who has to know of it also when this throws half-way.
  void send(const std::shared_ptr<Outgoing>& message, int to, std::span<const std::byte> bytes);
  void receive(const std::shared_ptr<Incoming>& message, int from, std::span<std::byte> bytes);

  // Begins the receives whose messages have come.
  void match();

 private:
  struct Part {
    MPI_Message message = MPI_MESSAGE_NULL;
    std::size_t size = 0;
    bool is_last = false;  // of its message
  };
  struct Lane {
    std::deque<std::shared_ptr<Incoming>> waiting;
    std::list<Part> parts;  // that have come before their receive
  };

  void begin_send(const std::shared_ptr<Outgoing>& message, int to, const std::byte* bytes,
                  std::size_t size, bool is_last);
  bool find_part();
  void match(int from);
  void begin_part(int from, Part& part);

  const Communicator& comm_;
  const Limits limits_;
  Requests& requests_;
  std::vector<Lane> lanes_;   // by sender
  std::list<Part> new_part_;  // one: memory for the next that is found
  std::size_t waiting_ = 0;   // receives of all lanes
  bool is_behind_ = false;    // some lane has both parts and receives
};

}  // namespace treadle::mpi
