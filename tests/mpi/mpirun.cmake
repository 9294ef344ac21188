# mpirun: the words before the number of ranks. Ranks may be more than cores, and their user may be root, as in containers.
set(mpirun ${MPIEXEC_EXECUTABLE})
execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE version ERROR_QUIET)
if(version MATCHES "Open MPI|OpenRTE")
  # Named, the way of messages need not be searched for, which takes longer than most tests.
  list(APPEND mpirun --allow-run-as-root --oversubscribe --bind-to none --mca pml ob1)
endif()
list(APPEND mpirun ${MPIEXEC_NUMPROC_FLAG})
