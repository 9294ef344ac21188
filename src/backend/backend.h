// A Backend: what runs calls of a compiled attention function.
//
// compile() makes one from a Program; calls check and bind first (api/attention.cpp), so a backend
// sees good input only. To add one: a folder beside cpu and reference that implements this class,
// and a line in api/backends.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/dropout.h"
#include "base/parallel.h"
#include "ir/joint.h"
#include "layout/layout.h"
#include "layout/selection.h"
#include "treadle/attention.h"

namespace treadle::backend {

// What compile() made of a user's functions.
struct Program {
  ir::Graph score_mod;   // simplified; a float
  ir::Graph mask;        // simplified; a bool
  ir::Joint derivative;  // of the score mod by the score and the captures whose gradients are asked
};

// The numbers of a call: checked, and all that does not depend on data.
struct Sizes {
  std::int64_t batch = 0, heads = 0;          // of the queries
  std::int64_t key_batch = 0, key_heads = 0;  // key_batch may be 1
  layout::Range queries, keys;                // positions
  std::int64_t dim = 0, value_dim = 0;
  DType compute = DType::f32;  // of sums: f64 if an input is, else f32
  std::int64_t first_b = 0;    // what mods see as b of the first batch entry

  [[nodiscard]] layout::Extent extent() const { return {batch, heads, queries, keys, first_b}; }
};

// The memory of captures, by the slots of the graphs that read them.
struct Bindings {
  std::vector<ConstView> score_mod, mask, derivative;
};

// Keys of one sequence in pages: then inputs.k and inputs.v are pools, [pages, key heads, page size,
// dim] with last strides 1, and the batch is 1.
struct Pages {
  const std::int32_t* table = nullptr;  // of the sequence: page after page
  std::int64_t stride = 1;              // of the table
  std::int64_t first = 0;               // the position of the first key of the first page
  // [pages, key heads, page size], f32, or null: what each row of the pools is multiplied with.
  const ConstView *k_scales = nullptr, *v_scales = nullptr;
};

// What all calls have. Requests refer to what the caller holds: they are for the time of a call.
struct Request {
  std::string_view name;  // of the call, in messages
  Sizes sizes;
  const Inputs& inputs;
  double scale = 1;
  const Bindings& bound;
  const Layout& layout;  // empty, or one for these sizes and this mask
  base::Workers workers;
  std::span<const double> sinks;               // of each head, or none
  const base::DropoutRule* dropout = nullptr;  // null: nothing is dropped
  const Pages* pages = nullptr;
  bool apart = false;  // no result lies where something is read: it need not be looked for
};

struct ForwardRequest : Request {
  const ForwardViews& results;
};

struct BackwardRequest : Request {
  const Saved& saved;
  const ConstView& dout;
  const std::optional<ConstView>& dlse;
  const BackwardViews& results;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // The part of a call that depends on lengths and on what the mask's captures hold.
  [[nodiscard]] virtual Layout layout(const Sizes& sizes, const Bindings& bound,
                                      const base::Workers& workers) const = 0;
  // The same for keys that the caller listed: the layout holds the selection, and calls with it see
  // what is listed and shown by the mask.
  [[nodiscard]] virtual Layout listed_layout(layout::Selection listed, const Sizes& sizes,
                                             const Bindings& bound,
                                             const base::Workers& workers) const = 0;

  // What may have been written when they throw is in treadle/error.h.
  // Several of one compiled function, with the same workers and bindings, run together. No result of
  // one lies where another reads.
  virtual void forward(std::span<const ForwardRequest> requests) const = 0;
  virtual void backward(const BackwardRequest& request) const = 0;

  // Makes what calls with such sizes and types can need; inputs are empty and have only types.
  virtual void prepare(const Request& request, bool backward) const = 0;

  // Bytes of working memory that a thread needs at most, and that a call keeps for all of them.
  [[nodiscard]] virtual std::int64_t forward_scratch(const Sizes& sizes) const = 0;
  [[nodiscard]] virtual std::int64_t forward_kept(const Sizes&) const { return 0; }
  [[nodiscard]] virtual std::int64_t backward_scratch(const Sizes& sizes) const = 0;
};

}  // namespace treadle::backend
