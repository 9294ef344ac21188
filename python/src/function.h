// A compiled attention function as Python sees it: mods are text, captures come in a fixed order.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "treadle/attention.h"

namespace treadle::python {

// Name, element type, rank.
struct Declared {
  std::string name;
  DType dtype;
  int rank;
};

// What one call binds, as declared: memory of Python's, and numbers that are kept here.
struct Captures {
  std::vector<ConstView> views;
  std::deque<double> reals;
  std::deque<std::int64_t> integers;
};

struct FunctionOptions {
  std::string score_mod, mask;  // empty: none
  std::vector<Declared> captures;
  std::vector<std::string> gradients;
  std::optional<double> scale;
};

// Threads of a call: that many, or the caller's alone in a process that was forked.
std::shared_ptr<Executor> executor_for(int threads);
void stay_serial();

class Function {
 public:
  explicit Function(const FunctionOptions& options);

  struct Tensors {
    Inputs inputs;
    Captures captures;
  };

  [[nodiscard]] Layout layout(const Tensors& tensors, int threads) const;
  void forward(const Tensors& tensors, const Layout& layout, const ForwardViews& results,
               int threads) const;
  void backward(const Tensors& tensors, const Layout& layout, const Saved& saved,
                const ConstView& dout, const std::optional<ConstView>& dlse,
                const std::vector<View>& results, int threads) const;
  [[nodiscard]] std::string describe() const { return compiled_->describe(); }

 private:
  [[nodiscard]] Call call_of(const Tensors& tensors, const Layout& layout, int threads) const;
  // Whether the mods read this capture: one that is declared may have no effect.
  [[nodiscard]] bool reads(const std::string& name) const;

  FunctionOptions options_;
  std::vector<std::string> read_;     // names of captures
  std::vector<std::string> learned_;  // those of options_.gradients that are read
  std::optional<Attention> compiled_;
};

// Which pairs the mask shows: [batch, heads, queries, keys] of bool. Of a score mod, where it makes
// something else than -inf of zero.
void show_pairs(const std::string& text, bool is_score_mod, const std::vector<Declared>& declared,
                const Captures& captures, const View& result);

// What the blocks of a grid hold: [batch, heads, rows, columns] of u8; 0 nothing, 1 some pairs, 2
// all.
void show_blocks(const std::string& mask, const std::vector<Declared>& declared,
                 const Captures& captures, std::int64_t queries, std::int64_t keys,
                 std::int64_t query_block, std::int64_t key_block, const View& result, int threads);

}  // namespace treadle::python
