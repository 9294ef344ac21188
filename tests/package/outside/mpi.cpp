// The same of libtreadle_mpi, as the only rank of a job.
#include <treadle/error.h>
#include <treadle/mpi.h>

#include <iostream>

int main() {
  try {
    treadle::mpi_exchange(MPI_COMM_WORLD);
  } catch (const treadle::Error& error) {
    std::cout << error.what() << '\n';
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
    const int ranks = treadle::mpi_exchange(MPI_COMM_WORLD)->ranks();
    MPI_Finalize();
    return ranks == 1 ? 0 : 1;
  }
  std::cerr << "an exchange before MPI_Init did not throw\n";
  return 1;
}
