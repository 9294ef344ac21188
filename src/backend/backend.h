// A Backend: what runs calls of a compiled attention function.
//
// compile() makes one from a Program; calls check and bind first (api/attention.cpp), so a backend
// sees good input only. To add one: a folder beside cpu and reference that implements this class,
// and a line in api/backends.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dropout.h"
#include "base/error.h"
#include "base/parallel.h"
#include "ir/joint.h"
#include "layout/layout.h"
#include "layout/selection.h"
#include "treadle/attention.h"

namespace treadle::run {
class KeySource;
struct BackwardShare;
struct StateViews;
enum class Nonfinite : std::uint8_t;
}  // namespace treadle::run

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
  std::int64_t first_h = 0;    // and as h of the first head

  [[nodiscard]] layout::Extent extent() const {
    return {batch, heads, queries, keys, first_b, first_h};
  }
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
  // Keys and values, if they are not inputs.k and inputs.v, which then have their types alone.
  const run::KeySource* keys = nullptr;
};

struct ForwardRequest : Request {
  const ForwardViews& results;
  // If given, rows are left there as states and the results are not written (run/row_states.h); of a
  // layout of one term.
  const run::StateViews* states = nullptr;
};

struct BackwardRequest : Request {
  const Saved& saved;
  const ConstView& dout;
  const std::optional<ConstView>& dlse;
  const BackwardViews& results;
  // If only some of the queries are here: run/backward_share.h. Then dk and dv are not written, and
  // captures hold what is handed over in no other way.
  const run::BackwardShare* share = nullptr;
  const ConstView* delta = nullptr;  // run::BackwardProblem::delta
};

// What has become of a backward call, or of a part of one.
enum class BackwardEnd : std::uint8_t {
  done,
  // There is a NaN, which may have come from a hidden pair: to be computed again, exactly.
  unclear,
};

// How calls of some sizes go over their queries: pass by pass, one for each term of the mask.
class QueryPasses {
 public:
  virtual ~QueryPasses() = default;

  [[nodiscard]] virtual std::size_t count() const = 0;
  [[nodiscard]] virtual layout::Tiles tiles(std::size_t pass) const = 0;
  // Of the leaves of sums over queries: run/sum_tree.h.
  [[nodiscard]] virtual std::int64_t tiles_per_leaf(std::size_t pass) const = 0;
  // The part of a layout that says what some of the tiles look at, of some batch entries and heads,
  // as a part of a call takes it.
  [[nodiscard]] virtual Layout build(std::size_t pass, const layout::Extent& extent,
                                     const layout::Tiles& some,
                                     const base::Workers& workers) const = 0;
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

  // The machine that kernels are made for, and by which build, as far as results' bits depend on it.
  [[nodiscard]] virtual std::string machine() const { return "any"; }

  // For calls that are spread over machines. What is given outlives the passes; null if this backend
  // has none, and then it runs no parts either.
  [[nodiscard]] virtual std::unique_ptr<QueryPasses> passes(const Sizes&, const Bindings&,
                                                            const base::Workers&) const {
    return nullptr;
  }
  // A part of a backward call, as its share says. If one part is unclear, all are run again, exactly.
  virtual BackwardEnd backward_part(const BackwardRequest&, run::Nonfinite) const {
    base::internal_error("this backend runs no parts of calls");
  }

  // Makes what calls with such sizes and types can need; inputs are empty and have only types.
  virtual void prepare(const Request& request, bool backward) const = 0;

  // Bytes of working memory that a thread needs at most, and that a call keeps for all of them.
  [[nodiscard]] virtual std::int64_t forward_scratch(const Sizes& sizes) const = 0;
  [[nodiscard]] virtual std::int64_t forward_kept(const Sizes&) const { return 0; }
  [[nodiscard]] virtual std::int64_t backward_scratch(const Sizes& sizes) const = 0;
};

}  // namespace treadle::backend
