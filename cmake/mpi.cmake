# Whether there is a libtreadle_mpi: TREADLE_HAS_MPI, with MPI::MPI_CXX. libtreadle.so never asks.

set(TREADLE_HAS_MPI OFF)
set(MPI_CXX_SKIP_MPICXX TRUE) # the C++ bindings that MPI itself has given up
if(TREADLE_MPI STREQUAL "AUTO")
  if(TREADLE_TESTS AND NOT TREADLE_SANITIZE)
    find_package(MPI QUIET COMPONENTS CXX)
  endif()
elseif(TREADLE_MPI)
  find_package(MPI REQUIRED COMPONENTS CXX)
endif()
if(TARGET MPI::MPI_CXX)
  set(TREADLE_HAS_MPI ON)
endif()
