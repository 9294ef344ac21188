// Workspaces: aligned, kept, never given to two at once, and freed when nobody needs them.
#include "run/scratch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <thread>

namespace treadle::run {
namespace {

std::size_t pooled(Scratch& scratch) {
  const std::vector<std::size_t> sizes = scratch.sizes();
  return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

void take(Scratch& scratch, std::int64_t count, std::size_t bytes) {
  const Scratch::Share share(scratch, count, {.bytes = bytes});
}

TEST(ScratchMemory, IsAlignedAndGrows) {
  Workspace workspace;
  for (const std::size_t bytes : {1u, 64u, 100u, 5000u, 1u << 20}) {
    workspace.reserve({.bytes = bytes});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(workspace.memory()) % 64, 0u);
    std::memset(workspace.memory(), 0xab, bytes);
  }
  std::byte* large = workspace.memory();
  workspace.reserve({.bytes = 10});
  EXPECT_EQ(workspace.memory(), large);  // what is large enough stays
}

TEST(ScratchMemory, HasRoomForLists) {
  Workspace workspace;
  workspace.reserve({.block = 20});
  EXPECT_GE(workspace.lists.block.capacity(), 20u);
  EXPECT_GE(workspace.lists.runs.capacity(), 20u);
}

TEST(ScratchMemory, IsUsedAgain) {
  Scratch scratch;
  std::byte* first = nullptr;
  {
    const Scratch::Share share(scratch, 1, {.bytes = 1000});
    first = share.front().memory();
  }
  const Scratch::Share share(scratch, 1, {.bytes = 900});
  EXPECT_EQ(share.front().memory(), first);
}

TEST(ScratchMemory, IsNobodyElses) {
  Scratch scratch;
  Scratch::Share one(scratch, 2, {.bytes = 100});
  Scratch::Share other(scratch, 1, {.bytes = 100});
  const Scratch::Lease a = one.lend();
  const Scratch::Lease b = one.lend();
  const Scratch::Lease c = one.lend();  // one more than was asked for
  const Scratch::Lease d = other.lend();
  const std::set<Workspace*> different{&*a, &*b, &*c, &*d};
  EXPECT_EQ(different.size(), 4u);
  EXPECT_GE(c->bytes(), 100u);
}

TEST(ScratchMemory, FromManyThreads) {
  Scratch scratch;
  Scratch::Share share(scratch, 3, {.bytes = 4100});
  std::vector<std::thread> threads;
  std::vector<char> good(8, 1);
  for (std::size_t t = 0; t < good.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 200; ++i) {
        const Scratch::Share own(scratch, 1, {.bytes = 64 + i});
        const Scratch::Lease lease = share.lend();
        const std::size_t bytes = 64 + (i * 37 + t * 11) % 4000;
        std::memset(lease->memory(), static_cast<int>(t), bytes);
        std::memset(own.front().memory(), static_cast<int>(t), 64 + i);
        std::this_thread::yield();
        const auto all = [&](const std::byte* from, std::size_t count) {
          return std::all_of(from, from + count,
                             [&](std::byte b) { return b == static_cast<std::byte>(t); });
        };
        if (!all(lease->memory(), bytes) || !all(own.front().memory(), 64 + i)) good[t] = 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, std::vector<char>(8, 1));
}

// A large workspace serves those who need it; small needs do not make others as large.
TEST(ScratchMemory, FitsTheNeed) {
  Scratch scratch;
  take(scratch, 1, 100u << 20);
  take(scratch, 2, 5000);
  EXPECT_EQ(pooled(scratch), (100u << 20) + 2 * 5000);
  for (int i = 0; i < 3; ++i) {
    const Scratch::Share small(scratch, 2, {.bytes = 4000});
    const Scratch::Share large(scratch, 1, {.bytes = 90u << 20});
  }
  EXPECT_EQ(pooled(scratch), (100u << 20) + 2 * 5000);
}

TEST(ScratchMemory, IsFreedWhenCallsNeedLess) {
  Scratch scratch;
  take(scratch, 1, 100u << 20);
  take(scratch, 64, 5000);
  for (int i = 0; i < 600; ++i) take(scratch, 2, 5000);
  EXPECT_EQ(pooled(scratch), 2u * 5000);
}

TEST(ScratchMemory, IsKeptWhileCallsAlternate) {
  Scratch scratch;
  for (int i = 0; i < 2000; ++i) {
    take(scratch, 1, 2u << 20);
    take(scratch, 2, 5000);
  }
  EXPECT_EQ(pooled(scratch), (2u << 20) + 2 * 5000);
}

TEST(ScratchMemory, IsReleased) {
  Scratch scratch;
  take(scratch, 3, 5000);
  {
    const Scratch::Share share(scratch, 1, {.bytes = 5000});
    EXPECT_EQ(scratch.release(), 2 * 5000);
    EXPECT_EQ(pooled(scratch), 0u);
    std::memset(share.front().memory(), 1, 5000);  // what is in use stays
  }
  EXPECT_EQ(pooled(scratch), 5000u);
  EXPECT_EQ(scratch.release(), 5000);
  EXPECT_EQ(scratch.release(), 0);
}

TEST(Carving, MeasuresWhatItTakes) {
  Carver measure;
  EXPECT_EQ(measure.take<float>(3), nullptr);
  EXPECT_EQ(measure.take<double>(9), nullptr);
  EXPECT_EQ(measure.take<char>(0), nullptr);
  EXPECT_EQ(measure.take<std::int32_t>(16), nullptr);
  EXPECT_EQ(measure.used(), 64u + 128 + 0 + 64);
  Workspace workspace;
  workspace.reserve({.bytes = measure.used()});
  std::byte* room = workspace.memory();
  Carver carver(room);
  EXPECT_EQ(reinterpret_cast<std::byte*>(carver.take<float>(3)), room);
  EXPECT_EQ(reinterpret_cast<std::byte*>(carver.take<double>(9)), room + 64);
  EXPECT_EQ(reinterpret_cast<std::byte*>(carver.take<char>(0)), room + 192);
  EXPECT_EQ(reinterpret_cast<std::byte*>(carver.take<std::int32_t>(16)), room + 192);
  EXPECT_EQ(carver.used(), measure.used());
  EXPECT_NO_THROW(workspace.check(carver));
  carver.take<char>(1);
  EXPECT_ANY_THROW(workspace.check(carver));
}

}  // namespace
}  // namespace treadle::run
