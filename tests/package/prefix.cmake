# What `cmake --install` puts into a prefix, and nothing else: no Python module, even if one was built.
#
# In: build (our build tree), scratch (a folder we may empty).

file(REMOVE_RECURSE ${scratch})
execute_process(
  COMMAND ${CMAKE_COMMAND} --install ${build} --prefix ${scratch} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET
)

file(GLOB found RELATIVE ${scratch} ${scratch}/*)
list(JOIN found " " found)
if(NOT found MATCHES "^bin include lib[^ ]* share$")
  message(FATAL_ERROR "the prefix holds ${found}; it should hold bin, include, lib and share")
endif()
foreach(file bin/treadle include/treadle/treadle.h share/doc/treadle/LICENSE)
  if(NOT EXISTS ${scratch}/${file})
    message(FATAL_ERROR "${file} was not installed")
  endif()
endforeach()
file(GLOB_RECURSE modules ${scratch}/*_core*)
if(modules)
  message(FATAL_ERROR "the Python module was installed: ${modules}")
endif()
