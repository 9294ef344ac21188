// Attention with your own score and mask.
//
//   Options options;
//   options.mask = [](Index, Index, Index q, Index kv) { return q >= kv; };
//   Tensor out = attention({q, k, v}, options).out;          // in one call
//
//   Attention causal = compile(options);                     // or compiled once,
//   Forward y = causal.forward({q, k, v});                   // called often,
//   Backward g = causal.backward({q, k, v}, {y.out, y.lse}, dout);    // and trained
//
//     S = mask ? score_mod(scale * <q, k>) : -inf      out = softmax(S) v      lse = ln sum exp S
//
// q is [batch, heads, queries, dim], k [batch, key heads, keys, dim], v [batch, key heads, keys,
// value dim]; heads is a multiple of key heads, and the batch of k and v may be 1. Types are f64,
// f32, bf16 or f16, chosen for each of the three. Sums are kept in f32 (f64 if any input is). A
// query that sees nothing has out = 0 and lse = -inf.
//
// In forward k and v may each have an 8-bit type: e4m3 or e5m2 (treadle/float8.h), or i8, whose
// integers are read as floats. Results have the same bits as for these numbers in f32. Backward
// does not take 8-bit types, which cannot hold gradients.
//
// b, h, q and kv count from 0. Call::q_offsets and Call::kv_offsets set other first positions:
//
//   Forward next = causal.forward({last, cached_k, cached_v}, {.q_offsets = {4095}});
//
// Call::sinks adds a logit per head to the softmax's denominator: lse = ln (sum exp S + exp sink).
// Call::dropout drops weights after the softmax.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "treadle/api.h"
#include "treadle/block_layout.h"
#include "treadle/block_lists.h"
#include "treadle/capture.h"
#include "treadle/dropout.h"
#include "treadle/executor.h"
#include "treadle/key_lists.h"
#include "treadle/layout.h"
#include "treadle/mod.h"
#include "treadle/sequences.h"
#include "treadle/tensor.h"
#include "treadle/view.h"

namespace treadle {

enum class Backend : std::uint8_t {
  cpu,        // kernels compiled for this machine
  reference,  // dense, slow, exact: the definition
};

// What backward is given of the forward pass.
enum class Save : std::uint8_t {
  lse,      // out and lse
  nothing,  // an empty Saved: backward runs the forward again, for half the time more
};

struct Options {
  ScoreMod score_mod;           // leaves scores as they are
  MaskMod mask;                 // everything sees everything
  std::optional<double> scale;  // 1 / sqrt(dim)
  Save save = Save::lse;
  std::vector<std::string> gradients;  // captures whose gradients backward returns, by name
  Backend backend = Backend::cpu;
  std::string target;               // "haswell", ...: code for an older processor than this one is
  std::int64_t most_nodes = 32768;  // of each mod and of the derivative; a larger one is refused
};

struct Inputs {
  ConstView q, k, v;
};

// What may differ between calls without a recompile.
struct Call {
  std::vector<Capture> captures;  // bound instead of those that were given when compiled, by name
  std::shared_ptr<Executor> executor;  // oneTBB on all cores
  Layout layout;                       // built for the call
  bool lse = false, max = false;       // what forward returns besides out; backward needs lse
  // [heads], f64, f32, bf16 or f16: attention sinks. lse includes them, max does not; a query that
  // sees nothing has out = 0 and lse = its sink. A sink of -inf has no effect.
  std::optional<ConstView> sinks;
  // Where the first query and the first key of each batch entry stand in their sequences, or one
  // position for all entries; 0. Mods and masks see q and kv from there on, and a row has the bits
  // that it has in the whole sequence, so one mask serves training, prefill and decode. Rows before
  // position 0 are padding: such queries see nothing, and nobody sees such keys.
  std::vector<std::int64_t> q_offsets, kv_offsets;
  // Of weights, after the softmax (treadle/dropout.h): backward needs that of its forward.
  Dropout dropout;
  std::stop_token stop;  // ends the call early, from any thread: it throws Stopped
};

struct Forward {
  Tensor out;       // [batch, heads, queries, value dim], of q's type
  Tensor lse, max;  // [batch, heads, queries], f32 or f64; empty unless asked for
};

// Memory of the caller's for the results; lse and max are written if there is a view for them.
// Strides are free, but no two elements may share memory.
struct ForwardViews {
  View out;
  std::optional<View> lse, max;
};

// What backward needs of the forward pass.
struct Saved {
  ConstView out, lse;
};

struct CaptureGradient {
  std::string name;
  Tensor gradient;  // the type and shape of the capture
};

struct Backward {
  Tensor dq, dk, dv;
  std::vector<CaptureGradient> captures;  // in the order of Options::gradients
  Tensor dsinks;                          // of the type of Call::sinks; empty without them

