// Every rank runs the same tests together with the others; those of one that fails name it.
//
//   mpirun -n 4 build/release/tests/mpi/test_mpi_exchange
//
// Suites called SeveralRanks have nothing to do when there is one. TwoRanksWithMuchMemory is for two
// ranks of a full run.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <string>

#include "fuzz.h"

namespace {

// Unless the command line says which.
void choose_tests(int ranks) {
  if (GTEST_FLAG_GET(filter) != "*") return;
  std::string without = "-";
  if (ranks == 1) without += "SeveralRanks.*:";
  if (ranks != 2 || treadle::test::fuzz_size() != treadle::test::FuzzSize::full) {
    without += "TwoRanksWithMuchMemory.*";
  }
  GTEST_FLAG_SET(filter, without);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
  int level = 0, rank = 0, ranks = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  choose_tests(ranks);
  int failed = 1;
  {
    const testing::ScopedTrace trace(
        __FILE__, __LINE__, "rank " + std::to_string(rank) + " of " + std::to_string(ranks));
    failed = RUN_ALL_TESTS();
  }
  // A rank that failed may have left messages behind, for which others would wait.
  if (failed != 0) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
  if (rank == 0) std::printf("%d ranks\n", ranks);
  return 0;
}
