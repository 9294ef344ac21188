// From the program's communicator to ours, and what has to be right before.
#include "mpi/communicator.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

namespace treadle::mpi {
namespace {

const char* level_name(int level) {
  if (level == MPI_THREAD_SINGLE) return "MPI_THREAD_SINGLE";
  if (level == MPI_THREAD_FUNNELED) return "MPI_THREAD_FUNNELED";
  if (level == MPI_THREAD_SERIALIZED) return "MPI_THREAD_SERIALIZED";
  return "MPI_THREAD_MULTIPLE";
}

constexpr const char* needed_level =
    "all ranks need MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE from MPI_Init_thread, since "
    "messages are moved by any thread, one at a time";

bool is_initialised() {
  int initialised = 0;
  MPI_Initialized(&initialised);
  return initialised != 0;
}

bool is_finalised() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  return finalised != 0;
}

// What each rank can see alone; without it not even the others can be told.
int check_before(MPI_Comm ranks) {
  if (!is_initialised()) {
    fail(
        "mpi_exchange: MPI is not initialised; it comes after MPI_Init_thread with "
        "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE");
  }
  if (is_finalised()) fail("mpi_exchange: MPI is finalised; it comes before MPI_Finalize");
  if (ranks == MPI_COMM_NULL) fail("mpi_exchange: MPI_COMM_NULL has no ranks");
  int level = MPI_THREAD_SINGLE, is_main = 0, has_two_groups = 0;
  MPI_Query_thread(&level);
  MPI_Is_thread_main(&is_main);
  if (level < MPI_THREAD_SERIALIZED && is_main == 0) {
    fail("mpi_exchange: it is called by another thread than MPI_Init_thread and MPI gives {}; {}",
         level_name(level), needed_level);
  }
  MPI_Comm_test_inter(ranks, &has_two_groups);
  if (has_two_groups != 0) {
    fail("mpi_exchange: the communicator connects two groups of ranks; it must be of one group");
  }
  return level;
}

}  // namespace

Communicator::Communicator(MPI_Comm ranks) {
  const int level = check_before(ranks);
  MPI_Comm_rank(ranks, &rank_);
  MPI_Comm_size(ranks, &ranks_);
  check(MPI_Comm_dup(ranks, &comm_), "MPI_Comm_dup");
  try {
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_thread_levels(level);
  } catch (...) {
    MPI_Comm_free(&comm_);
    throw;
  }
}

void Communicator::check_thread_levels(int own) const {
  std::vector<int> levels(static_cast<std::size_t>(ranks_));
  check(MPI_Allgather(&own, 1, MPI_INT, levels.data(), 1, MPI_INT, comm_), "MPI_Allgather");
  for (int rank = 0; rank < ranks_; ++rank) {
    const int level = levels[static_cast<std::size_t>(rank)];
    if (level < MPI_THREAD_SERIALIZED) {
      fail("mpi_exchange: rank {} has {}; {}", rank, level_name(level), needed_level);
    }
  }
}

Communicator::~Communicator() {
  if (is_alive()) MPI_Comm_free(&comm_);
}

bool Communicator::is_alive() { return is_initialised() && !is_finalised(); }

std::string Communicator::text_of(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) {
    return fmt::format("error {}", code);
  }
  return {text.data(), static_cast<std::size_t>(length)};
}

void Communicator::abandon(const std::string& why) const noexcept {
  std::fprintf(stderr, "treadle: rank %d ends the job: %s\n", rank_, why.c_str());
  std::fflush(stderr);
  if (!is_alive()) return;
  // mpirun collects what is printed, and MPICH's forgets what it has not read when a job ends.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  // Of our own communicator MPICH would end this process alone.
  MPI_Abort(MPI_COMM_WORLD, 1);
}

}  // namespace treadle::mpi
