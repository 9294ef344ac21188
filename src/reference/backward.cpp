// The gradients of attention, one query after the other.
//
// In: a problem, what the forward pass left, dout. Out: dq, dk, dv and the gradients of captured
// buffers. Read HeadBackward::query() first.
//
//   P = exp(S - lse)   dV = (f P)^T dO   dP = f (dO V^T)   dS = P (dP - rowsum(O dO) + dlse)
//   f = 1 without dropout
//   (dS0, captured) = derivative of the score mod at dS   dQ = scale dS0 K   dK = scale dS0^T Q
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/copy.h"
#include "base/element.h"
#include "base/error.h"
#include "base/parallel.h"
#include "reference/attention.h"
#include "reference/rows.h"

namespace treadle::reference {
namespace {

// Gradients of captured buffers. They add up in fp64: one scalar may take part in every pair.
class CapturedGradients {
 public:
  explicit CapturedGradients(const Derivative& derivative) {
    for (const ConstView& memory : derivative.wanted_memory)
      sums_.emplace_back(DType::f64, memory.shape());
    for (const ir::Contribution& c : derivative.joint.contributions) {
      const auto slot = std::ranges::find(derivative.wanted, c.slot.name, &ir::Slot::name);
      if (slot == derivative.wanted.end())
        base::internal_error("backward: no memory for {}", c.slot.name);
      target_.push_back(static_cast<std::size_t>(slot - derivative.wanted.begin()));
    }
  }

  template <class F>
  void add(const ir::Joint& joint, const ir::Interpreter<F>& run, std::size_t point) {
    for (std::size_t i = 0; i < joint.contributions.size(); ++i) {
      const ir::Contribution& c = joint.contributions[i];
      if (run.booleans(c.when)[point] == 0) continue;
      const View sum = sums_[target_[i]];
      std::int64_t offset = 0;
      for (int axis = 0; axis < sum.rank(); ++axis) {
        // Inside the buffer, or the score that was read with this index would have been refused.
        const std::int64_t index = run.integers(c.index[static_cast<std::size_t>(axis)])[point];
        if (index < 0 || index >= sum.size(axis))
          base::internal_error("backward: {} at {}", c.slot.name, index);
        offset += index * sum.stride(axis);
      }
      static_cast<double*>(sum.data())[offset] += run.reals(c.value)[point];
    }
  }

  std::vector<Tensor> rounded(const std::vector<ConstView>& like) const {
    std::vector<Tensor> result;
    for (std::size_t i = 0; i < sums_.size(); ++i)
      result.push_back(base::convert(sums_[i], like[i].dtype()));
    return result;
  }

 private:
  std::vector<Tensor> sums_;
  std::vector<std::size_t> target_;  // by contribution
};

// All that the backward pass of one (batch, head) reads, contiguous.
template <class F>
struct Head {
  std::vector<F> q, k, v, kt, vt, out, dout, lse, dlse;

  Head(const Problem& problem, const Incoming& in, const Sizes& size, std::int64_t b,
       std::int64_t h)
      : q(head_rows<F>(problem.q, b, h)),
        k(head_rows<F>(problem.k, size.key_batch_of(b), h / size.group())),
        v(head_rows<F>(problem.v, size.key_batch_of(b), h / size.group())),
        kt(transposed<F>(k, size.keys, size.dim)),
        vt(transposed<F>(v, size.keys, size.value_dim)),
        out(head_rows<F>(in.out, b, h)),
        dout(head_rows<F>(in.dout, b, h)),
        lse(row_values(in.lse, b, h)),
        dlse(in.dlse ? row_values(*in.dlse, b, h) : std::vector<F>(lse.size())) {}

