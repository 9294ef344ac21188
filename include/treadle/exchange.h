// Exchange: how the ranks of a distributed call talk (treadle/distributed.h).
//
//   std::shared_ptr<Exchange> mpi = mpi_exchange(MPI_COMM_WORLD);      // treadle/mpi.h
//   std::vector<std::shared_ptr<Exchange>> four = in_process_exchanges(4);   // threads as ranks:
//                                                             // treadle/in_process_exchange.h
//
// A program with a transport of its own implements Exchange. All functions of an exchange are
// called by one thread at a time, the one that calls plan, forward or backward. They do not block,
// so that whoever waits can look at the clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "treadle/api.h"

namespace treadle {

// Messages on their way. Ending one before it is done gives it up: then their memory is not touched
// any more, and what becomes of the messages is open.
class TREADLE_API Transfer {
 public:
  Transfer() = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  virtual ~Transfer();

  // Moves messages on. Appends the numbers of receives that have arrived since the last time. True
  // when all messages, sent and received, are done.
  virtual bool test(std::vector<std::size_t>& arrived) = 0;
};

// How the ranks of a distributed call talk.
class TREADLE_API Exchange {
 public:
  // Bytes for another rank.
  struct Send {
    int rank = 0;                      // to whom
    std::span<const std::byte> bytes;  // what
  };
  // Memory for bytes of another rank.
  struct Receive {
    int rank = 0;                // from whom
    std::span<std::byte> bytes;  // where to
  };

  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  virtual ~Exchange();

  // Which rank this is, from 0, and how many there are.
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int ranks() const = 0;

  // Begins messages, none of them to this rank or empty; memory stays until they are done. Between
  // two ranks messages arrive in the order in which they were sent, also those of several calls of
  // start, and each fits the receive that it meets; one that does not is an error that names the
  // rank and both sizes. There may be several transfers at a time.
  virtual std::unique_ptr<Transfer> start(std::span<const Send> sends,
                                          std::span<const Receive> receives) = 0;

  // Begins to collect equally many bytes of every rank in `all`, in the order of ranks. All ranks
  // call it, in the same order among their other gathers.
  virtual std::unique_ptr<Transfer> start_gather(std::span<const std::byte> own,
                                                 std::span<std::byte> all) = 0;

  // A rank has been silent for too long, or has failed in a way that others will not hear of:
  // `why` is what is thrown here. Ends the other ranks, if the transport can.
  virtual void abandon(const std::string& why) = 0;
};

}  // namespace treadle
