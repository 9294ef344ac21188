// How ranks agree: all of them make the same call, and all of them return from it or all throw the same.
//
//   check_equal(channel, "plan", {{"mask", text}, {"keys", "f32 [1, 8, 4096, 64]"}});    // before a plan
//   const Ending all = agree(channel, envelope, failure);                            // after a call
//
// Every first message of a call is an Envelope, so that a rank that makes another call, or has left one out, is
// found out by all ranks and nothing is taken for something else.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/channel.h"

namespace treadle::distributed {

// Trivially copyable and the same on all ranks but for what is about one rank.
struct Envelope {
  enum class Kind : std::int32_t { plan, forward, backward, agree };
  enum class Step : std::int32_t { begin, end };
  enum class Outcome : std::int32_t { fine, error, mod_error, stopped };

  std::uint64_t plan = 0;    // which one; 0 while it is made
  std::uint64_t number = 0;  // of the call with that plan
  std::uint64_t what = 0;    // a hash of all that ranks must give alike
  Kind kind = Kind::plan;
  Step step = Step::begin;
  // Of this rank: what has become of its part, and whether it has to be computed again (backend::BackwardEnd).
  Outcome outcome = Outcome::fine;
  std::int32_t unclear = 0;
  std::uint64_t reserved = 0;
};

std::string_view name_of(Envelope::Kind kind);

// What went wrong on a rank, to be told to all.
class Failure {
 public:
  Failure() = default;
  // Of the current exception; of one that is no Error what it says.
  static Failure current();
  // Of an error with this text.
  static Failure of(const std::string& text);

  [[nodiscard]] Envelope::Outcome outcome() const { return outcome_; }
  [[nodiscard]] const std::string& text() const { return text_; }
  explicit operator bool() const { return outcome_ != Envelope::Outcome::fine; }

 private:
  Envelope::Outcome outcome_ = Envelope::Outcome::fine;
  std::string text_;
};

// Throws if some rank is not in the same call, naming it; all ranks throw the same.
void check_same_call(Channel& channel, std::span<const Envelope> all);
// Or if it is another one by what is in it.
void check_same_contents(Channel& channel, std::span<const Envelope> all);
// The first rank whose outcome is not fine; -1 if there is none.
int first_failing(std::span<const Envelope> all);
// The first rank that cannot make the call at all (refuse()); -1 if there is none.
int first_refusing(std::span<const Envelope> all);
// That rank's error, on all ranks, which all call this.
[[noreturn]] void throw_failure(Channel& channel, std::span<const Envelope> all,
                                const Failure& own);

// Something that must be the same on all ranks, in words.
struct Claim {
  std::string what;
  std::string text;
};
// Throws on all ranks if it is not, with the words of two of them. Long texts are cut.
void check_equal(Channel& channel, std::string_view call, std::span<const Claim> claims);

}  // namespace treadle::distributed
