// A note that is printed if the program dies, when gtest cannot say anything any more.
//
//   set_crash_note("the last random round was ...");
//
// The sanitizers print it before they end the program; without them it comes with a signal.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string_view>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TREADLE_TEST_SANITIZED
#include <sanitizer/common_interface_defs.h>
#endif
#endif

namespace treadle::test {

namespace detail {

// Plain memory: whoever dies may hold any lock.
struct CrashNote {
  char text[512];
  std::size_t length = 0;
};
inline CrashNote crash_note;

inline void print_crash_note() {
  [[maybe_unused]] const auto written = write(STDERR_FILENO, crash_note.text, crash_note.length);
}

inline void on_crash(int signal) {
  print_crash_note();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

inline bool watch_crashes() {
  std::signal(SIGABRT, on_crash);
#ifdef TREADLE_TEST_SANITIZED  // which have handlers of their own for the other signals
  __sanitizer_set_death_callback(print_crash_note);
#else
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, on_crash);
#endif
  return true;
}

}  // namespace detail

inline void set_crash_note(std::string_view text) {
  [[maybe_unused]] static const bool watched = detail::watch_crashes();
  detail::CrashNote& note = detail::crash_note;
  note.length = std::min(text.size(), sizeof note.text - 1);
  std::copy_n(text.data(), note.length, note.text);
  note.text[note.length++] = '\n';
}

}  // namespace treadle::test
