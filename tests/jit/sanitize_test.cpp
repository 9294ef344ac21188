#include <gtest/gtest.h>

#include <vector>

#include "expect_error.h"
#include "jit/engine.h"
#include "kernels.h"

#if defined(__SANITIZE_ADDRESS__)
#define TREADLE_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TREADLE_TEST_ASAN 1
#endif
#endif

namespace treadle::jit {
namespace {

#ifdef TREADLE_TEST_ASAN

TEST(Sanitize, NoticesReadsPastTheEnd) {
  Engine engine({.address_sanitizer = true});
  for (const std::string& name : plan::runnable_targets()) {
    const plan::Target target = plan::find_target(name);
    auto* squares = test::function<test::Squares>(engine, base::Hash{.high = 9}, target,
                                                  [&] { return test::squares_module(target); });
    const long lanes = target.lanes(DType::f32);
    const std::vector<float> enough(static_cast<std::size_t>(2 * lanes), 1.0F);
    float result = 0;
    squares(enough.data(), &result, 2 * lanes);
    EXPECT_EQ(result, static_cast<float>(2 * lanes));

    const std::vector<float> one_short(static_cast<std::size_t>(2 * lanes - 1), 1.0F);
    EXPECT_DEATH(squares(one_short.data(), &result, 2 * lanes), "heap-buffer-overflow") << name;
  }
}

TEST(Sanitize, NoticesReadsOfOneFloat) {
  Engine engine({.address_sanitizer = true});
  const plan::Target target = plan::host_target();
  auto* map = test::function<test::Map>(engine, base::Hash{.high = 10}, target,
                                        [&] { return test::call_module(target, "tanhf", 1); });
  const std::vector<float> x(3, 1.0F);
  float y = 0;
  map(x.data() + 2, &y);
  EXPECT_DEATH(map(x.data() + 3, &y), "heap-buffer-overflow");
}

#else

TEST(Sanitize, NeedsARuntime) {
  EXPECT_ERROR(Engine({.address_sanitizer = true}),
               "TREADLE_SANITIZE=address: this program has no sanitizer runtime; it must be built "
               "with -fsanitize=address");
}

#endif

}  // namespace
}  // namespace treadle::jit
