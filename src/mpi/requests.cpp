// Lists of requests in the form that MPI_Testsome takes.
#include "mpi/requests.h"

#include <algorithm>
#include <utility>

namespace treadle::mpi {

Requests::~Requests() {
  if (requests_.empty() || !Communicator::is_alive()) return;
  for (const std::shared_ptr<Work>& work : works_) {
    try {
      new std::shared_ptr<Work>(work);
    } catch (const std::bad_alloc&) {
      comm_.abandon("no memory is left to keep what MPI still reads and writes");
    }
  }
}

void Requests::reserve() {
  const std::size_t size = requests_.size() + 1;
  if (size <= done_.size()) return;
  const std::size_t more = std::max<std::size_t>(16, 2 * size);
  requests_.reserve(more);
  works_.reserve(more);
  statuses_.resize(more);
  done_.resize(more);  // last: its size is that of all
}

void Requests::add(MPI_Request request, const std::shared_ptr<Work>& work) {
  requests_.push_back(request);
  works_.push_back(work);
  ++work->in_flight;
}

void Requests::test() {
  if (requests_.empty()) return;
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                done_.data(), statuses_.data());
  if (code != MPI_ERR_IN_STATUS) {
    comm_.check(code, "MPI_Testsome of {} requests", requests_.size());
  }
  if (count == MPI_UNDEFINED) count = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    Work& work = *works_[static_cast<std::size_t>(done_[i])];
    --work.in_flight;
    const int error = code == MPI_ERR_IN_STATUS ? statuses_[i].MPI_ERROR : MPI_SUCCESS;
    if (error != MPI_SUCCESS && work.error.empty()) {
      work.error = fmt::format("exchange: rank {}: MPI_Testsome: {}", comm_.rank(),
                               Communicator::text_of(error));
    }
  }
  // From the last to the first, since the last request takes the place of one that goes.
  std::sort(done_.begin(), done_.begin() + count, std::greater<>());
  for (int i = 0; i < count; ++i) {
    remove(static_cast<std::size_t>(done_[static_cast<std::size_t>(i)]));
  }
}

void Requests::remove(std::size_t i) {
  requests_[i] = requests_.back();
  works_[i] = std::move(works_.back());
  requests_.pop_back();
  works_.pop_back();
}

}  // namespace treadle::mpi