  // By name; throws treadle::Error for one that was not asked for.
  [[nodiscard]] TREADLE_API const Tensor& of(std::string_view name) const;
};

struct CaptureView {
  std::string name;
  View gradient;
};

struct BackwardViews {
  View dq, dk, dv;
  std::vector<CaptureView> captures;  // one for each of Options::gradients, in any order
  std::optional<View> dsinks;         // of the type and shape of Call::sinks; written if given
};

// A tensor without its data.
struct TensorSpec {
  DType dtype = DType::f32;
  Dims shape;
  Dims strides;  // in what Shapes gives: those of the tensors that forward and backward allocate

  TensorSpec() = default;
  TensorSpec(DType type, Dims dims)
      : dtype(type), shape(std::move(dims)), strides(contiguous_strides(shape)) {}
};

// A kind of call to come: the types, dims and heads of its inputs, and lengths that are typical.
struct CallSpec {
  TensorSpec q, k, v;
  bool backward = false;  // besides forward
};

// Everything about the results of a call that does not depend on data. dk and dv of 8-bit k and v,
// which backward refuses, are those of the same numbers in the type of lse.
struct Shapes {
  TensorSpec out, lse, max, dq, dk, dv;
  // Bytes of working memory that a thread needs at most, for positions from 0 on; the second without
  // the private sums of captures' gradients. And what a forward call keeps of its rows besides, once
  // for all threads, where its mask is looked at in several passes.
  std::int64_t forward_scratch = 0, backward_scratch = 0, forward_kept = 0;

  // Bytes that a forward pass leaves for its backward, besides q, k and v.
  [[nodiscard]] TREADLE_API std::int64_t saved_bytes(Save save) const;
};

// A capture as the compiled function knows it.
struct CaptureInfo {
  std::string name;
  DType dtype = DType::f32;
  int rank = 0;
  bool gradient = false;
};

// A compiled attention function. Copies share it; all calls are const and may run at the same time.
class TREADLE_API Attention {
 public:
  [[nodiscard]] Forward forward(const Inputs& inputs, const Call& call = {}) const;
  void forward_into(const ForwardViews& results, const Inputs& inputs, const Call& call = {}) const;

  [[nodiscard]] Backward backward(const Inputs& inputs, const Saved& saved, const ConstView& dout,
                                  const std::optional<ConstView>& dlse = std::nullopt,
                                  const Call& call = {}) const;
  void backward_into(const BackwardViews& results, const Inputs& inputs, const Saved& saved,
                     const ConstView& dout, const std::optional<ConstView>& dlse = std::nullopt,
                     const Call& call = {}) const;

  // The same for sequences of different lengths (treadle/sequences.h): out is [all queries, heads,
  // value dim], lse and max are [all queries, heads]. Backward takes packed keys only; dq, dk and dv
  // have the shapes of q, k and v.
  [[nodiscard]] Forward forward(const Sequences& sequences, const Call& call = {}) const;
  void forward_into(const ForwardViews& results, const Sequences& sequences,
                    const Call& call = {}) const;
  [[nodiscard]] Backward backward(const Sequences& sequences, const Saved& saved,
                                  const ConstView& dout,
                                  const std::optional<ConstView>& dlse = std::nullopt,
                                  const Call& call = {}) const;
  void backward_into(const BackwardViews& results, const Sequences& sequences, const Saved& saved,
                     const ConstView& dout, const std::optional<ConstView>& dlse = std::nullopt,
                     const Call& call = {}) const;

