// Processes that are killed while they fill the cache, and files in it that are no kernels.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <random>
#include <thread>

#include "child_process.h"
#include "fuzz.h"
#include "jit/disk_cache.h"
#include "jit/engine.h"
#include "jit/prune.h"
#include "temporary_folder.h"

namespace treadle::jit {
namespace {

constexpr int kernels_of_a_start = 6;

// How many of its kernels a process finds on disk; all must copy.
std::int64_t start_up(const std::string& folder, bool& right) {
  Engine engine({.cache_folder = folder});
  right = true;
  for (int length = 1; length <= kernels_of_a_start; ++length) {
    const auto copy =
        engine.get(plan::CopySpec{plan::host_target(), DType::f32, DType::f64, length});
    const std::vector<float> from(static_cast<std::size_t>(length), 2.0F);
    std::vector<double> to(from.size());
    copy({.source = from.data(), .target = to.data(), .count = 1});
    right = right && to == std::vector<double>(from.size(), 2.0);
  }
  return engine.statistics().disk_hits;
}

void age_all(const test::TemporaryFolder& folder, std::int64_t seconds) {
  const std::time_t then = std::time(nullptr) - seconds;
  const timespec times[2] = {{.tv_sec = then}, {.tv_sec = then}};
  for (const auto& file : folder.files()) utimensat(AT_FDCWD, file.c_str(), times, 0);
}

TEST(ColdStart, MayBeKilledAtAnyMoment) {
  const int rounds = test::fuzz_size() == test::FuzzSize::full ? 200 : 20;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    const test::TemporaryFolder folder;
    const pid_t child = test::start_child([&] {
      bool right = false;
      start_up(folder.path(), right);
      return right ? 0 : 1;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(test::random_int(random, 0, 60000)));
    kill(child, SIGKILL);
    const test::Ended ended = test::wait_for(child);
    EXPECT_TRUE(ended.exit_code == -SIGKILL || ended.exit_code == 0) << ended.text();

    bool right = false;
    start_up(folder.path(), right);
    EXPECT_TRUE(right);
    EXPECT_EQ(start_up(folder.path(), right), kernels_of_a_start);
    EXPECT_TRUE(right);
    // What is left half written goes with time, and nothing else is left.
    age_all(folder, 2 * 3600);
    prune_if_due(folder.path(), {});
    EXPECT_EQ(contents_of(folder.path()).temporary, 0);
    EXPECT_EQ(folder.objects().size(), kernels_of_a_start);
    EXPECT_EQ(folder.files().size(), kernels_of_a_start + 1);  // and when it was pruned
  }
}

base::Key key_in(const std::filesystem::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::uint64_t bytes = 0;
  if (pread(file, &bytes, sizeof bytes, 16) != sizeof bytes) ADD_FAILURE() << path;
  std::string key(bytes, '\0');
  if (pread(file, key.data(), bytes, 40) != static_cast<ssize_t>(bytes)) ADD_FAILURE() << path;
  close(file);
  return base::Key(std::move(key));
}

// Cut, with bytes changed, or made of nothing at all.
std::string spoilt(std::string object, std::mt19937_64& random) {
  switch (random() % 4) {
    case 0: object.resize(random() % object.size()); break;
    case 1:  // what finds the rest: headers and tables of sections
      for (int i = 0; i < 4; ++i) {
        const std::size_t at =
            random() % 2 == 0 ? random() % 64 : object.size() - 1 - random() % 512;
        object[at] = static_cast<char>(random());
      }
      break;
    case 2:
      for (char& c : object) c = static_cast<char>(random());
      break;
    default:
      object.resize(64);
      for (std::size_t i = 16; i < object.size(); ++i) object[i] = static_cast<char>(random());
  }
  return object;
}

// The check sums of all of them are right. An object with other instructions in it would load and
// run: who can write the folder can do that.
TEST(ColdStart, ObjectsThatDoNotLoadAreMadeAgain) {
  const test::TemporaryFolder folder;
  const plan::CopySpec spec{plan::host_target(), DType::f32, DType::f64, 3};
  Engine({.cache_folder = folder.path()}).get(spec);
  const DiskCache disk(folder.path());
  const base::Key key = key_in(folder.objects().at(0));
  const std::string good = disk.read(key).value();
  const int rounds = test::fuzz_size() == test::FuzzSize::full ? 1000 : 50;
  int made_again = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    const std::string object = spoilt(good, random);
    disk.write(key, object);
    const test::Ended child = test::run_child([&] {
      Engine engine({.cache_folder = folder.path()});
      engine.get(spec);
      if (engine.statistics().disk_hits == 1) return 1;  // it did load
      return engine.statistics().compiled == 1 && disk.read(key) == good ? 0 : 2;
    });
    EXPECT_TRUE(child.exit_code == 0 || child.exit_code == 1) << child.text();
    made_again += child.exit_code == 0 ? 1 : 0;
  }
  EXPECT_GE(made_again, test::fuzz_repeats() ? 0 : rounds / 2);
}

}  // namespace
}  // namespace treadle::jit
