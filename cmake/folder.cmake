# treadle_folder(<folder> DEPENDS <target>...)
#
# Makes the static library treadle_<folder>, alias treadle::<folder>, from the .cpp files beside the calling CMakeLists.txt.
# A slash in the folder's name becomes an underscore: emit/llvm is treadle::emit_llvm.
#
#   treadle_folder(ir DEPENDS treadle::base)
function(treadle_folder folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEPENDS")
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
  set_property(GLOBAL APPEND PROPERTY TREADLE_LIBRARIES treadle_${name})
endfunction()

# Code says #include "treadle/view.h" for what users see and #include "ir/graph.h" for what they do not.
function(treadle_includes target)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
endfunction()
