// Calls of the Sparse Transformer's attention: tensors are checked, seen as [batch, heads, time,
// dim] and handed to an Attention that is kept by what its arguments mean.
#include "treadle/sparse_attention.h"

#include <array>
#include <string_view>

#include "api/sparse_pattern.h"
#include "base/error.h"
#include "base/kept.h"

namespace treadle::sparse_transformer {
namespace {

using api::SparsePattern;
using base::fail;

template <class Void>
BasicView<Void> split_heads(const BasicView<Void>& x, std::int64_t heads) {
  const std::int64_t dim = x.size(2) / heads;
  return {x.data(),
          x.dtype(),
          {x.size(0), heads, x.size(1), dim},
          {x.stride(0), dim * x.stride(2), x.stride(1), x.stride(2)}};
}

Inputs split_heads(const Inputs& inputs, std::int64_t heads) {
  return {split_heads(inputs.q, heads), split_heads(inputs.k, heads), split_heads(inputs.v, heads)};
}

void check_tensor(std::string_view call, std::string_view name, const ConstView& x,
                  std::int64_t heads) {
  if (x.rank() != 3) {
    fail("{}: {} has {} dimensions; it must have 3: batch, time, heads * dim", call, name,
         x.rank());
  }
  if (x.size(2) % heads != 0) {
    fail("{}: the width of {} is {}, heads {}; {} is not a multiple of {}", call, name, x.size(2),
         heads, x.size(2), heads);
  }
}

void check_like(std::string_view call, const ConstView& q, std::string_view name,
                const ConstView& x) {
  if (x.size(0) != q.size(0) || x.size(1) != q.size(1)) {
    fail("{}: q has batch {} and length {}, {} {} and {}; they must be the same", call, q.size(0),
         q.size(1), name, x.size(0), x.size(1));
  }
  if (x.dtype() != q.dtype()) {
    fail("{}: q is {}, {} {}; they must be of one type", call, name_of(q.dtype()), name,
         name_of(x.dtype()));
  }
}

}  // namespace

struct SparseAttention::Made {
  // Types and shapes of q, k and v as Attention sees them.
  struct Sizes {
    DType dtype = DType::f32;
    std::int64_t batch = 0, heads = 0, time = 0, dim = 0, value_dim = 0;

    bool operator==(const Sizes&) const = default;
  };

  // A compiled function, and the layouts of sizes that it was called with.
  struct Function {
    Attention attention;
    mutable base::Kept<Sizes, Layout> layouts{8};

    explicit Function(const Options& options) : attention(compile(options)) {}
  };

  std::string_view call;  // as errors name it
  SparsePattern pattern;
  std::int64_t heads = 0;
  std::optional<std::int64_t> blocksize;  // none: any length
  bool recompute = false;
  std::shared_ptr<const Function> function;

  [[nodiscard]] Sizes check(const Inputs& inputs) const {
    const auto& [q, k, v] = inputs;
    check_tensor(call, "q", q, heads);
    check_tensor(call, "k", k, heads);
    check_tensor(call, "v", v, heads);
    check_like(call, q, "k", k);
    check_like(call, q, "v", v);
    if (q.size(2) != k.size(2)) {
      fail("{}: q has width {}, k {}; they must be the same", call, q.size(2), k.size(2));
    }
    if (blocksize) api::check_length(call, pattern, q.size(1), *blocksize);
    return {.dtype = q.dtype(),
            .batch = q.size(0),
            .heads = heads,
            .time = q.size(1),
            .dim = q.size(2) / heads,
            .value_dim = v.size(2) / heads};
  }

  // What is given beside q, k and v, and the results: a shape that Attention would report as it sees
  // it, not as it was given.
  template <class Void>
  [[nodiscard]] BasicView<Void> split(std::string_view name, const BasicView<Void>& x,
                                      const ConstView& like) const {
    const Dims shape = {like.size(0), like.size(1), like.size(2)};
    if (x.shape() != shape) {
      fail("{}: {} has shape {}; it must be {}", call, name, to_string(x.shape()),
           to_string(shape));
    }
    return split_heads(x, heads);
  }

  [[nodiscard]] Call with_layout(const Call& given, const Inputs& split_inputs,
                                 const Sizes& sizes) const {
    Call with = given;
    if (with.layout.empty()) {
      with.layout = function->layouts.get(
          sizes, [&] { return function->attention.layout(split_inputs, given); });
    }
    return with;
  }