  static std::vector<F> row_values(const ConstView& view, std::int64_t b, std::int64_t h) {
    std::vector<F> values(static_cast<std::size_t>(view.size(2)));
    base::visit_dtype(view.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (std::size_t m = 0; m < values.size(); ++m) {
        const std::int64_t at =
            b * view.stride(0) + h * view.stride(1) + static_cast<std::int64_t>(m) * view.stride(2);
        values[m] = static_cast<F>(base::load_as<T>(view.data(), at));
      }
    });
    return values;
  }
};

// to += factor * from
template <class F>
void add_scaled(F* to, F factor, const F* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

template <class F>
class HeadBackward {
 public:
  HeadBackward(const Problem& problem, const Derivative& derivative, const Sizes& size,
               CapturedGradients& captured)
      : size_(size),
        scale_(static_cast<F>(problem.scale)),
        dropout_(problem.dropout),
        first_b_(problem.first_b),
        first_q_(problem.first_q),
        joint_(derivative.joint),
        row_(problem, size.keys),
        derive_(derivative.joint.graph, derivative.memory),
        captured_(captured),
        plain_(static_cast<std::size_t>(size.keys)),
        p_(plain_.size()),
        dp_(plain_.size()),
        ds_(plain_.size()) {}

  // Adds what query m contributes to dk and dv, and writes its dq.
  void query(const Head<F>& head, std::int64_t b, std::int64_t h, std::int64_t m, F* dq, F* dk,
             F* dv) {
    const F* q = head.q.data() + m * size_.dim;
    const F* out = head.out.data() + m * size_.value_dim;
    const F* dout = head.dout.data() + m * size_.value_dim;
    const F lse = head.lse[static_cast<std::size_t>(m)];
    row_times<F>({q, static_cast<std::size_t>(size_.dim)}, head.kt, plain_);
    for (F& s : plain_) s *= scale_;
    const std::int64_t seen_b = first_b_ + b, seen_q = first_q_ + m;
    row_.compute(plain_, seen_b, h, seen_q);
    if (lse == -std::numeric_limits<F>::infinity()) return;  // sees nothing

    F delta = 0;
    for (std::int64_t d = 0; d < size_.value_dim; ++d) delta += out[d] * dout[d];
    row_times<F>({dout, static_cast<std::size_t>(size_.value_dim)}, head.vt, dp_);
    for (std::size_t n = 0; n < p_.size(); ++n) {
      const bool visible = row_.visible()[n] != 0;
      const F p = visible ? std::exp(row_.scores()[n] - lse) : F{0};
      const auto factor =
          visible ? static_cast<F>(row_.dropout_factor(dropout_, seen_b, h, seen_q, n)) : F{0};
      const F dp = factor * dp_[n] - delta + head.dlse[static_cast<std::size_t>(m)];
      ds_[n] = visible ? p * dp : F{0};
      p_[n] = factor * p;
    }
    derive_({.score = plain_,
             .grad = ds_,
             .b = {&seen_b, 1},
             .h = {&h, 1},
             .q = {&seen_q, 1},
             .kv = row_.keys()},
            size_.keys);
    const std::span<const F> dscore = derive_.reals(0);
    for (std::int64_t n = 0; n < size_.keys; ++n) {
      const auto at = static_cast<std::size_t>(n);
      if (row_.visible()[at] == 0)
        continue;  // contributes nothing, even where a derivative is inf or NaN
      const F ds0 = scale_ * dscore[at];
      add_scaled(dq, ds0, head.k.data() + n * size_.dim, size_.dim);
      add_scaled(dk + n * size_.dim, ds0, q, size_.dim);
      add_scaled(dv + n * size_.value_dim, p_[at], dout, size_.value_dim);
      captured_.add(joint_, derive_, at);
    }
  }

 private:
  const Sizes& size_;
  F scale_;
  const base::DropoutRule* dropout_;
  std::int64_t first_b_, first_q_;
  const ir::Joint& joint_;
  ScoreRow<F> row_;
  ir::Interpreter<F> derive_;
  CapturedGradients& captured_;
  std::vector<F> plain_, p_, dp_, ds_;  // p_ with what dropout makes of it
};

template <class F>
Backward run(const Problem& problem, const Incoming& incoming, const Derivative& derivative,
             const base::Workers& workers) {
  const Sizes size(problem);
  Tensor dq(dtype_of<F>, problem.q.shape());
  Tensor dk(dtype_of<F>, problem.k.shape());
  Tensor dv(dtype_of<F>, problem.v.shape());
  F* dq_data = dq.template data<F>().data();
  F* dk_data = dk.template data<F>().data();
  F* dv_data = dv.template data<F>().data();
  CapturedGradients captured(derivative);

  // A key head owns its dk and dv; all batches and query heads that read it come in order.
  const auto key_head_task = [&](std::int64_t key_head) {
    HeadBackward<F> work(problem, derivative, size, captured);
    for (std::int64_t b = 0; b < size.batch; ++b) {
      const std::int64_t key_row = (size.key_batch_of(b) * size.key_heads + key_head) * size.keys;
      for (std::int64_t h = key_head * size.group(); h < (key_head + 1) * size.group(); ++h) {
        const Head<F> head(problem, incoming, size, b, h);
        for (std::int64_t m = 0; m < size.queries; ++m) {
          workers.check();
          const std::int64_t query_row = (b * size.heads + h) * size.queries + m;
          work.query(head, b, h, m, dq_data + query_row * size.dim, dk_data + key_row * size.dim,
                     dv_data + key_row * size.value_dim);
        }
      }
    }
  };
  if (derivative.joint.contributions.empty()) {
    base::parallel_for(workers, size.key_heads, key_head_task);
  } else {
    // Captured buffers may be shared by all heads: one after the other, so that sums have one
    // order.
    for (std::int64_t key_head = 0; key_head < size.key_heads; ++key_head) key_head_task(key_head);
  }

  const auto rounded = [](Tensor& exact, DType type) {
    return type == dtype_of<F> ? std::move(exact) : base::convert(exact, type);
  };
  return {rounded(dq, problem.q.dtype()), rounded(dk, problem.k.dtype()),
          rounded(dv, problem.v.dtype()), captured.rounded(derivative.wanted_memory)};
}

}  // namespace

Backward backward(const Problem& problem, const Incoming& incoming, const Derivative& derivative,
                  const base::Workers& workers) {
  const DType type = compute_type(problem.q.dtype(), problem.k.dtype(), problem.v.dtype());
  return type == DType::f64 ? run<double>(problem, incoming, derivative, workers)
                            : run<float>(problem, incoming, derivative, workers);
}

}  // namespace treadle::reference
