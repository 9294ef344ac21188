// Workspaces: aligned, kept, and never given to two at once.
#include "run/scratch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>

namespace treadle::run {
namespace {

TEST(ScratchMemory, IsAlignedAndGrows) {
  Workspace workspace;
  for (const std::size_t bytes : {1u, 64u, 100u, 5000u, 1u << 20}) {
    std::byte* room = workspace.room(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(room) % 64, 0u);
    std::memset(room, 0xab, bytes);
  }
  std::byte* large = workspace.room(1 << 20);
  EXPECT_EQ(workspace.room(10), large);  // what is large enough stays
}

TEST(ScratchMemory, IsUsedAgain) {
  Scratch scratch;
  std::byte* first = nullptr;
  {
    const Scratch::Lease lease = scratch.take();
    first = lease->room(1000);
  }
  const Scratch::Lease lease = scratch.take();
  EXPECT_EQ(lease->room(1000), first);
}

TEST(ScratchMemory, IsNobodyElses) {
  Scratch scratch;
  const Scratch::Lease a = scratch.take();
  const Scratch::Lease b = scratch.take();
  const Scratch::Lease c = scratch.take();
  const std::set<Workspace*> different{&*a, &*b, &*c};
  EXPECT_EQ(different.size(), 3u);
}

TEST(ScratchMemory, FromManyThreads) {
  Scratch scratch;
  std::vector<std::thread> threads;
  std::vector<char> good(8, 1);
  for (std::size_t t = 0; t < good.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 200; ++i) {
        const Scratch::Lease lease = scratch.take();
        const std::size_t bytes = 64 + (i * 37 + t * 11) % 4000;
        std::byte* room = lease->room(bytes);
        std::memset(room, static_cast<int>(t), bytes);
        std::this_thread::yield();
        for (std::size_t k = 0; k < bytes; ++k)
          if (room[k] != static_cast<std::byte>(t)) good[t] = 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, std::vector<char>(8, 1));
}

TEST(Carving, MeasuresWhatItTakes) {
  Carver measure;
  EXPECT_EQ(measure.take<float>(3), nullptr);
  EXPECT_EQ(measure.take<double>(9), nullptr);
  EXPECT_EQ(measure.take<char>(0), nullptr);
  EXPECT_EQ(measure.take<std::int32_t>(16), nullptr);
  EXPECT_EQ(measure.used(), 64u + 128 + 0 + 64);
  Workspace workspace;
  std::byte* room = workspace.room(measure.used());
  Carver carver(room);
  EXPECT_EQ(reinterpret_cast<std::byte*>(carver.take<float>(3)), room);
  EXPECT_EQ(reinterpret_cast<std::byte*>(carver.take<double>(9)), room + 64);
  EXPECT_EQ(reinterpret_cast<std::byte*>(carver.take<char>(0)), room + 192);
  EXPECT_EQ(reinterpret_cast<std::byte*>(carver.take<std::int32_t>(16)), room + 192);
  EXPECT_EQ(carver.used(), measure.used());
}

}  // namespace
}  // namespace treadle::run
