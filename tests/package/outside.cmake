# In: build (our build tree), source (the outside project), scratch (a folder we may empty), compiler,
# with_mpi (whether there is a libtreadle_mpi).

file(REMOVE_RECURSE ${scratch})

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --install ${build} --prefix ${scratch}/installed)
# A package that still looks where it was first installed would not survive the move.
file(RENAME ${scratch}/installed ${scratch}/moved)
run(${CMAKE_COMMAND} -G Ninja -S ${source} -B ${scratch}/outside -D CMAKE_PREFIX_PATH=${scratch}/moved
    -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_BUILD_TYPE=Release -D with_mpi=${with_mpi})
run(${CMAKE_COMMAND} --build ${scratch}/outside)
run(${scratch}/outside/outside)
if(with_mpi)
  run(${scratch}/outside/outside_mpi)
endif()
if(EXISTS ${scratch}/moved/bin/treadle)
  run(${scratch}/moved/bin/treadle --help)
endif()
