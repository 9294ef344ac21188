// What the environment held when it was first asked.
#include "base/environment.h"

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>

namespace treadle::base {
namespace {

struct Variables {
  std::mutex mutex;
  std::map<std::string, std::optional<std::string>> known;
  std::atomic<std::uint64_t> reading = 1;
};

// Never taken down: threads may still be running when statics are.
Variables& variables() {
  static auto* all = new Variables;
  return *all;
}

}  // namespace

std::optional<std::string> variable(const std::string& name) {
  Variables& all = variables();
  const std::lock_guard lock(all.mutex);
  const auto [entry, is_new] = all.known.try_emplace(name);
  if (is_new) {
    if (const char* value = secure_getenv(name.c_str())) entry->second = value;
  }
  return entry->second;
}

void forget_variables() {
  Variables& all = variables();
  const std::lock_guard lock(all.mutex);
  all.known.clear();
  ++all.reading;
}

std::uint64_t reading_of_variables() { return variables().reading.load(std::memory_order_acquire); }

}  // namespace treadle::base
