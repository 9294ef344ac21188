// In: /proc/cpuinfo on Linux, sysctl on macOS. Out: a Machine; what cannot be found out is
// said to be unknown.
#include "cli/machine.h"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#ifdef __APPLE__
#include <sys/sysctl.h>
#else
#include <fstream>
#endif

namespace treadle::cli {
namespace {

// Those that matter for the speed of attention, by the names that Linux gives them, x86 before ARM
// before RISC-V.
constexpr std::array<std::string_view, 19> known_extensions{
    "sse4_2",      "avx",         "f16c",     "fma",      "avx2",
    "avx_vnni",    "avx512f",     "avx512bw", "avx512vl", "avx512dq",
    "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "asimd",
    "asimdhp",     "sve",         "sve2",     "v"};

std::string architecture() {
  utsname system{};
  return uname(&system) == 0 ? system.machine : "unknown";
}

struct Cpu {
  std::string name;
  std::vector<std::string> features;
};

#ifdef __APPLE__

Cpu read_cpu() {
  std::array<char, 256> name{};
  std::size_t size = name.size() - 1;
  if (sysctlbyname("machdep.cpu.brand_string", name.data(), &size, nullptr, 0) != 0) name[0] = '\0';
#ifdef __aarch64__
  return {name.data(), {"asimd", "asimdhp"}};  // every Mac with an ARM processor has them
#else
  return {name.data(), {}};
#endif
}

#else

std::string trimmed(std::string_view text) {
  const auto begin = std::min(text.find_first_not_of(" \t"), text.size());
  return std::string(text.substr(begin, text.find_last_not_of(" \t") + 1 - begin));
}

// The kernel lists a feature only if programs may use it. Lines are "model name\t: ..."; the keys
// differ between architectures.
Cpu read_cpu() {
  Cpu cpu;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = trimmed(std::string_view(line).substr(0, colon));
    const std::string value = trimmed(std::string_view(line).substr(colon + 1));
    if (cpu.name.empty() && (key == "model name" || key == "cpu" || key == "uarch"))
      cpu.name = value;
    if (cpu.features.empty() && (key == "flags" || key == "Features")) {
      std::istringstream words(value);
      for (std::string word; words >> word;) cpu.features.push_back(word);
    }
  }
  return cpu;
}

#endif

}  // namespace

Machine this_machine() {
  const Cpu cpu = read_cpu();
  std::string extensions;
  for (const std::string_view extension : known_extensions) {
    if (std::ranges::count(cpu.features, extension) == 0) continue;
    extensions.append(extensions.empty() ? "" : " ").append(extension);
  }
  return {.architecture = architecture(),
          .cpu = cpu.name.empty() ? "unknown" : cpu.name,
          .vector_extensions = extensions.empty() ? "none known" : extensions,
          .cores = static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U))};
}

}  // namespace treadle::cli