  // The part of a call that depends on lengths and on what the mask's captures hold. Touches only
  // the captures.
  [[nodiscard]] Layout layout(const TensorSpec& q, const TensorSpec& k, const TensorSpec& v,
                              const Call& call = {}) const;
  [[nodiscard]] Layout layout(const Inputs& inputs, const Call& call = {}) const;

  // The same for keys chosen from data, FlexAttention's block lists and OpenAI's block layouts.
  // Visible is what is listed and shown by the mask, except for full blocks of block lists, which
  // skip it. Pairs that a block layout hides inside its blocks must be hidden by the mask too, as
  // they are by to_mask(blocks). treadle/key_lists.h and treadle/block_lists.h have examples.
  [[nodiscard]] Layout layout(const KeyLists& keys, const TensorSpec& q, const TensorSpec& k,
                              const TensorSpec& v, const Call& call = {}) const;
  [[nodiscard]] Layout layout(const BlockListViews& lists, const TensorSpec& q, const TensorSpec& k,
                              const TensorSpec& v, const Call& call = {}) const;
  [[nodiscard]] Layout layout(const BlockLayout& blocks, const TensorSpec& q, const TensorSpec& k,
                              const TensorSpec& v, const Call& call = {}) const;
  [[nodiscard]] Layout layout(const KeyLists& keys, const Inputs& inputs,
                              const Call& call = {}) const;
  [[nodiscard]] Layout layout(const BlockListViews& lists, const Inputs& inputs,
                              const Call& call = {}) const;
  [[nodiscard]] Layout layout(const BlockLayout& blocks, const Inputs& inputs,
                              const Call& call = {}) const;

  // And back: what a call with these captures would see, as exact block lists or as a block layout.
  // With Call::layout, what that layout shows (then lists are those of Layout::block_lists).
  [[nodiscard]] BlockLists block_lists(const BlockListOptions& options, const TensorSpec& q,
                                       const TensorSpec& k, const TensorSpec& v,
                                       const Call& call = {}) const;
  [[nodiscard]] BlockLists block_lists(const BlockListOptions& options, const Inputs& inputs,
                                       const Call& call = {}) const;
  [[nodiscard]] BlockLayout block_layout(std::int64_t block_size, const TensorSpec& q,
                                         const TensorSpec& k, const TensorSpec& v,
                                         const Call& call = {}) const;
  [[nodiscard]] BlockLayout block_layout(std::int64_t block_size, const Inputs& inputs,
                                         const Call& call = {}) const;

  // Compiles, on all threads, what calls of these kinds can need, so that none of them waits for it: any
  // lengths, as long as few queries stay as few (a query or 16 are different kinds), and any layout,
  // with NaN or without. What is known of reads of captures is that of these lengths. Kernels of the
  // 32 kinds of calls that were made or prepared last are kept.
  void prepare(const std::vector<CallSpec>& calls, const Call& call = {}) const;

  // Shapes, strides and types of what these inputs would give. Checks them as a call does; touches
  // no data.
  [[nodiscard]] Shapes shapes(const TensorSpec& q, const TensorSpec& k, const TensorSpec& v) const;

  [[nodiscard]] std::vector<CaptureInfo> captures() const;

  // The mods and the derivative as readable text, simplified.
  [[nodiscard]] std::string describe() const;

  struct Compiled;  // internal
  explicit Attention(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
  [[nodiscard]] const Compiled& compiled() const { return *compiled_; }

 private:
  std::shared_ptr<const Compiled> compiled_;
};

TREADLE_API Attention compile(const Options& options);

// compile and forward in one call.
TREADLE_API Forward attention(const Inputs& inputs, const Options& options = {},
                              const Call& call = {});

}  // namespace treadle
