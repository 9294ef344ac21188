// Keys and values of a call that other ranks have: which ones travel, and where they are when they have come.
//
// KeyNeeds says what a rank looks at, batch entry by batch entry and key head by key head. Both ends of a message know it,
// so messages have rows alone: for each list, for each range, rows of K and then of V.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "distributed/channel.h"
#include "distributed/part.h"
#include "run/key_source.h"
#include "treadle/distributed.h"
#include "treadle/view.h"

namespace treadle::distributed {

class KeyNeeds {
 public:
  KeyNeeds() = default;
  KeyNeeds(std::int64_t batch, std::int64_t heads)
      : batch_(batch), heads_(heads), list_of_(static_cast<std::size_t>(batch * heads), 0) {}

  // Keys that some entries and heads look at, besides what they had before.
  void add(layout::Range batch, layout::Range heads, const Ranges& keys);

  [[nodiscard]] std::int64_t batch() const { return batch_; }
  [[nodiscard]] std::int64_t heads() const { return heads_; }
  [[nodiscard]] const Ranges& of(std::int64_t b, std::int64_t head) const {
    return lists_[list_of_[static_cast<std::size_t>(b * heads_ + head)]];
  }
  // Only those in a range.
  [[nodiscard]] KeyNeeds inside(layout::Range positions) const;
  // Rows of all entries and heads.
  [[nodiscard]] std::int64_t rows() const;

  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  static KeyNeeds from_bytes(std::span<const std::byte> bytes);

 private:
  std::int64_t batch_ = 0, heads_ = 0;
  std::vector<std::size_t> list_of_;  // [batch][heads]
  std::vector<Ranges> lists_{{}};     // the first is empty
};

// K and V of this rank, [batch, heads, length, dim] with last strides 1, from position `first` on.
struct OwnKeys {
  ConstView k, v;
  layout::Range positions;
};

// The message for a rank with such needs, and its length.
std::int64_t bytes_of(const KeyNeeds& needs, const OwnKeys& keys);
void pack(const KeyNeeds& needs, const OwnKeys& keys, std::byte* to);

// All keys of a call: this rank's, and those in messages from others.
class ShardKeys {
 public:
  // `needs` by rank: what comes from it, in receive number `rank` of the mail, or none. All are
  // referred to.
  ShardKeys(const OwnKeys& own, const Shards& shards, int rank, const std::vector<KeyNeeds>& needs,
            Mail& mail);

  [[nodiscard]] const OwnKeys& own() const { return own_; }
  [[nodiscard]] run::KeyRows rows(std::int64_t b, std::int64_t head, std::int64_t position) const;
  void await(layout::Range keys) const;
  [[nodiscard]] int stage(layout::Range keys) const;
  [[nodiscard]] std::int64_t length() const { return shards_.length(); }

 private:
  struct Segment {
    std::int64_t begin = 0, end = 0;
    const std::byte *keys = nullptr, *values = nullptr;
  };
  // How many ranks come before this one's turn: the nearest first.
  [[nodiscard]] int turn(int rank) const;

  const OwnKeys& own_;
  const Shards& shards_;
  int rank_;
  Mail& mail_;
  std::int64_t heads_ = 0, key_row_ = 0, value_row_ = 0;
  std::vector<std::vector<Segment>> segments_;  // [batch][heads], ascending
  std::vector<std::uint8_t> sends_;             // by rank: whether anything comes from it
};

// Those of some batch entries and key heads, as a part sees them.
class PartKeys final : public run::KeySource {
 public:
  PartKeys(const ShardKeys& all, layout::Range batch, layout::Range heads)
      : all_(all), batch_(batch), heads_(heads) {}

  [[nodiscard]] std::int64_t batch() const override { return batch_.count(); }
  [[nodiscard]] std::int64_t heads() const override { return heads_.count(); }
  [[nodiscard]] layout::Range positions() const override { return all_.length(); }
  [[nodiscard]] DType key_type() const override { return all_.own().k.dtype(); }
  [[nodiscard]] DType value_type() const override { return all_.own().v.dtype(); }
  [[nodiscard]] run::KeyRows rows(std::int64_t b, std::int64_t key_head,
                                  std::int64_t position) const override {
    const std::int64_t entry = batch_.count() == 1 ? 0 : b;
    return all_.rows(batch_.begin + entry, heads_.begin + key_head, position);
  }
  [[nodiscard]] bool needs_copy(DType compute) const override;
  void await(layout::Range keys) const override { all_.await(keys); }
  [[nodiscard]] int stage(layout::Range keys) const override { return all_.stage(keys); }

 private:
  const ShardKeys& all_;
  layout::Range batch_, heads_;
};

}  // namespace treadle::distributed
