// What every exchange asks of its callers. Throws Error itself, because libtreadle_mpi does not see
// base/error.h's functions, which libtreadle.so hides.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <span>
#include <string>

#include "treadle/error.h"
#include "treadle/exchange.h"

namespace treadle::distributed {

inline void check_message(const char* what, std::size_t bytes, int rank, const Exchange& exchange) {
  if (rank < 0 || rank >= exchange.ranks()) {
    throw Error(fmt::format("exchange: a {} names rank {}; there are ranks 0 to {}", what, rank,
                            exchange.ranks() - 1));
  }
  if (rank == exchange.rank()) {
    throw Error(fmt::format("exchange: rank {} has a {} to or from itself", rank, what));
  }
  if (bytes == 0) {
    throw Error(fmt::format("exchange: rank {} has a {} of 0 bytes with rank {}", exchange.rank(),
                            what, rank));
  }
}

inline void check_messages(std::span<const Exchange::Send> sends,
                           std::span<const Exchange::Receive> receives, const Exchange& exchange) {
  for (const Exchange::Send& send : sends) {
    check_message("send", send.bytes.size(), send.rank, exchange);
  }
  for (const Exchange::Receive& receive : receives) {
    check_message("receive", receive.bytes.size(), receive.rank, exchange);
  }
}

inline void check_gather(std::span<const std::byte> own, std::span<std::byte> all,
                         const Exchange& exchange) {
  if (all.size() != own.size() * static_cast<std::size_t>(exchange.ranks())) {
    throw Error(fmt::format("exchange: rank {} gathers {} bytes of each of {} ranks into {} bytes",
                            exchange.rank(), own.size(), exchange.ranks(), all.size()));
  }
}

// What is said of a message, or of a rank's share of a gather, that is not as long as its receive.
inline std::string wrong_size(int rank, std::size_t received, int from, std::size_t expected) {
  return fmt::format(
      "exchange: rank {} received {} bytes from rank {} where it expects {}; a message has the "
      "size "
      "of its receive",
      rank, received, from, expected);
}

}  // namespace treadle::distributed
