// Who exchanges rows with whom, and how many, as the planner's model counts them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "treadle/distributed.h"

namespace treadle::distributed {

// Whom the ranks of each part exchange anything with, in one direction: all of them with the same ones,
// besides who joins their states.
class Peers {
 public:
  Peers(const Shards& shards, int groups)
      : ranks_(shards.ranks()),
        groups_(groups),
        words_((static_cast<std::size_t>(ranks_) + 63) / 64),
        has_rows_(words_),
        bits_(static_cast<std::size_t>(ranks_ / groups) * words_) {
    for (int rank = 0; rank < ranks_; ++rank)
      if (shards.count(rank) > 0) has_rows_[word_of(rank)] |= bit_of(rank);
  }

  void add(int part, int peer) { of_part(part)[word_of(peer)] |= bit_of(peer); }
  // Those of first ... last that have rows.
  void add(int part, int first, int last) {
    std::uint64_t* bits = of_part(part);
    for (int word = first / 64; word <= last / 64; ++word) {
      const int begin = std::max(first - word * 64, 0), end = std::min(last - word * 64, 63);
      bits[word] |= (~std::uint64_t{0} << begin) & (~std::uint64_t{0} >> (63 - end)) &
                    has_rows_[static_cast<std::size_t>(word)];
    }
  }
  // Group by group.
  void add_join(int from, int to) { joins_.emplace_back(from, to); }

  // Messages to the ranks' peers.
  void count_sent(std::vector<Traffic>& traffic) {
    std::ranges::sort(joins_);
    const auto same = std::ranges::unique(joins_);
    joins_.erase(same.begin(), same.end());
    for (int rank = 0; rank < ranks_; ++rank) {
      std::int64_t& messages = traffic[static_cast<std::size_t>(rank)].messages;
      const std::uint64_t* bits = of_part(rank / groups_);
      for (std::size_t at = 0; at < words_; ++at) messages += std::popcount(bits[at]);
      if (has(rank, rank)) --messages;
    }
    // In messages of their own.
    for (const auto& [from, to] : joins_)
      for (int group = 0; group < groups_; ++group)
        ++traffic[static_cast<std::size_t>(from + group)].messages;
  }
  // Or from them, in several books.
  void count_received(std::initializer_list<std::vector<Traffic>*> books) const {
    for (std::size_t at = 0; at < words_; ++at) {
      // How many parts have each bit: counters of all bits at once, a word for each of their digits.
      std::array<std::uint64_t, 32> digits{};
      for (int part = 0; part * groups_ < ranks_; ++part) {
        std::uint64_t carry = of_part(part)[at];
        for (std::size_t digit = 0; carry != 0; ++digit) {
          const std::uint64_t both = digits[digit] & carry;
          digits[digit] ^= carry;
          carry = both;
        }
      }
      const int first = static_cast<int>(at) * 64;
      for (int peer = first; peer < std::min(first + 64, ranks_); ++peer) {
        std::int64_t count = 0;
        for (std::size_t digit = 0; digit < digits.size(); ++digit)
          count += static_cast<std::int64_t>(digits[digit] >> (peer - first) & 1) << digit;
        count = count * groups_ - (has(peer, peer) ? 1 : 0);
        for (std::vector<Traffic>* book : books)
          (*book)[static_cast<std::size_t>(peer)].messages += count;
      }
    }
  }

 private:
  static std::size_t word_of(int rank) { return static_cast<std::size_t>(rank) / 64; }
  static std::uint64_t bit_of(int rank) { return std::uint64_t{1} << (rank % 64); }
  [[nodiscard]] bool has(int rank, int peer) const {
    return (of_part(rank / groups_)[word_of(peer)] & bit_of(peer)) != 0;
  }
  [[nodiscard]] const std::uint64_t* of_part(int part) const {
    return bits_.data() + static_cast<std::size_t>(part) * words_;
  }
  std::uint64_t* of_part(int part) {
    return bits_.data() + static_cast<std::size_t>(part) * words_;
  }

  int ranks_, groups_;
  std::size_t words_;
  std::vector<std::uint64_t> has_rows_;     // [rank]
  std::vector<std::uint64_t> bits_;         // [part][peer]
  std::vector<std::pair<int, int>> joins_;  // from and to of the first group
};

// Whose a position is, without a search: there are a few blocks for each rank, so that they stay in the cache.
class Owners {
 public:
  explicit Owners(const Shards& shards)
      : shards_(shards), ends_(shards.starts.begin() + 1, shards.starts.end()) {
    while (shards.length() > std::int64_t{4} * shards.ranks() << bits_) ++bits_;
    int owner = 0;
    for (std::int64_t at = 0; at < shards.length(); at += std::int64_t{1} << bits_) {
      while (ends_[static_cast<std::size_t>(owner)] <= at) ++owner;
      first_.push_back(owner);
    }
  }

  [[nodiscard]] const Shards& shards() const { return shards_; }
  [[nodiscard]] int of(std::int64_t position) const {
    int owner = first_[static_cast<std::size_t>(position >> bits_)];
    while (ends_[static_cast<std::size_t>(owner)] <= position) ++owner;
    return owner;
  }

 private:
  const Shards& shards_;
  std::vector<std::int64_t> ends_;  // of shards
  int bits_ = 0;
  std::vector<int> first_;  // of each block
};

// Rows that each rank hands out or gets, from ranges of positions that some rank needs or has.
class RowsByOwner {
 public:
  explicit RowsByOwner(const Shards& shards)
      : shards_(shards),
        rows_(static_cast<std::size_t>(shards.ranks())),
        covered_(static_cast<std::size_t>(shards.ranks()) + 1) {}

  // The first and last key of begin ... end belong to these.
  void add(std::int64_t begin, std::int64_t end, int first, int last, double weight) {
    if (first == last) {
      at(first) += weight * static_cast<double>(end - begin);
      return;
    }
    at(first) += weight * static_cast<double>(shards_.end(first) - begin);
    at(last) += weight * static_cast<double>(end - shards_.begin(last));
    covered_[static_cast<std::size_t>(first) + 1] += weight;
    covered_[static_cast<std::size_t>(last)] -= weight;
  }
  void take_away(int rank, double rows) { at(rank) -= rows; }

  [[nodiscard]] std::vector<double> total() const {
    std::vector<double> total = rows_;
    double weight = 0;
    for (std::size_t rank = 0; rank < total.size(); ++rank) {
      weight += covered_[rank];
      total[rank] += weight * static_cast<double>(shards_.count(static_cast<int>(rank)));
    }
    return total;
  }

 private:
  double& at(int rank) { return rows_[static_cast<std::size_t>(rank)]; }

  const Shards& shards_;
  std::vector<double> rows_, covered_;
};

}  // namespace treadle::distributed
