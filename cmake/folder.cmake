# treadle_folder(<folder> [OUTSIDE_LIBRARY] DEPENDS <target>...)
#
# Makes the static library treadle_<folder>, alias treadle::<folder>, from the .cpp files beside the calling CMakeLists.txt.
# A slash in the folder's name becomes an underscore: emit/llvm is treadle::emit_llvm. With OUTSIDE_LIBRARY it is no part of
# libtreadle.so; the program and the tests link it themselves.
#
#   treadle_folder(ir DEPENDS treadle::base)
function(treadle_folder folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "OUTSIDE_LIBRARY" "" "DEPENDS")
  string(REPLACE "/" "_" name ${folder})
  file(GLOB sources CONFIGURE_DEPENDS *.cpp)

  if(NOT sources) # headers only
    add_library(treadle_${name} INTERFACE)
    add_library(treadle::${name} ALIAS treadle_${name})
    target_link_libraries(treadle_${name} INTERFACE ${arg_DEPENDS})
    return()
  endif()

  add_library(treadle_${name} STATIC ${sources})
  add_library(treadle::${name} ALIAS treadle_${name})
  treadle_includes(treadle_${name})
  target_link_libraries(treadle_${name} PUBLIC ${arg_DEPENDS})
  treadle_precompile(treadle_${name})
  set_target_properties(treadle_${name} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY TREADLE_FOLDER_LIBRARIES treadle_${name})
  if(NOT arg_OUTSIDE_LIBRARY)
    set_property(GLOBAL APPEND PROPERTY TREADLE_LIBRARIES treadle_${name})
  endif()
endfunction()

# Lets a target have the headers that most files read in precompiled form; reading them was more than half of the time to
# compile. `./dev lint` does without, and so finds an #include that was forgotten.
function(treadle_precompile target)
  set(headers <fmt/format.h> <algorithm> <cmath> <functional> <limits> <memory> <optional> <span> <string> <vector>)
  if(target MATCHES "treadle_(base|program)") # a program's code is compiled differently
    target_precompile_headers(${target} PRIVATE ${headers})
  elseif(target STREQUAL "treadle_emit_llvm")
    target_precompile_headers(${target} PRIVATE ${headers} <llvm/IR/IRBuilder.h> <llvm/IR/Module.h>)
  elseif(target STREQUAL "treadle_jit")
    target_precompile_headers(${target} REUSE_FROM treadle_emit_llvm)
  else()
    target_precompile_headers(${target} REUSE_FROM treadle_base)
  endif()
endfunction()

# Code says #include "treadle/view.h" for what users see and #include "ir/graph.h" for what they do not.
function(treadle_includes target)
  cmake_path(GET CMAKE_CURRENT_FUNCTION_LIST_DIR PARENT_PATH root)
  target_include_directories(${target} PUBLIC ${root}/include ${root}/src)
endfunction()

# How a shared library made from folders is called and where it lies.
function(treadle_library_properties target)
  set_target_properties(
    ${target}
    PROPERTIES VERSION ${PROJECT_VERSION}
               SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} # before 1.0 every minor version may break
               LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
               LINKER_LANGUAGE CXX # CMake cannot tell from objects alone
  )
  if(TREADLE_SANITIZE) # tests are made from the folders; it is there for who asks
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()
