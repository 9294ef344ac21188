#include "jit/disk_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <fstream>
#include <thread>
#include <vector>

#include "child_process.h"
#include "temporary_folder.h"

namespace treadle::jit {
namespace {

const base::Hash name{.high = 1, .low = 2};

TEST(DiskCache, GivesBackWhatWasWritten) {
  const test::TemporaryFolder folder;
  const DiskCache disk(folder.path() + "/not/there/yet");
  EXPECT_EQ(disk.read(name), std::nullopt);
  const std::string object("an object\0with a zero", 21);
  disk.write(name, object);
  EXPECT_EQ(disk.read(name), object);
  EXPECT_EQ(disk.read(base::Hash{.high = 2, .low = 1}), std::nullopt);
  ASSERT_EQ(folder.files().size(), 1);
  EXPECT_EQ(folder.files()[0].filename(), cache_file_name(name));
  disk.write(name, "");
  EXPECT_EQ(disk.read(name), "");
}

TEST(DiskCache, IgnoresAndReplacesWhatIsDamaged) {
  const test::TemporaryFolder folder;
  const DiskCache disk(folder.path());
  disk.write(name, "an object");
  const auto path = folder.files().at(0);
  const auto bytes = std::filesystem::file_size(path);

  for (std::uintmax_t at = 0; at < bytes; ++at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int before = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(before ^ 1));
    file.close();
    EXPECT_EQ(disk.read(name), std::nullopt) << "byte " << at;
    disk.write(name, "an object");
    EXPECT_EQ(disk.read(name), "an object");
  }
  for (std::uintmax_t size = 0; size < bytes; ++size) {
    std::filesystem::resize_file(path, size);
    EXPECT_EQ(disk.read(name), std::nullopt) << size << " bytes left";
    disk.write(name, "an object");
    EXPECT_EQ(disk.read(name), "an object");
  }
}

TEST(DiskCache, IgnoresFilesUnderAnotherName) {
  const test::TemporaryFolder folder;
  const DiskCache disk(folder.path());
  const base::Hash other{.high = 3, .low = 4};
  disk.write(name, "an object");
  std::filesystem::rename(folder.files().at(0), folder.path() + "/" + cache_file_name(other));
  EXPECT_EQ(disk.read(other), std::nullopt);
}

TEST(DiskCache, IgnoresWhatIsNoFile) {
  const test::TemporaryFolder folder;
  const DiskCache disk(folder.path());
  const std::string path = folder.path() + "/" + cache_file_name(name);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(disk.read(name), std::nullopt);
  disk.write(name, "an object");
  EXPECT_EQ(disk.read(name), "an object");
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_EQ(disk.read(name), std::nullopt);
  disk.write(name, "an object");  // cannot replace a folder, and leaves nothing
  EXPECT_TRUE(folder.files().empty());
}

TEST(DiskCache, KeepsNothingWhereItCannot) {
  const test::TemporaryFolder folder;
  std::ofstream(folder.path() + "/file") << "not a folder";
  std::filesystem::create_directory(folder.path() + "/locked");
  std::filesystem::permissions(folder.path() + "/locked", std::filesystem::perms::owner_read);
  for (const std::string& path : {std::string(), folder.path() + "/file/below",
                                  std::string("/proc/treadle"), folder.path() + "/locked/below"}) {
    const DiskCache disk(path);
    disk.write(name, "an object");
    // Root may write where nobody else may.
    if (path.ends_with("locked/below") && geteuid() == 0) continue;
    EXPECT_EQ(disk.read(name), std::nullopt) << path;
  }
}

// The answer to a write beyond the limit is a signal, which ends the process.
TEST(DiskCache, HeedsTheLimitOfFileSizes) {
  const test::TemporaryFolder folder;
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  DiskCache(folder.path()).write(name, std::string(10000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(folder.files().empty());
}

mode_t mode_of(const std::filesystem::path& path) {
  struct stat about = {};
  EXPECT_EQ(lstat(path.c_str(), &about), 0) << path;
  return about.st_mode & 07777U;
}

TEST(DiskCache, MakesFilesAndFoldersForNobodyElse) {
  const test::TemporaryFolder folder;
  const mode_t before = umask(0);
  const DiskCache disk(folder.path() + "/not/yet");
  disk.write(name, "an object");
  umask(before);
  EXPECT_EQ(mode_of(folder.path() + "/not"), 0700);
  EXPECT_EQ(mode_of(folder.path() + "/not/yet"), 0700);
  EXPECT_EQ(mode_of(folder.files().at(0)), 0600);
  EXPECT_EQ(disk.read(name), "an object");
}

TEST(DiskCache, DoesNotReadWhatOthersMayWrite) {
  const test::TemporaryFolder folder;
  const DiskCache disk(folder.path());
  disk.write(name, "an object");
  const std::string path = folder.files().at(0);
  for (const mode_t mode : {0666U, 0660U, 0620U, 0602U}) {
    chmod(path.c_str(), mode);
    EXPECT_EQ(disk.read(name), std::nullopt) << std::oct << mode;
  }
  disk.write(name, "an object");
  EXPECT_EQ(disk.read(name), "an object");
  EXPECT_EQ(mode_of(path), 0600);
  chmod(path.c_str(), 0444);
  EXPECT_EQ(disk.read(name), "an object");
}

TEST(DiskCache, UsesNoFolderThatOthersMayWrite) {
  const test::TemporaryFolder folder;
  const DiskCache disk(folder.path());
  disk.write(name, "an object");
  for (const mode_t mode : {0777U, 01777U, 0770U, 0702U}) {
    chmod(folder.path().c_str(), mode);
    EXPECT_EQ(disk.read(name), std::nullopt) << std::oct << mode;
    disk.write(base::Hash{.high = 3, .low = 4}, "another");
    EXPECT_EQ(folder.files().size(), 1);
  }
  chmod(folder.path().c_str(), 0755);
  EXPECT_EQ(disk.read(name), "an object");
}

TEST(DiskCache, FollowsNoLinks) {
  const test::TemporaryFolder folder, elsewhere;
  const DiskCache disk(folder.path());
  DiskCache(elsewhere.path()).write(name, "an object");
  const std::string link = folder.path() + "/" + cache_file_name(name);
  ASSERT_EQ(symlink(elsewhere.files().at(0).c_str(), link.c_str()), 0);
  EXPECT_EQ(disk.read(name), std::nullopt);
  disk.write(name, "another");  // instead of the link, not through it
  EXPECT_EQ(disk.read(name), "another");
  EXPECT_EQ(DiskCache(elsewhere.path()).read(name), "an object");
}

TEST(DiskCache, ReadsNothingOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const test::TemporaryFolder folder;
  const DiskCache disk(folder.path());
  disk.write(name, "an object");
  const std::string path = folder.files().at(0);
  ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
  EXPECT_EQ(disk.read(name), std::nullopt);
  ASSERT_EQ(chown(path.c_str(), 0, 0), 0);
  EXPECT_EQ(disk.read(name), "an object");
  ASSERT_EQ(chown(folder.path().c_str(), 65534, 65534), 0);
  EXPECT_EQ(disk.read(name), std::nullopt);
}

TEST(DiskCache, ReadsAFolderOfRootThatItCannotWrite) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another";
  const test::TemporaryFolder folder;
  const DiskCache disk(folder.path());
  disk.write(name, "an object");
  chmod(folder.path().c_str(), 0755);
  chmod(folder.files().at(0).c_str(), 0644);
  const test::Ended child = test::run_child([&] {
    if (setuid(65534) != 0) return 1;
    disk.write(base::Hash{.high = 3, .low = 4}, "another");
    disk.remove(name);
    return disk.read(name) == "an object" ? 0 : 2;
  });
  EXPECT_EQ(child.exit_code, 0);
  EXPECT_EQ(folder.files().size(), 1);
}

TEST(DiskCache, DoesNotReadFilesLargerThanAnyKernel) {
  const test::TemporaryFolder folder;
  const DiskCache disk(folder.path());
  for (const off_t bytes : {off_t{1} << 40, off_t{1} << 34, off_t{largest_cache_file} + 1}) {
    disk.write(name, "an object");
    const std::string path = folder.files().at(0);
    ASSERT_EQ(truncate(path.c_str(), bytes), 0);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(disk.read(name), std::nullopt) << bytes;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1)) << bytes;
  }
  disk.write(name, std::string(static_cast<std::size_t>(largest_cache_file), 'x'));
  EXPECT_EQ(disk.read(name), std::nullopt);
}

TEST(DiskCache, RemembersWhenAFileWasUsed) {
  const test::TemporaryFolder folder;
  const DiskCache disk(folder.path());
  disk.write(name, "an object");
  const std::string path = folder.files().at(0);
  const std::time_t now = std::time(nullptr);
  const timespec times[2] = {{.tv_sec = now - 5000}, {.tv_sec = now - 5000}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_EQ(disk.read(name), "an object");
  struct stat about = {};
  ASSERT_EQ(stat(path.c_str(), &about), 0);
  EXPECT_GE(about.st_mtim.tv_sec, now - 10);
}

TEST(DiskCache, IsWholeWheneverItIsRead) {
  const test::TemporaryFolder folder;
  const DiskCache disk(folder.path());
  const std::string object(100000, 'x');
  disk.write(name, object);
  std::atomic<bool> done = false;
  std::vector<std::thread> readers;
  std::atomic<int> torn = 0;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!done) torn += disk.read(name) != object ? 1 : 0;
    });
  }
  for (int i = 0; i < 100; ++i) disk.write(name, object);
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(folder.files().size(), 1);
}

}  // namespace
}  // namespace treadle::jit
