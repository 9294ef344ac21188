// A function in a process of its own, and how that ended.
//
//   const Ended ended = run_child([&] { return works() ? 0 : 1; });
//   EXPECT_EQ(ended.exit_code, 0) << ended.text();
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

namespace treadle::test {

struct Ended {
  int exit_code = -1;  // minus the number of the signal that ended it

  [[nodiscard]] std::string text() const {
    if (exit_code == -SIGALRM) return "hangs";
    return exit_code < 0 ? "signal " + std::to_string(-exit_code)
                         : "exit code " + std::to_string(exit_code);
  }
};

// A child that hangs is ended by an alarm.
constexpr unsigned child_seconds = 60;

template <class F>
pid_t start_child(F&& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  alarm(child_seconds);
  int code = 99;  // an exception
  try {
    code = body();
  } catch (...) {
  }
  _exit(code);
}

inline Ended wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)};
}

// Without destructors of statics: it ends with _exit().
template <class F>
Ended run_child(F&& body) {
  return wait_for(start_child(body));
}

}  // namespace treadle::test
