// A function on a thread with little stack, as threads of small pools and of other systems have.
//
//   on_small_stack(256 << 10, [&] { attend.forward(inputs); });
#pragma once

#include <pthread.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <stdexcept>

namespace treadle::test {

// Waits for its end; what it throws is thrown here.
inline void on_small_stack(std::size_t bytes, const std::function<void()>& body) {
  struct Work {
    const std::function<void()>& body;
    std::exception_ptr thrown;
  } work{body, nullptr};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (pthread_attr_setstacksize(&attributes, bytes) != 0)
    throw std::runtime_error("no thread with such a stack");
  pthread_t thread{};
  const auto run = [](void* given) -> void* {
    Work& mine = *static_cast<Work*>(given);
    try {
      mine.body();
    } catch (...) {
      mine.thrown = std::current_exception();
    }
    return nullptr;
  };
  const int failed = pthread_create(&thread, &attributes, run, &work);
  pthread_attr_destroy(&attributes);
  if (failed != 0) throw std::runtime_error("pthread_create failed");
  pthread_join(thread, nullptr);
  if (work.thrown) std::rethrow_exception(work.thrown);
}

}  // namespace treadle::test
