// No memory in the middle of a compile, also inside LLVM: an error, and what was there goes on.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <vector>

#include "child_process.h"
#include "failing_new.h"
#include "fuzz.h"
#include "jit/engine.h"
#include "jit/llvm_thread.h"
#include "temporary_folder.h"
#include "treadle/error.h"

namespace treadle::jit {
namespace {

using Copy = plan::Kernel<plan::CopyArgs>;

Copy copy_of(Engine& engine, int length) {
  return engine.get(plan::CopySpec{plan::host_target(), DType::f32, DType::f64, length});
}

bool copies(const Copy& copy, int length) {
  std::vector<float> from(static_cast<std::size_t>(length), 3.0F);
  std::vector<double> to(from.size());
  copy({.source = from.data(), .target = to.data(), .count = 1});
  return to == std::vector<double>(from.size(), 3.0);
}

enum Day : int { fine = 0, wrong = 1, strange_error = 2, old_ones_lost = 3, later_strange = 4 };

// A child's day: a kernel, a second one while memory is short, the first again, a third.
template <class Shortage>
int live_through(const Shortage& shortage, const std::string& folder) {
  Engine engine({.cache_folder = folder});
  if (!copies(copy_of(engine, 5), 5)) return wrong;
  Copy second;
  int went = fine;
  shortage.begin();
  try {
    second = copy_of(engine, 7);
  } catch (const std::bad_alloc&) {
  } catch (const Error&) {
  } catch (...) {
    went = strange_error;
  }
  shortage.end();
  if (went != fine) return went;
  if (second && !copies(second, 7)) return wrong;
  if (!copies(copy_of(engine, 5), 5)) return old_ones_lost;
  try {
    if (!copies(copy_of(engine, 9), 9)) return wrong;
    if (llvm_is_lost()) return later_strange;
  } catch (const Error& error) {
    const bool told = std::strstr(error.what(), "make no new ones") != nullptr;
    if (!llvm_is_lost() || !told) return later_strange;
  }
  return fine;
}

// Of operator new: some calls fail.
struct NewFails {
  test::Failures failures;
  void begin() const { test::fail_allocations(failures); }
  static void end() { test::fail_allocations({}); }
};

// Of the system: so many bytes more than there are, and no others.
struct LittleRoom {
  std::int64_t bytes = 0;
  void begin() const {
    std::int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    limit(static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + bytes));
  }
  static void end() { limit(RLIM_INFINITY); }
  static void limit(rlim_t most) {
    rlimit room = {};
    getrlimit(RLIMIT_AS, &room);
    room.rlim_cur = std::min(most, room.rlim_max);
    setrlimit(RLIMIT_AS, &room);
  }
};

std::int64_t allocations_of_a_compile() {
  Engine engine({});
  copy_of(engine, 5);
  test::fail_allocations({});
  copy_of(engine, 7);
  return test::count_allocations();
}

TEST(OutOfMemory, IsAnErrorAndNothingElseSuffers) {
  if (!test::fail_allocations({})) GTEST_SKIP() << "the sanitizer has its own operator new";
  const std::int64_t all = allocations_of_a_compile();
  ASSERT_GT(all, 1000);
  for (int round = 0; round < test::fuzz_count(400); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    // One that fails, or all from then on until somebody gave up.
    const test::Failures failures{.after = test::random_int(random, 0, all),
                                  .how_many = random() % 2 == 0 ? 1 : std::int64_t{1} << 40};
    const bool on_disk = random() % 4 == 0;
    const test::TemporaryFolder folder;
    const test::Ended child = test::run_child(
        [&] { return live_through(NewFails{failures}, on_disk ? folder.path() : ""); });
    EXPECT_EQ(child.exit_code, 0) << child.text() << ": allocation " << failures.after << " of "
                                  << all << (failures.how_many == 1 ? "" : " and all after it");
  }
}

TEST(OutOfMemory, OfTheSystem) {
  if (!test::fail_allocations({})) GTEST_SKIP() << "sanitizers need a lot of address space";
  for (int round = 0; round < test::fuzz_count(200); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    const LittleRoom room{test::random_int(random, 0, 16 << 20)};
    const test::Ended child = test::run_child([&] { return live_through(room, ""); });
    EXPECT_EQ(child.exit_code, 0) << child.text() << ": " << room.bytes << " bytes";
  }
}

TEST(OutOfMemory, ErrorsOfTheWorkComeThrough) {
  EXPECT_THROW(in_llvm([] { throw Error("no such kernel"); }), Error);
  EXPECT_THROW(in_llvm([] { throw std::logic_error("a bug"); }), std::logic_error);
  bool inner = false;
  in_llvm([&] { in_llvm([&] { inner = true; }); });
  EXPECT_TRUE(inner);
  EXPECT_FALSE(llvm_is_lost());
}

}  // namespace
}  // namespace treadle::jit
