// The decode kernel's rows have the bits of the forward's.
#include "plan/decode_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "api/stages.h"
#include "backend/cpu/call_facts.h"
#include "base/element.h"
#include "ir/exchange.h"
#include "jit/engine.h"
#include "plain_attention.h"
#include "plan/capture_descriptors.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

struct Shape {
  DType type = DType::f32;
  std::int64_t heads = 1, queries = 1, keys = 1, dim = 64, value_dim = 64;
};

// Rows of one key head by the decode kernel; there are fewer keys than a chunk has.
template <class F>
Tensor decode(const Options& options, const Shape& s, const Tensor& q, const Tensor& k,
              const Tensor& v) {
  static jit::Engine engine{jit::EngineOptions{}};
  const api::Stages stages = api::stages_of(options);
  const backend::cpu::Forms forms = backend::cpu::forms_of(stages.program);
  const layout::Extent turned{1, s.heads, s.keys, s.queries};
  const plan::Target target = plan::host_target();
  const DType compute = s.type == DType::f64 ? DType::f64 : DType::f32;
  const plan::RowBlocks blocks(s.heads * s.queries);
  plan::DecodeKernelSpec spec{
      .target = target,
      .compute = compute,
      .key_type = s.type,
      .value_type = s.type,
      .dim = s.dim,
      .value_dim = s.value_dim,
      .key_block = plan::decode_block(target, compute, s.type, s.dim, blocks),
      .rows = blocks,
      .score = forms.score,
      .masked = !forms.sees_all};
  const auto memory_of = [&](const ir::Graph& graph) {
    return api::memory_of(graph.slots(), stages.captures);
  };
  std::vector<std::int64_t> score_captures, mask_captures;
  if (forms.score.kind != plan::ScoreForm::Kind::plain) {
    spec.score.graph = ir::exchanged(forms.score.graph);
    spec.score_facts = plan::find_facts(spec.score.graph, memory_of(spec.score.graph), turned, {});
    score_captures = plan::capture_descriptors(memory_of(spec.score.graph));
  }
  if (spec.masked) {
    spec.mask = ir::exchanged(stages.program.mask);
    spec.mask_facts = plan::find_facts(spec.mask, memory_of(spec.mask), turned, {});
    mask_captures = plan::capture_descriptors(memory_of(spec.mask));
  }
  const auto kernel = engine.get(spec);
  const std::int64_t rows = s.heads * s.queries;
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(s.dim)));
  const F factor = static_cast<F>(scale * forms.score.factor());
  std::vector<F> queries, sums(static_cast<std::size_t>(rows * s.value_dim)),
      weight(static_cast<std::size_t>(rows)),
      maximum(static_cast<std::size_t>(rows), -std::numeric_limits<F>::infinity()),
      scores(static_cast<std::size_t>(rows * spec.key_block)),
      turned_keys(static_cast<std::size_t>(spec.key_block * s.dim)),
      wide_values(static_cast<std::size_t>(spec.key_block * s.value_dim));
  std::vector<std::int32_t> positions, heads;
  const std::vector<std::int32_t> entries(static_cast<std::size_t>(rows));
  const test::Array plain{ConstView(q)};
  for (std::int64_t r = 0; r < rows; ++r) {
    heads.push_back(static_cast<std::int32_t>(r / s.queries));
    positions.push_back(static_cast<std::int32_t>(r % s.queries));
    for (std::int64_t d = 0; d < s.dim; ++d)
      queries.push_back(static_cast<F>(plain.data[static_cast<std::size_t>(r * s.dim + d)]) *
                        factor);
  }
  const auto bytes = static_cast<std::int64_t>(size_of(s.type));
  for (std::int64_t first = 0; first < s.keys; first += spec.key_block) {
    const std::int64_t count = std::min(spec.key_block, s.keys - first);
    std::vector<std::int32_t> kv(static_cast<std::size_t>(spec.key_block),
                                 static_cast<std::int32_t>(first + count - 1));
    std::iota(kv.begin(), kv.begin() + count, static_cast<std::int32_t>(first));
    const auto rows_of = [&](const Tensor& of, std::int64_t width, std::int64_t key) {
      return static_cast<const std::byte*>(ConstView(of).data()) + key * width * bytes;
    };
    const std::int64_t lanes = spec.target.lanes(spec.compute), left = count % lanes;
    std::vector<plan::KeyGroup> groups;
    for (std::int64_t key = first; key < first + count; key += lanes)
      groups.push_back({rows_of(k, s.dim, key), s.dim * bytes, rows_of(v, s.value_dim, key),
                        s.value_dim * bytes});
    // The last keys, and NaN in the lanes after them.
    std::vector<std::byte> last(static_cast<std::size_t>(lanes * s.dim * bytes), std::byte{0xff});
    if (left > 0) {
      std::memcpy(last.data(), groups.back().keys, static_cast<std::size_t>(left * s.dim * bytes));
      groups.back().keys = last.data();
    }
    kernel({.groups = groups.data(),
            .next = groups.data(),
            .key_scales = nullptr,
            .value_scales = nullptr,
            .key_positions = kv.data(),
            .count = count,
            .queries = queries.data(),
            .positions = positions.data(),
            .heads = heads.data(),
            .entries = entries.data(),
            .rows = rows,
            .score_captures = score_captures.data(),
            .mask_captures = mask_captures.data(),
            .frame = nullptr,
            .turned = turned_keys.data(),
            .values = wide_values.data(),
            .scores = scores.data(),
            .sums = sums.data(),
            .maximum = maximum.data(),
            .weight = weight.data()});
  }
  Tensor out(spec.compute, {1, s.heads, s.queries, s.value_dim});
  auto* to = out.data<F>().data();
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto row = static_cast<std::size_t>(r);
    const F by = weight[row] == 0 ? F{1} : F{1} / weight[row];
    for (std::int64_t d = 0; d < s.value_dim; ++d)
      to[r * s.value_dim + d] = sums[static_cast<std::size_t>(r * s.value_dim + d)] * by;
  }
  return out;
}

