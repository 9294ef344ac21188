#include "jit/prune.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <fstream>

#include "child_process.h"
#include "jit/disk_cache.h"
#include "temporary_folder.h"

namespace treadle::jit {
namespace {

base::Key kernel_key(int number) { return base::Hasher().add("pruned").add(number).key(); }

void set_age(const std::filesystem::path& path, std::int64_t seconds) {
  const std::time_t then = std::time(nullptr) - seconds;
  const timespec times[2] = {{.tv_sec = then}, {.tv_sec = then}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0) << path;
}

constexpr std::int64_t hour = 3600, day = 24 * hour;

class Prune : public testing::Test {
 protected:
  // A file of some 10,100 bytes, last used so many seconds ago.
  void write(int number, std::int64_t seconds) {
    disk.write(kernel_key(number), std::string(10000, 'x'));
    set_age(path_of(number), seconds);
  }
  [[nodiscard]] std::filesystem::path path_of(int number) const {
    return folder.path() + "/" + cache_file_name(kernel_key(number));
  }
  [[nodiscard]] bool has(int number) const { return std::filesystem::exists(path_of(number)); }

  const test::TemporaryFolder folder;
  const DiskCache disk{folder.path()};
};

TEST_F(Prune, RemovesWhatWasUsedLongestAgo) {
  for (int number = 0; number < 10; ++number) write(number, 1000 * (10 - number));
  ASSERT_TRUE(disk.read(kernel_key(0)));  // a use
  EXPECT_EQ(prune(folder.path(), {.bytes = 45000}), 6);
  EXPECT_TRUE(has(0) && has(7) && has(8) && has(9));
  EXPECT_EQ(folder.files().size(), 4);
  EXPECT_EQ(prune(folder.path(), {.bytes = 45000}), 0);
}

TEST_F(Prune, RemovesWhatIsOld) {
  write(1, 31 * day);
  write(2, 29 * day);
  EXPECT_EQ(prune(folder.path(), {}), 1);
  EXPECT_FALSE(has(1));
  EXPECT_TRUE(has(2));
}

TEST_F(Prune, RemovesWhatWasLeftHalfWritten) {
  write(1, 0);
  const std::string temporary = path_of(1).string() + ".0123456789abcdef";
  std::ofstream(temporary) << "half";
  EXPECT_EQ(prune(folder.path(), {}), 0);
  set_age(temporary, 2 * hour);
  EXPECT_EQ(contents_of(folder.path()).temporary, 1);
  EXPECT_EQ(prune(folder.path(), {}), 1);
  EXPECT_TRUE(has(1));
  EXPECT_EQ(folder.files().size(), 1);
}

TEST_F(Prune, TouchesNoOtherFile) {
  const std::string digits(32, 'a');
  for (const std::string& name : {std::string("notes.txt"), std::string("x.o"), digits,
                                  digits + ".old", digits + ".so", std::string(32, 'g') + ".o"}) {
    std::ofstream(folder.path() + "/" + name) << "mine";
    set_age(folder.path() + "/" + name, 400 * day);
  }
  std::filesystem::create_directory(folder.path() + "/" + digits + ".o");
  write(1, 40 * day);
  EXPECT_EQ(prune(folder.path(), {.bytes = 1}), 1);
  EXPECT_EQ(clear(folder.path()), 0);
  EXPECT_EQ(folder.files().size(), 6);
}

TEST_F(Prune, IsDoneOnceAnHour) {
  const CacheLimits none{.bytes = 1};
  write(1, 0);
  prune_if_due(folder.path(), none);
  EXPECT_FALSE(has(1));
  write(1, 0);
  prune_if_due(folder.path(), none);
  EXPECT_TRUE(has(1)) << "an hour is not over";
  set_age(folder.path() + "/pruned", hour + 5);
  prune_if_due(folder.path(), none);
  EXPECT_FALSE(has(1));
  write(1, 0);
  set_age(folder.path() + "/pruned", -2 * day);  // a clock went wrong
  prune_if_due(folder.path(), none);
  EXPECT_FALSE(has(1));
}

TEST_F(Prune, LeavesFoldersThatItMayNotWrite) {
  write(1, 40 * day);
  chmod(folder.path().c_str(), 0777);
  EXPECT_EQ(prune(folder.path(), {.bytes = 1}), 0);
  EXPECT_EQ(clear(folder.path()), 0);
  EXPECT_NE(contents_of(folder.path()).problem, "");
  chmod(folder.path().c_str(), 0755);
  if (geteuid() == 0) {  // who may write everywhere
    const test::Ended child = test::run_child([&] {
      if (setuid(65534) != 0) return 1;
      prune_if_due(folder.path(), {.bytes = 1});
      return prune(folder.path(), {.bytes = 1}) == 0 && clear(folder.path()) == 0 ? 0 : 2;
    });
    EXPECT_EQ(child.exit_code, 0) << child.text();
  }
  EXPECT_TRUE(has(1));
  EXPECT_EQ(folder.files().size(), 1);
}

TEST_F(Prune, CountsAndClears) {
  write(1, 0);
  write(2, 0);
  CacheContents contents = contents_of(folder.path());
  EXPECT_EQ(contents.files, 2);
  EXPECT_GT(contents.bytes, 20000);
  EXPECT_EQ(contents.problem, "");
  EXPECT_EQ(clear(folder.path()), 2);
  contents = contents_of(folder.path());
  EXPECT_EQ(contents.files, 0);
  EXPECT_EQ(contents_of(folder.path() + "/none").problem, "it is not there");
}

}  // namespace
}  // namespace treadle::jit
