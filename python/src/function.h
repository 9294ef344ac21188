// A compiled attention function as Python sees it: mods are text, captures come in a fixed order.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "captures.h"
#include "treadle/attention.h"

namespace treadle::python {

struct FunctionOptions {
  std::string score_mod, mask;  // empty: none
  std::vector<Declared> captures;
  std::vector<std::string> gradients;
  std::optional<double> scale;
};

class Function {
 public:
  // Throws treadle::Error for a mistake in a text.
  explicit Function(const FunctionOptions& options);

  struct Tensors {
    Inputs inputs;
    BoundCaptures captures;
  };

  [[nodiscard]] Layout layout(const Tensors& tensors, int threads) const;
  // Of the keys that are listed and that the mask shows.
  [[nodiscard]] Layout layout(const KeyLists& keys, const Tensors& tensors, int threads) const;
  void forward(const Tensors& tensors, const Layout& layout, const ForwardViews& results,
               int threads) const;
  // Results are dq, dk, dv and those of the captures with gradients, all contiguous from there on.
  void backward(const Tensors& tensors, const Layout& layout, const Saved& saved,
                const ConstView& dout, const std::optional<ConstView>& dlse,
                const std::vector<View>& results, int threads) const;

  // The mods as text, simplified; empty where there is none.
  [[nodiscard]] std::string score_mod() const;
  [[nodiscard]] std::string mask() const;

 private:
  [[nodiscard]] Call call_of(const Tensors& tensors, const Layout& layout, int threads) const;

  // Whether the mods read this capture: one that is declared may have no effect.
  [[nodiscard]] bool reads(const std::string& name) const;

  FunctionOptions options_;
  Attention attention_;
  std::vector<std::string> read_;  // names of captures
};

}  // namespace treadle::python
