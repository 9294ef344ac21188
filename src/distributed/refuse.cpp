// What ranks say to one another before a call: a number, or that they cannot make it.
#include <utility>

#include "distributed/agreement.h"
#include "treadle/distributed.h"
#include "treadle/error.h"

namespace treadle::distributed {

void refuse(std::shared_ptr<Exchange> exchange, const std::string& why,
            std::chrono::milliseconds patience) {
  const Failure failure = Failure::of(why);
  if (exchange->ranks() == 1) throw Error(why);
  Channel channel(std::move(exchange), patience);
  Envelope own;
  own.kind = Envelope::Kind::agree;
  own.outcome = failure.outcome();
  const std::vector<Envelope> all = channel.gather(own, "call");
  throw_failure(channel, all, failure);
}

std::vector<std::uint64_t> agree(std::shared_ptr<Exchange> exchange, std::uint64_t own,
                                 std::chrono::milliseconds patience) {
  Channel channel(std::move(exchange), patience);
  Envelope said;
  said.kind = Envelope::Kind::agree;
  said.reserved = own;
  const std::vector<Envelope> all = channel.gather(said, "call");
  if (first_failing(all) >= 0) throw_failure(channel, all, {});
  check_same_call(channel, all);
  std::vector<std::uint64_t> numbers;
  for (const Envelope& one : all) numbers.push_back(one.reserved);
  return numbers;
}

void gather(std::shared_ptr<Exchange> exchange, std::span<const std::byte> own,
            std::span<std::byte> all, std::chrono::milliseconds patience) {
  Channel(std::move(exchange), patience).gather(own, all, "gather");
}

}  // namespace treadle::distributed
