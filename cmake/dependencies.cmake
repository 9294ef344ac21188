# Every library we stand on, found once. All of them stay private to libtreadle.so: a program that uses Treadle needs none.

find_package(fmt REQUIRED)           # text
find_package(TBB REQUIRED)           # threads
find_package(CLI11 REQUIRED)         # the command line
find_package(nlohmann_json REQUIRED) # reports in JSON
find_package(PNG REQUIRED)           # pictures of masks

# Names of cached kernels. xxHash's own CMake package is missing from most distributions, Debian included.
find_package(PkgConfig REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)

# Tensors in and out: a single header.
find_path(DLPACK_INCLUDE_DIR dlpack/dlpack.h REQUIRED)
add_library(dlpack INTERFACE IMPORTED)
target_include_directories(dlpack INTERFACE ${DLPACK_INCLUDE_DIR})

# Code generation. One shared library; its headers are for emit/llvm and jit alone, and as system headers they may warn.
find_package(LLVM REQUIRED CONFIG HINTS /usr/lib/llvm-19)
if(LLVM_VERSION_MAJOR LESS 19)
  message(FATAL_ERROR "Treadle needs LLVM 19 or newer; found ${LLVM_VERSION}. Set LLVM_DIR to the one to use")
endif()
add_library(LLVM_headers INTERFACE IMPORTED)
target_include_directories(LLVM_headers SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
target_link_libraries(LLVM_headers INTERFACE LLVM)
