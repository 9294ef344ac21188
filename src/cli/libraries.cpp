// Each library tells its version in its own way.
#include "cli/libraries.h"

#include <dlpack/dlpack.h>
#include <fmt/core.h>
#include <oneapi/tbb/version.h>
#include <png.h>
#include <xxhash.h>

#include <CLI/Version.hpp>
#include <nlohmann/json.hpp>

#include "jit/engine.h"

namespace treadle::cli {
namespace {

// 90100 -> "9.1.0"
std::string from_decimal(unsigned version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string dlpack_version() {
#ifdef DLPACK_MAJOR_VERSION
  return fmt::format("{}.{}", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
#else
  return fmt::format("{}.{}", DLPACK_VERSION / 100, DLPACK_VERSION / 10 % 10);  // 60 -> "0.6"
#endif
}

}  // namespace

std::vector<Library> libraries() {
  return {{"fmt", from_decimal(FMT_VERSION)},
          {"oneTBB", TBB_runtime_version()},
          {"LLVM", jit::llvm_version()},
          {"xxhash", from_decimal(XXH_versionNumber())},
          {"dlpack", dlpack_version()},
          {"CLI11", CLI11_VERSION},
          {"libpng", png_get_libpng_ver(nullptr)},
          {"nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                        NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)}};
}

}  // namespace treadle::cli
