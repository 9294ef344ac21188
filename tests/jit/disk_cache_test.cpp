#include "jit/disk_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>
#include <vector>

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
  EXPECT_EQ(disk.read({.high = 2, .low = 1}), std::nullopt);
  ASSERT_EQ(folder.files().size(), 1);
  EXPECT_EQ(folder.files()[0].filename(), to_string(name) + ".o");
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
  std::filesystem::rename(folder.files().at(0), folder.path() + "/" + to_string(other) + ".o");
  EXPECT_EQ(disk.read(other), std::nullopt);
}

TEST(DiskCache, IgnoresWhatIsNoFile) {
  const test::TemporaryFolder folder;
  const DiskCache disk(folder.path());
  const std::string path = folder.path() + "/" + to_string(name) + ".o";
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

// As on a full disk, what was written so far goes away.
TEST(DiskCache, LeavesNothingHalfWritten) {
  const test::TemporaryFolder folder;
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  DiskCache(folder.path()).write(name, std::string(10000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(folder.files().empty());
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
