// Threads as ranks, each with an exchange: what they do, and what they throw.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "treadle/in_process_exchange.h"

namespace treadle::test {

using Exchanges = std::vector<std::shared_ptr<Exchange>>;

// What each rank threw; "" for nothing.
inline std::vector<std::string> texts_of_ranks(
    const Exchanges& exchanges, const std::function<void(int, std::shared_ptr<Exchange>)>& rank) {
  std::vector<std::string> texts(exchanges.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < exchanges.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        rank(static_cast<int>(r), exchanges[r]);
      } catch (const std::exception& error) {
        texts[r] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return texts;
}

// None may throw.
inline void on_ranks(const Exchanges& exchanges,
                     const std::function<void(int, std::shared_ptr<Exchange>)>& rank) {
  const std::vector<std::string> texts = texts_of_ranks(exchanges, rank);
  for (std::size_t r = 0; r < texts.size(); ++r) EXPECT_EQ(texts[r], "") << "thrown by rank " << r;
}

}  // namespace treadle::test
