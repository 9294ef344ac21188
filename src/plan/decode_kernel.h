// The decode kernel: a few rows of queries against one block of keys, with the keys in the lanes.
//
//   scores -> score mod -> mask -> running maximum -> powers of two -> weighted sum of values
//
// A row is a query of a head of a sequence. Rows of all heads of a key head look at the same keys, so
// keys and values are read once for all of them, in their own type, wherever each of them lies. The
// rows' states are those of the forward kernel (plan/forward_kernel.h) and have the same bits: every
// sum has the same order.
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "ir/graph.h"
#include "layout/layout.h"
#include "plan/dropout_args.h"
#include "plan/mod_facts.h"
#include "plan/mod_pieces.h"
#include "plan/score_form.h"
#include "plan/target.h"

namespace treadle::plan {

// Where the rows of a vector's worth of keys lie, one after the other; strides are in bytes. There are
// rows of keys for all lanes, whatever is in those after the last key.
struct KeyGroup {
  const void* keys = nullptr;  // rows of dim elements of key_type
  std::int64_t key_stride = 0;
  const void* values = nullptr;  // of value_dim elements of value_type
  std::int64_t value_stride = 0;
};

// Floats are of the spec's compute type unless said otherwise.
struct DecodeKernelArgs {
  const KeyGroup* groups = nullptr;  // one for each vector's worth of keys that there is
  const KeyGroup* next = nullptr;    // of the next block, as many: asked for meanwhile. No memory
                                     // need be there.
  // Arrays of whole vectors: the last key fills the rest.
  const float* key_scales = nullptr;  // what each is multiplied with, if the spec says so
  const float* value_scales = nullptr;
  const std::int32_t* key_positions = nullptr;  // kv of each, ascending
  std::int64_t count = 0;                       // keys that there are: 1 .. key_block
  const void* queries = nullptr;  // [rows][dim], multiplied with scale * ScoreForm::factor()
  const std::int32_t* positions = nullptr;  // [rows]: q of each
  const std::int32_t* heads = nullptr;      // [rows]: h of each
  const std::int32_t* entries = nullptr;    // [rows]: b of each
  std::int64_t rows = 0;
  const std::int64_t* score_captures = nullptr;  // descriptors (plan/capture_descriptors.h)
  const std::int64_t* mask_captures = nullptr;
  const DropoutArgs* dropout = nullptr;  // of kernels that drop weights
  void* frame = nullptr;                 // scratch of mods in pieces
  void* turned = nullptr;   // [key_block / lanes][dim][lanes], scratch: keys in the lanes
  void* values = nullptr;   // [key_block][value_dim], scratch, if the spec widens values
  void* scores = nullptr;   // [rows][key_block], scratch
  void* sums = nullptr;     // [rows][value_dim]: O, not yet divided by l
  void* maximum = nullptr;  // [rows]: m, in powers of two; -inf at first
  void* weight = nullptr;   // [rows]: l; 0 at first
};

// Rows are handled four by four, and then the rest; four rows are a rest, which may have a faster way.
struct RowBlocks {
  bool fours = true;
  bool many = false;  // so many fours that values are better converted once for all of them
  int rest = 0;

  explicit RowBlocks(std::int64_t rows)
      : fours(rows > 4), many(rows >= 32), rest(static_cast<int>(rows > 4 ? rows % 4 : rows)) {}
  bool operator==(const RowBlocks&) const = default;
};

// Mods must not fail: no fact says that something has to be checked.
struct DecodeKernelSpec {
  using Args = DecodeKernelArgs;

  Target target;
  DType compute = DType::f32;
  DType key_type = DType::f32, value_type = DType::f32;
  bool key_scales = false, value_scales = false;  // a key is f32(element) * its scale, rounded once
  std::int64_t dim = 0, value_dim = 0;
  std::int64_t key_block = 32;  // the most keys a call handles; whole vectors
  RowBlocks rows{1};
  // Graphs and facts have q and kv exchanged (ir/exchange.h): the keys are in the lanes.
  ScoreForm score;
  ModFacts score_facts;
  bool masked = false;  // else every row sees every key of the block
  ir::Graph mask;       // the first output says what is visible
  ModFacts mask_facts;
  PieceSize mods;        // how large they are before they are cut
  bool dropout = false;  // as in ForwardKernelSpec

  // Whether values are in DecodeKernelArgs::values before they are multiplied. Words of bf16 are taken
  // apart as fast as that memory is read.
  [[nodiscard]] bool widens_values() const {
    const bool words = compute == DType::f32 && value_type == DType::bf16 && !value_scales;
    return rows.many && (value_type != compute || value_scales) && !words;
  }
  // Whether rows multiply keys as they are turned. Four of them need the more registers, and no keys
  // that have to be converted between.
  [[nodiscard]] bool multiplies_at_once() const {
    return !rows.fours && (rows.rest < 4 || (target.registers >= 32 && key_type == compute));
  }
  // Whether keys are in DecodeKernelArgs::turned as words of several numbers: those that are taken apart
  // fast enough for every four rows.
  [[nodiscard]] bool turns_words() const {
    return compute == DType::f32 && key_type == DType::bf16 && !key_scales &&
           dim % (2 * target.lanes(compute)) == 0;
  }
  bool operator==(const DecodeKernelSpec&) const = default;
};

// Vectors of turned keys that four rows multiply at once: their sums are in half of the registers.
inline int groups_at_once(const Target& target) { return target.registers >= 32 ? 4 : 2; }

// The most rows that kernels are given at once.
inline constexpr std::int64_t most_decode_rows = 64;

// Whether a call with this layout decodes; `group` heads share a key head. Few queries would leave
// most lanes of the forward's tiles empty; keys in many pieces that are too short for these lanes are
// gathered by the forward.
bool decodes(const Target& target, DType compute, const layout::OneTile& layout,
             std::int64_t group);
bool decodes(const Target& target, DType compute, const layout::Layout& layout, std::int64_t group);

// Keys of a block: about 4 KB, so that the next one can be fetched meanwhile, and two vectors or more.
// Many rows want as many keys as they multiply at once, unless those leave the first cache: numbers of
// queries, and O, are then loaded less often.
std::int64_t decode_block(const Target& target, DType compute, DType key_type, std::int64_t dim,
                          const RowBlocks& rows);

base::Key key(const DecodeKernelSpec& spec);

}  // namespace treadle::plan
