#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "json_rows.h"
#include "run_program.h"
#include "temporary_folder.h"

namespace treadle::cli {
namespace {

using ::testing::HasSubstr;

class Cache : public testing::Test {
 protected:
  Ran run(std::vector<std::string> arguments, const std::string& size = "1G") {
    arguments.insert(arguments.begin(), "cache");
    return run_program(arguments, environment(size));
  }
  // What it tells, as JSON.
  Row tell(std::vector<std::string> arguments, const std::string& size = "1G") {
    arguments.push_back("--json");
    const Ran ran = run(arguments, size);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    const std::vector<Row> rows = rows_of(ran.out);
    EXPECT_EQ(rows.size(), 1);
    return rows.at(0);
  }
  // Kernels of a small call.
  void fill() {
    const Ran ran = run_program({"demo", "--variant", "causal", "--length", "16", "--heads", "1"},
                                environment("1G"));
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
  }
  [[nodiscard]] std::vector<std::string> environment(const std::string& size) const {
    return {"TREADLE_CACHE_DIR=" + folder.path(), "TREADLE_CACHE_SIZE=" + size};
  }

  const test::TemporaryFolder folder;
};

TEST_F(Cache, TellsWhatIsThere) {
  Row row = tell({});
  EXPECT_EQ(row.texts.at("folder"), folder.path());
  EXPECT_EQ(row.numbers.at("files"), 0);
  EXPECT_EQ(row.numbers.at("limit"), 1 << 30);
  fill();
  row = tell({});
  EXPECT_EQ(row.texts.at("state"), "in use");
  EXPECT_EQ(row.numbers.at("files"), static_cast<double>(folder.objects().size()));
  EXPECT_GT(row.numbers.at("files"), 3);
  double bytes = 0;
  for (const auto& file : folder.objects()) {
    bytes += static_cast<double>(std::filesystem::file_size(file));
  }
  EXPECT_EQ(row.numbers.at("bytes"), bytes);
  const Ran ran = run({});
  EXPECT_THAT(ran.out, HasSubstr("limit"));
  EXPECT_THAT(ran.out, HasSubstr(" KiB  "));
  EXPECT_THAT(ran.out, HasSubstr("1.0 GiB"));
}

TEST_F(Cache, PrunesToTheLimit) {
  fill();
  const double files = tell({}).numbers.at("files");
  EXPECT_EQ(tell({"--prune"}).numbers.at("removed"), 0);
  const Row row = tell({"--prune"}, "8K");
  EXPECT_GT(row.numbers.at("removed"), 0);
  EXPECT_EQ(row.numbers.at("removed") + row.numbers.at("files"), files);
  EXPECT_LE(row.numbers.at("bytes"), 8 << 10);
}

TEST_F(Cache, Clears) {
  fill();
  const double files = tell({}).numbers.at("files");
  const Row row = tell({"--clear"});
  EXPECT_EQ(row.numbers.at("removed"), files);
  EXPECT_EQ(row.numbers.at("files"), 0);
  EXPECT_TRUE(folder.objects().empty());
}

TEST_F(Cache, SaysWhyAFolderIsNotUsed) {
  chmod(folder.path().c_str(), 0777);
  EXPECT_THAT(tell({}).texts.at("state"), HasSubstr("off: its mode is 0777: others may write it"));
  const Ran ran = run({"--clear"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, HasSubstr("stays as it is: its mode is 0777"));
  chmod(folder.path().c_str(), 0700);

  const auto state = [](const char* variable) {
    return rows_of(run_program({"cache", "--json"}, {variable}).out).at(0).texts.at("state");
  };
  EXPECT_THAT(state("TREADLE_CACHE_DIR=/nowhere/at/all"), HasSubstr("empty"));
  EXPECT_THAT(state("TREADLE_CACHE_DIR="), HasSubstr("off: no folder is given"));
  const Ran relative = run_program({"cache"}, {"TREADLE_CACHE_DIR=here"});
  EXPECT_EQ(relative.exit_code, 1);
  EXPECT_THAT(relative.err, HasSubstr("not an absolute path"));
}

}  // namespace
}  // namespace treadle::cli
