// What MPI has begun and not finished, and whose it is.
//
//   requests.reserve();                            // takes memory, and may throw
//   comm.check(MPI_Isend(..., &request), ...);
//   requests.add(request, message);                // does not
//   requests.test();
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mpi/communicator.h"

namespace treadle::mpi {

using Bytes = std::vector<std::byte>;

// A message or a gather, in one part or several. Lives on when its transfer has ended.
struct Work {
  int in_flight = 0;       // parts that MPI is at work on
  bool all_begun = false;  // no part will follow
  bool wanted = true;      // the transfer has not ended
  std::string error;
  std::vector<Bytes> own;  // what MPI reads and writes in place of the caller's memory

  [[nodiscard]] bool is_over() const { return all_begun && in_flight == 0; }
};

class Requests {
 public:
  explicit Requests(const Communicator& comm) : comm_(comm) {}
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;
  // What MPI is still at work on keeps its memory for good.
  ~Requests();

  void reserve();
  void add(MPI_Request request, const std::shared_ptr<Work>& work);
  [[nodiscard]] bool empty() const { return requests_.empty(); }

  // Takes note of those that are done, well or with an error.
  void test();

 private:
  void remove(std::size_t i);

  const Communicator& comm_;
  std::vector<MPI_Request> requests_;
  std::vector<std::shared_ptr<Work>> works_;  // of each request
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace treadle::mpi
