// In: the processor's own word on what it can do; out: a row of the table below.
#include "plan/target.h"

#include <dlfcn.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/error.h"

namespace treadle::plan {
namespace {

enum class Needs : std::uint8_t { nothing, avx2, avx512, other_machine };

struct Row {
  std::string_view name, cpu, triple;
  int vector_bytes, registers;
  bool fma, rounding, half, scale;
  Needs needs;
};

constexpr std::string_view x86 = "x86_64-unknown-linux-gnu";
constexpr std::string_view arm = "aarch64-unknown-linux-gnu";
#if defined(__aarch64__)
constexpr Needs x86_base = Needs::other_machine, arm_base = Needs::nothing;
constexpr Needs x86_avx2 = Needs::other_machine, x86_avx512 = Needs::other_machine;
#else
constexpr Needs x86_base = Needs::nothing, arm_base = Needs::other_machine;
constexpr Needs x86_avx2 = Needs::avx2, x86_avx512 = Needs::avx512;
#endif

// Best last: of those that run here, the last one is taken.
constexpr std::array table{
    Row{"x86-64", "x86-64", x86, 16, 16, false, false, false, false, x86_base},
    Row{"haswell", "haswell", x86, 32, 16, true, true, true, false, x86_avx2},
    Row{"skylake-avx512", "skylake-avx512", x86, 64, 32, true, true, true, true, x86_avx512},
    Row{"icelake-server", "icelake-server", x86, 64, 32, true, true, true, true, x86_avx512},
    Row{"sapphirerapids", "sapphirerapids", x86, 64, 32, true, true, true, true, x86_avx512},
    Row{"aarch64", "generic", arm, 16, 32, true, true, true, false, arm_base},
    Row{"neoverse-n1", "neoverse-n1", arm, 16, 32, true, true, true, false, arm_base},
};

// What a processor without AVX-512 cannot run, and which of the three rows that have it fits.
bool runs_here(const Row& row) {
  switch (row.needs) {
    case Needs::nothing: return row.name != "neoverse-n1";
    case Needs::other_machine: return false;
#if defined(__x86_64__)
    case Needs::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("bmi2");
    case Needs::avx512: {
      const bool base = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512cd");
      const bool ice = __builtin_cpu_supports("avx512vbmi2") &&
                       __builtin_cpu_supports("avx512vnni") &&
                       __builtin_cpu_supports("avx512bitalg") &&
                       __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("gfni");
      return base && (row.name == "skylake-avx512" || (row.name == "icelake-server" && ice));
    }
#else
    case Needs::avx2:
    case Needs::avx512: return false;
#endif
  }
  return false;
}

// The library stays open: kernels call into it. Before glibc 2.35 it lacked most functions.
bool have_libmvec() {
#if defined(__x86_64__) && defined(__GLIBC__)
  static const bool have = [] {
    void* library = dlopen("libmvec.so.1", RTLD_NOW | RTLD_GLOBAL);
    return library != nullptr && dlsym(library, "_ZGVbN4v_tanhf") != nullptr;
  }();
  return have;
#else
  return false;
#endif
}

Target target_of(const Row& row) {
  return {.name = std::string(row.name),
          .cpu = std::string(row.cpu),
          .triple = std::string(row.triple),
          .vector_bytes = row.vector_bytes,
          .registers = row.registers,
          .fma = row.fma,
          .rounding = row.rounding,
          .half = row.half,
          .scale = row.scale,
          .libmvec = row.triple == x86 && have_libmvec()};
}

std::int64_t cache_or(int name, std::int64_t otherwise) {
  const long bytes = sysconf(name);
  return bytes > 0 ? bytes : otherwise;
}

}  // namespace

Target find_target(std::string_view name) {
  const auto row = std::ranges::find(table, name, &Row::name);
  if (row != table.end()) return target_of(*row);
  std::string names;
  for (const Row& r : table) names += fmt::format("{}{}", names.empty() ? "" : ", ", r.name);
  base::fail("target: there is no target \"{}\"; there are {}", name, names);
}

std::vector<std::string> runnable_targets() {
  std::vector<std::string> names;
  for (const Row& row : table)
    if (runs_here(row)) names.emplace_back(row.name);
  return names;
}

Target host_target() {
  const char* wanted = std::getenv("TREADLE_TARGET");
  const bool given = wanted != nullptr && *wanted != '\0';
  const std::vector<std::string> runnable = runnable_targets();
  if (runnable.empty()) base::fail("target: this processor is none that Treadle knows");
  Target target = find_target(given ? std::string_view(wanted) : runnable.back());
  if (std::ranges::find(runnable, target.name) == runnable.end()) {
    base::fail("target: TREADLE_TARGET is \"{}\", which this processor cannot run; it runs {}",
               target.name, fmt::join(runnable, ", "));
  }
  target.l1 = cache_or(_SC_LEVEL1_DCACHE_SIZE, target.l1);
  target.l2 = cache_or(_SC_LEVEL2_CACHE_SIZE, target.l2);
  target.cores = static_cast<int>(cache_or(_SC_NPROCESSORS_ONLN, 1));
  return target;
}

base::Hash hash(const Target& target) {
  return base::Hasher()
      .add(target.name)
      .add(target.cpu)
      .add(target.triple)
      .add(target.vector_bytes)
      .add(target.registers)
      .add(target.fma)
      .add(target.rounding)
      .add(target.half)
      .add(target.scale)
      .add(target.libmvec)
      .finish();
}

std::string to_text(const Target& target) {
  return fmt::format("{}: {}-byte vectors, {} registers{}{}{}, L1 {} KiB, L2 {} KiB, {} cores",
                     target.name, target.vector_bytes, target.registers, target.fma ? ", fma" : "",
                     target.half ? ", half" : "", target.scale ? ", scale" : "", target.l1 >> 10,
                     target.l2 >> 10, target.cores);
}

}  // namespace treadle::plan
