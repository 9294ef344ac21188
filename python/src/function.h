// A compiled attention function as Python sees it: mods are text, captures come in a fixed order.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include "captures.h"
#include "pace.h"
#include "treadle/attention.h"

namespace treadle::python {

struct FunctionOptions {
  std::string score_mod, mask;  // empty: none
  std::vector<Declared> captures;
  std::vector<std::string> gradients;
  std::optional<double> scale;
  std::optional<std::int64_t> most_nodes;  // Options's own if not given
};

class Function {
 public:
  // Throws treadle::Error for a mistake in a text.
  explicit Function(const FunctionOptions& options);

  struct Tensors {
    std::variant<Inputs, Sequences> inputs;
    BoundCaptures captures;
    std::optional<ConstView> sinks;
    std::vector<std::int64_t> q_offsets, kv_offsets;
    Dropout dropout;
  };

  // Who works on a call: so many threads (0: all cores), until somebody asks to stop.
  struct Crew {
    int threads = 0;
    std::stop_token stop;
  };

  // Of inputs that are no sequences; those make their own.
  [[nodiscard]] Layout layout(const Tensors& tensors, const Crew& crew) const;
  // Of the keys that are listed and that the mask shows.
  [[nodiscard]] Layout layout(const KeyLists& keys, const Tensors& tensors, const Crew& crew) const;
  void forward(const Tensors& tensors, const Layout& layout, const ForwardViews& results,
               const Crew& crew) const;
  // Results are dq, dk, dv and those of the captures with gradients, all contiguous from there on, and
  // at last that of the sinks, if there are any.
  void backward(const Tensors& tensors, const Layout& layout, const Saved& saved,
                const ConstView& dout, const std::optional<ConstView>& dlse,
                const std::vector<View>& results, const Crew& crew) const;

  // What a call of the library takes besides inputs and results.
  [[nodiscard]] Call call_of(const Tensors& tensors, const Layout& layout, const Crew& crew) const;
  // The views that backward() names so, and what it leaves to do: gradients on which nothing depends.
  [[nodiscard]] BackwardViews views_of(const Tensors& tensors,
                                       const std::vector<View>& results) const;
  void clear_unread(const std::vector<View>& results) const;
  [[nodiscard]] const Attention& attention() const { return attention_; }

  // How long calls take.
  [[nodiscard]] Pace& pace() const { return pace_; }

  // The mods as text, simplified; empty where there is none.
  [[nodiscard]] std::string score_mod() const;
  [[nodiscard]] std::string mask() const;

 private:
  // Whether the mods read this capture: one that is declared may have no effect.
  [[nodiscard]] bool reads(const std::string& name) const;

  FunctionOptions options_;
  Attention attention_;
  std::vector<std::string> read_;  // names of captures
  mutable Pace pace_;
};

}  // namespace treadle::python
