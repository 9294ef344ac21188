#include "run_program.h"

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string_view>

#include "paths.h"

namespace treadle::cli {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File scratch_file() { return {std::tmpfile(), std::fclose}; }

std::string content_of(std::FILE* file) {
  std::rewind(file);
  std::string content;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) {
    content.push_back(static_cast<char>(c));
  }
  return content;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Ran run_program(const std::vector<std::string>& arguments,
                const std::vector<std::string>& environment) {
  std::vector<std::string> words{test::program()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with("TREADLE_DUMP="))
      variables.emplace_back(*variable);
  }

  // Files, not pipes: nothing can block, however much is printed.
  const File out = scratch_file();
  const File err = scratch_file();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(out.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(err.get()), STDERR_FILENO);
  pid_t process = 0;
  const int failed = posix_spawn(&process, words.front().c_str(), &actions, nullptr,
                                 pointers(words).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(failed, 0) << "cannot start " << words.front();
  if (failed != 0) return {};

  int status = 0;
  waitpid(process, &status, 0);
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
          .out = content_of(out.get()),
          .err = content_of(err.get())};
}

std::string golden(const std::string& name, const std::string& now) {
  const auto path = test::project_folder() / "tests/cli/golden" / name;
  const char* mode = std::getenv("TREADLE_TEST_GOLDEN");
  if (mode != nullptr && std::string_view(mode) == "write") std::ofstream(path) << now;
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace treadle::cli