  // Of inputs that are checked.
  void forward(const ForwardViews& results, const Inputs& inputs, const Sizes& sizes,
               const Call& given) const {
    const Inputs heads_apart = split_heads(inputs, heads);
    function->attention.forward_into(
        {.out = split("out", results.out, inputs.v), .lse = results.lse, .max = results.max},
        heads_apart, with_layout(given, heads_apart, sizes));
  }
  void backward(const BackwardViews& results, const Inputs& inputs, const Sizes& sizes,
                const Saved& saved, const ConstView& dout, const std::optional<ConstView>& dlse,
                const Call& given) const {
    const Inputs heads_apart = split_heads(inputs, heads);
    Saved kept;
    if (!recompute) kept = {.out = split("saved.out", saved.out, inputs.v), .lse = saved.lse};
    function->attention.backward_into({.dq = split("dq", results.dq, inputs.q),
                                       .dk = split("dk", results.dk, inputs.k),
                                       .dv = split("dv", results.dv, inputs.v),
                                       .captures = results.captures},
                                      heads_apart, kept, split("dout", dout, inputs.v), dlse,
                                      with_layout(given, heads_apart, sizes));
  }
};

namespace {

using Made = SparseAttention::Made;

std::shared_ptr<const Made::Function> function_of(const SparsePattern& pattern, bool recompute) {
  using Key = std::pair<SparsePattern, bool>;
  // Never destroyed: destructors of others' statics may still make calls.
  static auto& kept = *new base::Kept<Key, std::shared_ptr<const Made::Function>>(32);
  return kept.get({pattern, recompute}, [&] {
    Options options;
    options.mask = api::mask_of(pattern);
    options.save = recompute ? Save::nothing : Save::lse;
    return std::make_shared<const Made::Function>(options);
  });
}

template <class Arguments>
SparseAttention made_of(std::string_view call, const SparsePattern& pattern, const Arguments& how,
                        std::optional<std::int64_t> blocksize) {
  return SparseAttention(
      std::make_shared<const Made>(Made{.call = call,
                                        .pattern = pattern,
                                        .heads = how.heads,
                                        .blocksize = blocksize,
                                        .recompute = how.recompute,
                                        .function = function_of(pattern, how.recompute)}));
}

}  // namespace

Forward SparseAttention::forward(const Inputs& inputs, const Call& call) const {
  const Made::Sizes sizes = made_->check(inputs);
  const Dims rows = {sizes.batch, sizes.heads, sizes.time};
  const DType compute = sizes.dtype == DType::f64 ? DType::f64 : DType::f32;
  Forward y{.out = Tensor(sizes.dtype, inputs.v.shape()), .lse = {}, .max = {}};
  if (call.lse) y.lse = Tensor(compute, rows);
  if (call.max) y.max = Tensor(compute, rows);
  made_->forward({.out = y.out,
                  .lse = call.lse ? std::optional<View>(y.lse) : std::nullopt,
                  .max = call.max ? std::optional<View>(y.max) : std::nullopt},
                 inputs, sizes, call);
  return y;
}

void SparseAttention::forward_into(const ForwardViews& results, const Inputs& inputs,
                                   const Call& call) const {
  made_->forward(results, inputs, made_->check(inputs), call);
}

Backward SparseAttention::backward(const Inputs& inputs, const Saved& saved, const ConstView& dout,
                                   const std::optional<ConstView>& dlse, const Call& call) const {
  const Made::Sizes sizes = made_->check(inputs);
  Backward g{.dq = Tensor(inputs.q.dtype(), inputs.q.shape()),
             .dk = Tensor(inputs.k.dtype(), inputs.k.shape()),
             .dv = Tensor(inputs.v.dtype(), inputs.v.shape()),
             .captures = {}};
  made_->backward({.dq = g.dq, .dk = g.dk, .dv = g.dv, .captures = {}}, inputs, sizes, saved, dout,
                  dlse, call);
  return g;
}

void SparseAttention::backward_into(const BackwardViews& results, const Inputs& inputs,
                                    const Saved& saved, const ConstView& dout,
                                    const std::optional<ConstView>& dlse, const Call& call) const {
  made_->backward(results, inputs, made_->check(inputs), saved, dout, dlse, call);
}

MaskMod SparseAttention::mask() const { return api::mask_of(made_->pattern); }

const Attention& SparseAttention::attention() const { return made_->function->attention; }

SparseAttention attention_impl(const DenseArguments& how) {
  constexpr std::string_view call = "attention_impl";
  return made_of(call, api::dense_pattern(call, how), how, std::nullopt);
}

SparseAttention blocksparse_attention(const BlocksparseArguments& how) {
  constexpr std::string_view call = "blocksparse_attention";
  return made_of(call, api::block_pattern(call, how), how, how.blocksize);
}

Forward attention_impl(const Inputs& inputs, const DenseArguments& how, const Call& call) {
  return attention_impl(how).forward(inputs, call);
}

Forward blocksparse_attention(const Inputs& inputs, const BlocksparseArguments& how,
                              const Call& call) {
  return blocksparse_attention(how).forward(inputs, call);
}

}  // namespace treadle::sparse_transformer
