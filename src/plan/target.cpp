// The machines that kernels can be made for, and which of them this one is.
//
// In: the features that the processor reports. Out: a row of the table below. Read the table first.
#include "plan/target.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <dlfcn.h>
#include <fmt/ranges.h>
#include <unistd.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <array>
#include <span>

#include "base/environment.h"
#include "base/error.h"

namespace treadle::plan {
namespace {

using Features = std::span<const std::string_view>;

struct Row {
  std::string_view name, cpu, triple;
  Features needs;          // what a processor must have to run the code
  bool by_default = true;  // else used only when asked for
  int vector_bytes, registers;
  bool fma = true, rounding = true, half = true, masked_loads = false, avx512 = false;
  int libmvec = 0;
};

constexpr std::string_view x86 = "x86_64-unknown-linux-gnu";
constexpr std::string_view arm = "aarch64-unknown-linux-gnu";

// What LLVM may use, unasked, for the cpu of a row. A CPU of that name has more (keys, random
// numbers, states of the system), which LLVM uses only where the IR says so and which virtual
// machines like to hide; tests/jit/target_features_test.cpp holds LLVM's list against this one.
constexpr std::array<std::string_view, 1> x86_64{"x86-64"};
constexpr std::array<std::string_view, 13> avx2{"x86-64", "ssse3", "sse4.1", "sse4.2", "popcnt",
                                                "avx",    "avx2",  "fma",    "f16c",   "bmi",
                                                "bmi2",   "lzcnt", "movbe"};
constexpr std::array<std::string_view, 18> avx512{
    "x86-64", "ssse3",   "sse4.1",   "sse4.2",   "popcnt",   "avx",
    "avx2",   "fma",     "f16c",     "bmi",      "bmi2",     "lzcnt",
    "movbe",  "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"};
constexpr std::array<std::string_view, 25> ice_lake{
    "x86-64",     "ssse3",      "sse4.1",      "sse4.2",     "popcnt",       "avx",
    "avx2",       "fma",        "f16c",        "bmi",        "bmi2",         "lzcnt",
    "movbe",      "avx512f",    "avx512bw",    "avx512dq",   "avx512vl",     "avx512cd",
    "avx512vbmi", "avx512ifma", "avx512vbmi2", "avx512vnni", "avx512bitalg", "avx512vpopcntdq",
    "gfni"};
constexpr std::array<std::string_view, 28> sapphire_rapids{
    "x86-64",     "ssse3",      "sse4.1",      "sse4.2",     "popcnt",       "avx",
    "avx2",       "fma",        "f16c",        "bmi",        "bmi2",         "lzcnt",
    "movbe",      "avx512f",    "avx512bw",    "avx512dq",   "avx512vl",     "avx512cd",
    "avx512vbmi", "avx512ifma", "avx512vbmi2", "avx512vnni", "avx512bitalg", "avx512vpopcntdq",
    "gfni",       "avxvnni",    "avx512bf16",  "avx512fp16"};
constexpr std::array<std::string_view, 1> armv8{"aarch64"};
constexpr std::array<std::string_view, 7> neoverse{"aarch64", "atomics",  "fphp", "asimdhp",
                                                   "asimddp", "asimdrdm", "lrcpc"};

// Best last: of those that run here, the last one by default is taken. sapphirerapids and
// neoverse-n1 have no code of their own yet, beyond what LLVM makes of the same IR.
constexpr std::array table{
    Row{.name = "x86-64",
        .cpu = "x86-64",
        .triple = x86,
        .needs = x86_64,
        .vector_bytes = 16,
        .registers = 16,
        .fma = false,
        .rounding = false,
        .half = false,
        .libmvec = 16},
    Row{.name = "haswell",
        .cpu = "haswell",
        .triple = x86,
        .needs = avx2,
        .vector_bytes = 32,
        .registers = 16,
        .masked_loads = true,
        .libmvec = 32},
    Row{.name = "skylake-avx512",
        .cpu = "skylake-avx512",
        .triple = x86,
        .needs = avx512,
        .vector_bytes = 64,
        .registers = 32,
        .masked_loads = true,
        .avx512 = true,
        .libmvec = 64},
    Row{.name = "icelake-server",
        .cpu = "icelake-server",
        .triple = x86,
        .needs = ice_lake,
        .vector_bytes = 64,
        .registers = 32,
        .masked_loads = true,
        .avx512 = true,
        .libmvec = 64},
    Row{.name = "sapphirerapids",
        .cpu = "sapphirerapids",
        .triple = x86,
        .needs = sapphire_rapids,
        .by_default = false,
        .vector_bytes = 64,
        .registers = 32,
        .masked_loads = true,
        .avx512 = true,
        .libmvec = 64},
    Row{.name = "aarch64",
        .cpu = "generic",
        .triple = arm,
        .needs = armv8,
        .vector_bytes = 16,
        .registers = 32},
    Row{.name = "neoverse-n1",
        .cpu = "neoverse-n1",
        .triple = arm,
        .needs = neoverse,
        .by_default = false,
        .vector_bytes = 16,
        .registers = 32},
};

// What this processor has, of the features that rows name.
std::vector<std::string_view> features_here() {
  std::vector<std::string_view> here;
  const auto add = [&](std::string_view feature, bool has) {
    if (has) here.push_back(feature);
  };
#if defined(__x86_64__)
  add("x86-64", true);
  add("ssse3", __builtin_cpu_supports("ssse3"));
  add("sse4.1", __builtin_cpu_supports("sse4.1"));
  add("sse4.2", __builtin_cpu_supports("sse4.2"));
  add("popcnt", __builtin_cpu_supports("popcnt"));
  add("avx", __builtin_cpu_supports("avx"));
  add("f16c", __builtin_cpu_supports("f16c"));
  add("bmi", __builtin_cpu_supports("bmi"));
  add("lzcnt", __builtin_cpu_supports("lzcnt"));
  add("movbe", __builtin_cpu_supports("movbe"));
  add("avx512vbmi", __builtin_cpu_supports("avx512vbmi"));
  add("avx512ifma", __builtin_cpu_supports("avx512ifma"));
  add("avx2", __builtin_cpu_supports("avx2"));
  add("fma", __builtin_cpu_supports("fma"));
  add("bmi2", __builtin_cpu_supports("bmi2"));
  add("avx512f", __builtin_cpu_supports("avx512f"));
  add("avx512bw", __builtin_cpu_supports("avx512bw"));
  add("avx512dq", __builtin_cpu_supports("avx512dq"));
  add("avx512vl", __builtin_cpu_supports("avx512vl"));
  add("avx512cd", __builtin_cpu_supports("avx512cd"));
  add("avx512vbmi2", __builtin_cpu_supports("avx512vbmi2"));
  add("avx512vnni", __builtin_cpu_supports("avx512vnni"));
  add("avx512bitalg", __builtin_cpu_supports("avx512bitalg"));
  add("avx512vpopcntdq", __builtin_cpu_supports("avx512vpopcntdq"));
  add("gfni", __builtin_cpu_supports("gfni"));
  add("avxvnni", __builtin_cpu_supports("avxvnni"));
  add("avx512bf16", __builtin_cpu_supports("avx512bf16"));
  add("avx512fp16", __builtin_cpu_supports("avx512fp16"));
#elif defined(__aarch64__)
  const unsigned long has = getauxval(AT_HWCAP);
  add("aarch64", true);
  add("atomics", (has & HWCAP_ATOMICS) != 0);
  add("fphp", (has & HWCAP_FPHP) != 0);
  add("asimdrdm", (has & HWCAP_ASIMDRDM) != 0);
  add("lrcpc", (has & HWCAP_LRCPC) != 0);
  add("asimdhp", (has & HWCAP_ASIMDHP) != 0);
  add("asimddp", (has & HWCAP_ASIMDDP) != 0);
#endif
  return here;
}

// The rows whose code this processor runs, in the table's order.
std::vector<const Row*> runnable_rows() {
  const std::vector<std::string_view> here = features_here();
  const auto is_here = [&](std::string_view feature) {
    return std::ranges::find(here, feature) != here.end();
  };
  std::vector<const Row*> rows;
  for (const Row& row : table)
    if (std::ranges::all_of(row.needs, is_here)) rows.push_back(&row);
  return rows;
}

std::string_view default_name(const std::vector<const Row*>& runnable) {
  const auto last = std::find_if(runnable.rbegin(), runnable.rend(),
                                 [](const Row* row) { return row->by_default; });
  if (last == runnable.rend()) base::fail("target: Treadle does not know this processor");
  return (*last)->name;
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
          .masked_loads = row.masked_loads,
          .avx512 = row.avx512,
          .libmvec = row.libmvec > 0 && have_libmvec() ? row.libmvec : 0};
}

const Row& row_named(std::string_view name) {
  const auto row = std::ranges::find(table, name, &Row::name);
  if (row != table.end()) return *row;
  std::string names;
  for (const Row& r : table) names += fmt::format("{}{}", names.empty() ? "" : ", ", r.name);
  base::fail("target: there is no target \"{}\"; there are {}", name, names);
}

constexpr unsigned int zen3_and_zen4 = 0x19;  // Zen 3 has no AVX-512
constexpr unsigned int zen5 = 0x1a;

// Of AMD's processors; 0 of others.
unsigned int amd_family() {
#ifdef __x86_64__
  unsigned int a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned int vendor_amd = 0x68747541;  // "Auth"
  if (__get_cpuid(0, &a, &b, &c, &d) == 0 || b != vendor_amd) return 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return 0;
  return (a >> 8 & 15) + (a >> 20 & 255);
#else
  return 0;
#endif
}

std::int64_t cache_or(int name, std::int64_t otherwise) {
  const long bytes = sysconf(name);
  return bytes > 0 ? bytes : otherwise;
}

}  // namespace

