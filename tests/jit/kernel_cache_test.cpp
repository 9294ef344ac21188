#include "jit/kernel_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "child_process.h"

namespace treadle::jit {
namespace {

base::Key numbered_key(int number) { return base::Hasher().add(number).key(); }

// An address that is counted while somebody holds it.
class Made {
 public:
  Code operator()(int number) {
    ++made;
    ++alive;
    return {new int(number), [this](const void* code) {
              --alive;
              delete static_cast<const int*>(code);
            }};
  }
  std::atomic<int> made = 0, alive = 0;
};

int number_of(const Code& code) { return *static_cast<const int*>(code.get()); }

TEST(KernelCache, KeepsThoseThatWereAskedForLast) {
  Made make;
  KernelCache cache(3);
  const auto get = [&](int number) {
    return number_of(cache.get(numbered_key(number), [&] { return make(number); }));
  };
  for (const int number : {1, 2, 3}) EXPECT_EQ(get(number), number);
  EXPECT_EQ(get(1), 1);  // now 2 is the one asked for longest ago
  EXPECT_EQ(get(4), 4);
  EXPECT_EQ(cache.size(), 3);
  EXPECT_EQ(make.alive, 3) << "what is not kept is freed";
  EXPECT_EQ(cache.find(numbered_key(2)), nullptr);
  EXPECT_NE(cache.find(numbered_key(1)), nullptr);
  EXPECT_EQ(make.made, 4);
  EXPECT_EQ(get(2), 2) << "it comes back";
  EXPECT_EQ(make.made, 5);
}

TEST(KernelCache, KeepsWhatIsHeld) {
  Made make;
  KernelCache cache(2);
  std::vector<Code> held;
  for (int number = 0; number < 10; ++number) {
    held.push_back(cache.get(numbered_key(number), [&] { return make(number); }));
  }
  EXPECT_EQ(cache.size(), 10);
  for (int number = 0; number < 10; ++number) {
    EXPECT_EQ(cache.find(numbered_key(number)), held[static_cast<std::size_t>(number)]);
  }
  held.clear();
  cache.get(numbered_key(10), [&] { return make(10); });
  EXPECT_LE(cache.size(), 3);  // the one just asked for was held
  EXPECT_EQ(make.alive, static_cast<int>(cache.size()));
}

TEST(KernelCache, AChildMakesWhatAnotherThreadWasMaking) {
  Made make;
  KernelCache cache(10);
  std::atomic<bool> begun = false;
  std::thread other([&] {
    cache.get(numbered_key(1), [&] {
      begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return make(1);
    });
  });
  while (!begun) std::this_thread::yield();
  const test::Ended child = test::run_child([&] {
    if (cache.find(numbered_key(1)) != nullptr) return 1;
    const Code code = cache.get(numbered_key(1), [&] { return make(1); });
    return number_of(code) == 1 && make.made == 1 ? 0 : 2;
  });
  other.join();
  EXPECT_EQ(child.exit_code, 0) << child.text();
}

}  // namespace
}  // namespace treadle::jit
