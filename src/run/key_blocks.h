// Keys and values, block by block: in place where their rows lie one after the other, else copied
// side by side.
//
//   KeyBlocks<float> blocks(kernels, k, v, b, key_head, workspace, room);
//   blocks.start();                       // workspace.wanted holds the keys to look at
//   while (blocks.next()) ... blocks.keys() .. workspace.block says which places hold which keys
#pragma once

#include <cstdint>

#include "run/forward_kernels.h"
#include "run/scratch.h"
#include "treadle/view.h"

namespace treadle::run {

// Whether rows are copied: their type is not that of the computation, or they do not follow one
// another.
bool needs_copy(const ConstView& view, DType compute);

// Where rows of a head begin, and how far apart they are, in bytes.
const std::byte* rows_of(const ConstView& view, std::int64_t b, std::int64_t h);
std::int64_t row_bytes(const ConstView& view);

template <class F>
class KeyBlocks {
 public:
  // Scratch for a block.
  struct Room {
    F *keys = nullptr, *values = nullptr;
    std::int32_t* indices = nullptr;

    static Room carve(Carver& carver, std::int64_t key_block, std::int64_t dim,
                      std::int64_t value_dim);
  };

  KeyBlocks(ForwardKernels& kernels, const ConstView& k, const ConstView& v, std::int64_t b,
            std::int64_t key_head, Workspace& work);

  void use(const Room& room) { room_ = room; }
  void start();
  bool next();

  [[nodiscard]] const F* keys() const { return keys_; }
  [[nodiscard]] const F* values() const { return values_; }
  [[nodiscard]] const std::int32_t* indices() const { return room_.indices; }
  [[nodiscard]] std::int64_t count() const { return count_; }
  // All keys of the block follow one another.
  [[nodiscard]] bool contiguous() const { return work_.block.size() == 1; }

 private:
  void take(std::int64_t keys);
  void copy(CopyKernel* kernel, const ConstView& view, F* to, std::int64_t length);

  ForwardKernels& kernels_;
  const ConstView &k_, &v_;
  std::int64_t batch_, head_, key_block_;
  bool copies_;
  Workspace& work_;
  Room room_;
  const F *keys_ = nullptr, *values_ = nullptr;
  std::int64_t count_ = 0;
  std::size_t segment_ = 0;  // of the wanted ones, and the next key in it
  std::int64_t at_ = 0;
};

}  // namespace treadle::run