Target find_target(std::string_view name) { return target_of(row_named(name)); }

std::vector<std::string> needed_features(std::string_view name) {
  const Features needs = row_named(name).needs;
  return {needs.begin(), needs.end()};
}

std::vector<std::string> runnable_targets() {
  std::vector<std::string> names;
  for (const Row* row : runnable_rows()) names.emplace_back(row->name);
  return names;
}

Target host_target() {
  const std::string wanted = base::variable("TREADLE_TARGET").value_or("");
  Target target =
      find_target(wanted.empty() ? default_name(runnable_rows()) : std::string_view(wanted));
  const std::vector<std::string> runnable = runnable_targets();
  if (std::ranges::find(runnable, target.name) == runnable.end()) {
    base::fail("target: TREADLE_TARGET is \"{}\", which this processor cannot run; it runs {}",
               target.name, fmt::join(runnable, ", "));
  }
  const unsigned int amd = amd_family();
  target.half_wide = target.avx512 && amd == zen3_and_zen4;
  target.wide_loads = target.avx512 && amd == zen5;
  target.l1 = cache_or(_SC_LEVEL1_DCACHE_SIZE, target.l1);
  target.l2 = cache_or(_SC_LEVEL2_CACHE_SIZE, target.l2);
  target.cores = static_cast<int>(cache_or(_SC_NPROCESSORS_ONLN, 1));
  return target;
}

base::Hash hash(const Target& target) {
  // A binding for each member: one that is added and forgotten here does not compile. Code does not
  // depend on the last five.
  const auto& [name, cpu, triple, vector_bytes, registers, fma, rounding, half, masked_loads,
               avx512, libmvec, half_wide, wide_loads, l1, l2, cores] = target;
  return base::Hasher()
      .add(name)
      .add(cpu)
      .add(triple)
      .add(vector_bytes)
      .add(registers)
      .add(fma)
      .add(rounding)
      .add(half)
      .add(masked_loads)
      .add(avx512)
      .add(libmvec)
      .finish();
}

std::string to_text(const Target& target) {
  return fmt::format("{}: {}-byte vectors, {} registers{}{}{}{}, L1 {} KiB, L2 {} KiB, {} cores",
                     target.name, target.vector_bytes, target.registers, target.fma ? ", fma" : "",
                     target.half ? ", half" : "", target.avx512 ? ", avx512" : "",
                     target.half_wide    ? " in halves"
                     : target.wide_loads ? " with wide loads"
                                         : "",
                     target.l1 >> 10, target.l2 >> 10, target.cores);
}

}  // namespace treadle::plan
