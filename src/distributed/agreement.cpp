// Envelopes compared, failures told. Read throw_failure() first.
#include "distributed/agreement.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "treadle/error.h"

namespace treadle::distributed {
namespace {

constexpr std::size_t most_text = 400;

std::vector<std::byte> to_bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string to_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Two ranks that differ: the first that is not as most are, and the first that is.
template <class T, class Of>
bool find_odd(std::span<const T> all, const Of& of, std::size_t& odd, std::size_t& usual) {
  const auto votes = [&](std::size_t rank) {
    return std::ranges::count_if(all, [&](const T& other) { return of(other) == of(all[rank]); });
  };
  usual = 0;
  for (std::size_t r = 1; r < all.size(); ++r)
    if (votes(r) > votes(usual)) usual = r;
  for (odd = 0; odd < all.size(); ++odd)
    if (of(all[odd]) != of(all[usual])) return true;
  return false;
}

std::string text_of(const Envelope& envelope) {
  if (envelope.kind == Envelope::Kind::plan) return "a plan";
  if (envelope.kind == Envelope::Kind::agree) return "an agreement before a call";
  return fmt::format("{} as call {} of its plan", name_of(envelope.kind), envelope.number);
}

}  // namespace

std::string_view name_of(Envelope::Kind kind) {
  switch (kind) {
    case Envelope::Kind::plan: return "plan";
    case Envelope::Kind::forward: return "forward";
    case Envelope::Kind::backward: return "backward";
    case Envelope::Kind::agree: return "call";
  }
  return "call";
}

Failure Failure::current() {
  Failure failure;
  failure.outcome_ = Envelope::Outcome::error;
  failure.text_ = text_of_current();
  try {
    throw;
  } catch (const ModError&) {
    failure.outcome_ = Envelope::Outcome::mod_error;
  } catch (const Stopped&) {
    failure.outcome_ = Envelope::Outcome::stopped;
  } catch (...) {
    // An error like others.
  }
  return failure;
}

Failure Failure::of(const std::string& text) {
  Failure failure;
  failure.outcome_ = Envelope::Outcome::error;
  failure.text_ = text;
  return failure;
}

void check_same_call(Channel& channel, std::span<const Envelope> all) {
  std::size_t odd = 0, usual = 0;
  const auto call_of = [](const Envelope& e) {
    return std::array{static_cast<std::uint64_t>(e.kind), static_cast<std::uint64_t>(e.step),
                      e.plan, e.number};
  };
  const std::string_view name = name_of(all.front().kind);
  if (find_odd(all, call_of, odd, usual)) {
    const Envelope &a = all[odd], &b = all[usual];
    const bool plans =
        a.kind != b.kind && (a.kind == Envelope::Kind::plan || b.kind == Envelope::Kind::plan);
    const std::string_view why = plans              ? ""
                                 : a.plan != b.plan ? ", of another plan"
                                 : a.step != b.step ? ", and is further"
                                                    : "";
    const std::string_view more =
        plans
            ? "; in Python a plan is made by the first call with a mask, with shapes and types of "
              "q, k and v, or with what the mask reads"
            : "";
    channel.agreed();
    base::fail(
        "{}: rank {} makes {}{}, while rank {} makes {}; all ranks make the same calls in the same "
        "order{}",
        name, odd, text_of(a), why, usual, text_of(b), more);
  }
}

void check_same_contents(Channel& channel, std::span<const Envelope> all) {
  std::size_t odd = 0, usual = 0;
  if (find_odd(all, [](const Envelope& e) { return e.what; }, odd, usual)) {
    channel.agreed();
    base::fail(
        "{}: rank {} has another score mod, or other types or shapes of captures, sinks, dropout "
        "or results than rank {}; they must be the same on all ranks",
        name_of(all.front().kind), odd, usual);
  }
}

int first_failing(std::span<const Envelope> all) {
  const auto at = std::ranges::find_if(
      all, [](const Envelope& e) { return e.outcome != Envelope::Outcome::fine; });
  return at == all.end() ? -1 : static_cast<int>(at - all.begin());
}

int first_refusing(std::span<const Envelope> all) {
  const auto at = std::ranges::find_if(all, [](const Envelope& e) {
    return e.kind == Envelope::Kind::agree && e.outcome != Envelope::Outcome::fine;
  });
  return at == all.end() ? -1 : static_cast<int>(at - all.begin());
}

void throw_failure(Channel& channel, std::span<const Envelope> all, const Failure& own) {
  const int rank = first_failing(all);
  const Envelope& failing = all[static_cast<std::size_t>(rank)];
  const std::string_view call = name_of(failing.kind);
  const auto texts = channel.share(to_bytes(channel.rank() == rank ? own.text() : ""), call);
  std::string text = to_text(texts[static_cast<std::size_t>(rank)]);
  // Its messages begin with the call's name.
  const std::string start = fmt::format("{}: ", call);
  if (text.starts_with(start)) text.erase(0, start.size());
  text = fmt::format("{}: rank {}: {}", call, rank, text);
  channel.agreed();
  if (failing.outcome == Envelope::Outcome::stopped) throw Stopped(text);
  if (failing.outcome == Envelope::Outcome::mod_error) base::fail_mod("{}", text);
  base::fail("{}", text);
}

void check_equal(Channel& channel, std::string_view call, std::span<const Claim> claims) {
  const auto ranks = static_cast<std::size_t>(channel.ranks());
  std::vector<base::Hash> own, all(ranks * claims.size());
  for (const Claim& claim : claims) own.push_back(base::Hasher().add(claim.text).finish());
  channel.gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)), call);
  for (std::size_t i = 0; i < claims.size(); ++i) {
    std::vector<base::Hash> of_claim;
    for (std::size_t r = 0; r < ranks; ++r) of_claim.push_back(all[r * claims.size() + i]);
    std::size_t odd = 0, usual = 0;
    if (!find_odd(
            std::span<const base::Hash>(of_claim), [](const base::Hash& h) { return h; }, odd,
            usual))
      continue;
    const auto texts =
        channel.share(to_bytes(std::string_view(claims[i].text).substr(0, most_text)), call);
    channel.agreed();
    base::fail("{}: rank {} has {} {}, rank {} has {}; it must be the same on all ranks", call, odd,
               claims[i].what, to_text(texts[odd]), usual, to_text(texts[usual]));
  }
}

}  // namespace treadle::distributed