// The first rows of every head, as many as both have.
void copy_rows(const Tensor& from, Tensor& to) {
  const std::int64_t rows = std::min(from.size(2), to.size(2));
  const auto row = static_cast<std::int64_t>(size_of(from.dtype())) * from.size(3);
  for (std::int64_t h = 0; h < from.size(1); ++h) {
    std::memcpy(static_cast<std::byte*>(View(to).data()) + h * to.size(2) * row,
                static_cast<const std::byte*>(ConstView(from).data()) + h * from.size(2) * row,
                static_cast<std::size_t>(rows * row));
  }
}

void expect_same_bits(const Options& options, const Shape& s) {
  const Tensor q = test::random_tensor(1, s.type, {1, s.heads, s.queries, s.dim});
  const Tensor k = test::random_tensor(2, s.type, {1, 1, s.keys, s.dim});
  const Tensor v = test::random_tensor(3, s.type, {1, 1, s.keys, s.value_dim});
  // With more queries than decode takes, so that the forward's kernels give the rows.
  const std::int64_t more = s.queries + 40;
  Tensor many = test::random_tensor(1, s.type, {1, s.heads, more, s.dim});
  copy_rows(q, many);
  const Tensor all = compile(options).forward({many, k, v}).out;
  Tensor expected(s.type, {1, s.heads, s.queries, s.value_dim});
  copy_rows(all, expected);
  const Tensor got = s.type == DType::f64 ? decode<double>(options, s, q, k, v)
                                          : decode<float>(options, s, q, k, v);
  const test::Array want{ConstView(expected)}, have{ConstView(got)};
  for (std::size_t i = 0; i < want.data.size(); ++i) {
    double rounded = have.data[i];
    if (s.type == DType::bf16 || s.type == DType::f16) {
      Tensor one(s.type, {1});
      base::visit_dtype(s.type, [&](auto element) {
        base::store_as<typename decltype(element)::type>(View(one).data(), 0, rounded);
      });
      rounded = test::Array{ConstView(one)}.data[0];
    }
    ASSERT_EQ(want.data[i], rounded) << "element " << i;
  }
}

TEST(DecodeKernel, HasTheBitsOfTheForward) {
  Options alibi, masked, biased;
  const Tensor slopes = test::random_tensor(5, DType::f32, {8});
  const Tensor bias = test::random_tensor(6, DType::f32, {8, 64, 400});
  const Tensor ids = [] {
    Tensor t(DType::i32, {400});
    for (int i = 0; i < 400; ++i) t.data<std::int32_t>()[static_cast<std::size_t>(i)] = i / 70;
    return t;
  }();
  alibi.score_mod = parse("score + slopes[h] * (kv - q)", {{"slopes", slopes}});
  biased.score_mod = parse("tanh(score / 4) * 4 + bias[h, q, kv]", {{"bias", bias}});
  masked.mask = parse("q + 200 >= kv && (ids[kv] != 2 || kv > 170)", {{"ids", ids}});
  Options plain;
  for (Options* options : {&plain, &alibi, &masked, &biased}) {
    for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      for (const std::int64_t keys : {1, 7, 16, 33, 300}) {
        for (const auto& [heads, queries] :
             {std::pair(1, 1), std::pair(4, 1), std::pair(3, 2), std::pair(3, 5)}) {
          for (const auto& [dim, value_dim] :
               {std::pair(40, 24), std::pair(64, 64), std::pair(5, 130), std::pair(116, 64)}) {
            // Each is a kernel. Those of bf16 take words of two numbers in wide rows.
            const bool words = type == DType::bf16 && (dim == 64 || dim == 116);
            if (type == DType::f32 ? dim == 116 : dim != 40 && !words) continue;
            SCOPED_TRACE(testing::Message()
                         << name_of(type) << " " << keys << " keys, " << heads << " heads, "
                         << queries << " queries, dims " << dim << " " << value_dim);
            expect_same_bits(*options, {type, heads, queries, keys, dim, value_dim});
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace treadle
