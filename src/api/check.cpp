// In: what a caller gave. Out: sizes and bindings that later stages need not doubt.
#include "api/check.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "api/compiled.h"
#include "backend/held_layout.h"
#include "base/compute_type.h"
#include "base/error.h"

namespace treadle::api {
namespace {

using base::fail;

constexpr std::int64_t longest = std::numeric_limits<std::int32_t>::max();

std::string text_of(std::span<const std::int64_t> shape) {
  return to_string(Dims(shape.begin(), shape.end()));
}

void check_one(std::string_view call, std::string_view name, const TensorShape& spec) {
  if (spec.shape.size() != 4) {
    fail("{}: {} has shape {}; it must be [batch, heads, length, dim]", call, name,
         text_of(spec.shape));
  }
  for (const std::int64_t length : spec.shape) {
    if (length < 0 || length > longest) {
      fail("{}: {} has shape {}; lengths are between 0 and {}", call, name, text_of(spec.shape),
           longest);
    }
  }
  if (spec.shape[3] == 0)
    fail("{}: {} has shape {}; its last length, dim, must be at least 1", call, name,
         text_of(spec.shape));
}

void check_query_type(std::string_view call, DType q) {
  if (!base::holds_gradients(q))
    fail("{}: q holds {}; it must hold f64, f32, bf16 or f16", call, name_of(q));
}

void check_key_type(std::string_view call, std::string_view name, DType type) {
  if (!base::holds_keys(type)) {
    fail("{}: {} holds {}; it must hold f64, f32, bf16, f16, e4m3, e5m2 or i8", call, name,
         name_of(type));
  }
}

// Sufficient and, for the views people make, necessary: walking from the smallest stride up, each
// axis must step over everything the smaller ones reach.
bool elements_share_memory(const View& view) {
  std::array<std::pair<std::int64_t, std::int64_t>, 4> four;  // step, length
  std::vector<std::pair<std::int64_t, std::int64_t>> many(
      view.rank() > 4 ? static_cast<std::size_t>(view.rank()) : 0);
  std::span axes = many.empty() ? std::span(four) : std::span(many);
  std::size_t count = 0;
  for (int axis = 0; axis < view.rank(); ++axis) {
    if (view.size(axis) == 0) return false;
    if (view.size(axis) > 1) axes[count++] = {std::abs(view.stride(axis)), view.size(axis)};
  }
  axes = axes.first(count);
  std::ranges::sort(axes);
  std::int64_t reach = 0;
  for (const auto& [step, length] : axes) {
    if (step <= reach) return true;
    reach += step * (length - 1);
  }
  return false;
}

}  // namespace

backend::Sizes check_inputs(std::string_view call, const TensorShape& q, const TensorShape& k,
                            const TensorShape& v) {
  check_one(call, "q", q);
  check_one(call, "k", k);
  check_one(call, "v", v);
  check_query_type(call, q.dtype);
  check_key_type(call, "k", k.dtype);
  check_key_type(call, "v", v.dtype);
  const backend::Sizes e{.batch = q.shape[0],
                         .heads = q.shape[1],
                         .key_batch = k.shape[0],
                         .key_heads = k.shape[1],
                         .queries = q.shape[2],
                         .keys = k.shape[2],
                         .dim = q.shape[3],
                         .value_dim = v.shape[3],
                         .compute = base::compute_type(q.dtype, k.dtype, v.dtype)};
  if (k.shape[3] != e.dim)
    fail("{}: queries have dim {}, keys {}; they must be equal", call, e.dim, k.shape[3]);
  if (v.shape[0] != e.key_batch) {
    fail("{}: keys have batch {}, values {}; they must be equal", call, e.key_batch, v.shape[0]);
  }
  if (v.shape[1] != e.key_heads)
    fail("{}: keys have {} heads, values {}; they must be equal", call, e.key_heads, v.shape[1]);
  if (v.shape[2] != k.shape[2])
    fail("{}: there are {} keys and {} values; they must be equal", call, k.shape[2], v.shape[2]);
  if (e.key_batch != e.batch && e.key_batch != 1) {
    fail("{}: queries have batch {}, keys {}; they must be equal, or 1 for the keys", call, e.batch,
         e.key_batch);
  }
  const bool fits = e.key_heads == 0 ? e.heads == 0 : e.heads % e.key_heads == 0;
  if (!fits) {
    fail("{}: queries have {} heads, keys {}; {} is not a multiple of {}", call, e.heads,
         e.key_heads, e.heads, e.key_heads);
  }
  return e;
}

void check_differentiable(std::string_view call, DType k, DType v) {
  const auto check = [call](std::string_view name, DType type) {
    if (!base::holds_gradients(type)) {
      fail("{}: {} holds {}; gradients need f64, f32, bf16 or f16", call, name, name_of(type));
    }
  };
  check("k", k);
  check("v", v);
}

void check_tensor(std::string_view call, std::string_view name, const TensorShape& given,
                  const TensorShape& wanted) {
  if (given.dtype != wanted.dtype) {
    fail("{}: {} holds {}; it must hold {}", call, name, name_of(given.dtype),
         name_of(wanted.dtype));
  }
  if (!std::ranges::equal(given.shape, wanted.shape)) {
    fail("{}: {} has shape {}; it must be {}", call, name, text_of(given.shape),
         text_of(wanted.shape));
  }
}

void check_result(std::string_view call, std::string_view name, const View& view,
                  const TensorShape& wanted) {
  check_tensor(call, name, view, wanted);
  if (elements_share_memory(view)) {
    fail("{}: {} has shape {} and strides {}; elements of a result must not share memory", call,
         name, to_string(view.shape()), to_string(view.strides()));
  }
}

void check_layout(std::string_view call, const base::Hash& mask, const backend::Sizes& sizes,
                  const Layout& layout) {
  if (layout.empty()) return;
  const layout::Extent& made = layout.held()->extent();
  const layout::Extent wanted = sizes.extent();
  const auto counts = [](const layout::Extent& e) {
    return std::tuple(e.batch, e.heads, e.queries.count(), e.keys.count());
  };
  if (counts(made) == counts(wanted) && made != wanted) {
    fail(
        "{}: the layout is for queries from position {} and keys from {}, the call's begin at {} "
        "and {}; they must be equal",
        call, made.queries.begin, made.keys.begin, wanted.queries.begin, wanted.keys.begin);
  }
  if (made != wanted) {
    fail(
        "{}: the layout is for batch {}, {} heads, {} queries and {} keys, the inputs have batch "
        "{}, {} heads, {} queries and {} keys; they must be equal",
        call, made.batch, made.heads, made.queries.count(), made.keys.count(), wanted.batch,
        wanted.heads, wanted.queries.count(), wanted.keys.count());
  }
  if (layout.held()->mask != mask)
    fail("{}: the layout was made for another mask; Attention::layout makes the one it needs",
         call);
}

std::vector<const Capture*> bind(std::string_view call, const std::vector<Capture>& compiled,
                                 const std::vector<Capture>& given) {
  std::vector<const Capture*> bound;
  bind(call, compiled, given, bound);
  return bound;
}

void bind(std::string_view call, const std::vector<Capture>& compiled,
          const std::vector<Capture>& given, std::vector<const Capture*>& bound) {
  bound.clear();
  for (const Capture& capture : compiled) bound.push_back(&capture);
  for (const Capture& capture : given) {
    const auto known = std::ranges::find(compiled, capture.name(), &Capture::name);
    if (known == compiled.end()) {
      std::string names;
      for (const Capture& c : compiled) names += (names.empty() ? "" : ", ") + c.name();
      fail("{}: no capture is called \"{}\"; there {}", call, capture.name(),
           names.empty() ? "are none" : "are " + names);
    }
    const auto at = static_cast<std::size_t>(known - compiled.begin());
    if (bound[at] != &*known) fail("{}: capture \"{}\" is bound twice", call, capture.name());
    if (capture.view().dtype() != known->view().dtype() ||
        capture.view().rank() != known->view().rank()) {
      fail(
          "{}: capture \"{}\" was compiled as {} of rank {}, the call binds {} of shape {}; a new "
          "length needs no new compile, a new type or rank does",
          call, capture.name(), name_of(known->view().dtype()), known->view().rank(),
          name_of(capture.view().dtype()), to_string(capture.view().shape()));
    }
    bound[at] = &capture;
  }
}

void check_captures(const Attention::Compiled& compiled, const std::vector<CaptureView>& views,
                    const std::vector<const Capture*>& bound) {
  for (const CaptureView& given : views) {
    if (std::ranges::find(compiled.gradients, given.name) == compiled.gradients.end()) {
      fail(
          "backward: a view for the gradient of \"{}\" was passed, but Options::gradients does not "
          "name it",
          given.name);
    }
    if (std::ranges::count(views, given.name, &CaptureView::name) > 1)
      fail("backward: two views for the gradient of \"{}\" are given", given.name);
  }
  for (const std::string& name : compiled.gradients) {
    const auto found = std::ranges::find(views, name, &CaptureView::name);
    if (found == views.end()) fail("backward: no view for the gradient of \"{}\" is given", name);
    const auto capture = std::ranges::find(bound, name, &Capture::name);
    check_result("backward", "the gradient of \"" + name + "\"", found->gradient,
                 (*capture)->view());
  }
}

}  // namespace treadle::api
