// Throws without asking a new_handler first, which is the worst that a program's own may do.
#include "failing_new.h"

#include <atomic>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TREADLE_TEST_OWN_NEW 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TREADLE_TEST_OWN_NEW 0
#endif
#endif
#ifndef TREADLE_TEST_OWN_NEW
#define TREADLE_TEST_OWN_NEW 1
#endif

namespace treadle::test {
namespace {

std::atomic<std::int64_t> allocations = 0, first_failure = 0, failures_end = 0;

}  // namespace

bool fail_allocations(const Failures& failures) {
  first_failure = failures.after;
  failures_end = failures.after + failures.how_many;
  allocations = 0;
  return TREADLE_TEST_OWN_NEW == 1;
}

std::int64_t count_allocations() { return allocations; }

#if TREADLE_TEST_OWN_NEW
namespace {

void* allocate(std::size_t bytes, std::size_t alignment) {
  const std::int64_t number = allocations++;
  if (number >= first_failure && number < failures_end) throw std::bad_alloc();
  void* memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(bytes)
          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr && bytes > 0) throw std::bad_alloc();
  return memory;
}

}  // namespace
#endif

}  // namespace treadle::test

#if TREADLE_TEST_OWN_NEW
void* operator new(std::size_t bytes) { return treadle::test::allocate(bytes, 1); }
void* operator new[](std::size_t bytes) { return treadle::test::allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return treadle::test::allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return treadle::test::allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t /*bytes*/,
                       std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
#endif
