// operator new and delete of the test program: what the originals do, unless a test arms them. The
// sanitizers replace them, too, and so do without this file and the tests that need it.
#include "faults.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace treadle::test {

constinit Faults faults;

namespace {

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (faults.now()) throw std::bad_alloc();
  bytes = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* memory = alignment <= alignof(std::max_align_t) ? std::malloc(bytes)
                                                        : std::aligned_alloc(alignment, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace
}  // namespace treadle::test

// The forms for arrays and those that return null call these.
void* operator new(std::size_t bytes) { return treadle::test::allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return treadle::test::allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
