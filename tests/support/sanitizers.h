// Which sanitizer a test is built with.
#pragma once

namespace treadle::test {

#if defined(__has_feature)
#define TREADLE_TEST_HAS(feature) __has_feature(feature)
#else
#define TREADLE_TEST_HAS(feature) 0
#endif

#if defined(__SANITIZE_THREAD__) || TREADLE_TEST_HAS(thread_sanitizer)
constexpr bool thread_sanitizer = true;
#else
constexpr bool thread_sanitizer = false;
#endif

#if defined(__SANITIZE_ADDRESS__) || TREADLE_TEST_HAS(address_sanitizer)
constexpr bool address_sanitizer = true;
#else
constexpr bool address_sanitizer = false;
#endif

#undef TREADLE_TEST_HAS

}  // namespace treadle::test
