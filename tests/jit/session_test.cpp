#include "jit/session.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "jit/inspect.h"
#include "kernels.h"

namespace treadle::jit {
namespace {

// Whether an executable mapping of this process holds the address.
bool is_code(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long first = 0, end = 0;
    char rights[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &first, &end, rights) != 3) continue;
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (at >= first && at < end) return rights[2] == 'x';
  }
  return false;
}

std::string squares_object() {
  const plan::Target target = plan::host_target();
  return object_of(test::squares_module(target), target);
}

TEST(Session, FreesCodeThatNobodyHolds) {
  Session session({});
  const std::string object = squares_object();
  for (int round = 0; round < 3; ++round) {  // the name is free again, too
    Code first = session.load("squares", object, "kernel");
    Code second = first;
    const void* address = first.get();
    EXPECT_TRUE(is_code(address));
    first.reset();
    EXPECT_TRUE(is_code(address)) << "still held";
    second.reset();
    EXPECT_FALSE(is_code(address)) << "round " << round;
  }
}

TEST(Session, CodeOutlivesTheSession) {
  Code code;
  {
    Session session({});
    code = session.load("squares", squares_object(), "kernel");
  }
  EXPECT_TRUE(is_code(code.get()));
}

}  // namespace
}  // namespace treadle::jit
