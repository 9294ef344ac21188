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
