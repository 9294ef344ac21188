// Mods: what to do with a score, and which (query, key) pairs may see each other.
//
//   ScoreMod soft_cap = [](Score s, Index, Index, Index, Index) { return 20.0 * tanh(s / 20.0); };
//   MaskMod  causal   = [](Index, Index, Index q, Index kv) { return q >= kv; };
//   MaskMod  same     = parse("q // 64 == kv // 64");
//
// A mod is a function: it may be called inside another one, so mods compose (treadle/mods.h has the
// common ones). Nothing is computed until compile() traces it.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "treadle/api.h"
#include "treadle/trace.h"

namespace treadle {

namespace trace {
struct Parsed;  // a graph and its captures; internal
}

namespace detail {

// A function of these traced values whose result is one, or a number. It is kept, so it must be
// copyable, and it must not change when called: a mod has no side effects.
template <class F, class... Arguments>
concept ModFunction =
    std::copy_constructible<F> && std::invocable<const F&, const Arguments&...> &&
    std::constructible_from<Operand, std::invoke_result_t<const F&, const Arguments&...>>;

}  // namespace detail

// A mod given as text. The captures are those that the text names.
class TREADLE_API Expression {
 public:
  // What parse returns.
  explicit Expression(std::shared_ptr<const trace::Parsed> parsed) : parsed_(std::move(parsed)) {}

  // The text in its canonical form.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool is_bool() const;

  // The expression with these values for score, b, h, q and kv.
  [[nodiscard]] Value operator()(const Score& score, const Index& b, const Index& h, const Index& q,
                                 const Index& kv) const;
  // Without a score; an expression that mentions it is refused.
  [[nodiscard]] Value operator()(const Index& b, const Index& h, const Index& q,
                                 const Index& kv) const;

 private:
  std::shared_ptr<const trace::Parsed> parsed_;
};

// Reads a mod from text: parse("score + slopes[h] * (kv - q)", {{"slopes", slopes}}). The grammar
// is in docs/text.md; errors show the line with a caret.
TREADLE_API Expression parse(std::string_view text, const std::vector<Capture>& captures = {});

// What becomes of the score of a visible pair: a function, a text, or nothing.
class TREADLE_API ScoreMod {
 public:
  // What it holds.
  using Function =
      std::function<Operand(const Score&, const Index&, const Index&, const Index&, const Index&)>;

  // Leaves scores as they are.
  ScoreMod() = default;  // leaves scores as they are
  // Any function of score, b, h, q and kv that returns a number.
  template <class F>
    requires(!std::same_as<F, ScoreMod> &&
             detail::ModFunction<F, Score, Index, Index, Index, Index>)
  ScoreMod(F function)  // NOLINT: a lambda is a score mod
      : function_([f = std::move(function)](const Score& s, const Index& b, const Index& h,
                                            const Index& q, const Index& kv) {
          return Operand(f(s, b, h, q, kv));
        }) {}

  // The new score of a pair, for mods that are made of mods.
  Float operator()(const Score& s, const Index& b, const Index& h, const Index& q,
                   const Index& kv) const;

 private:
  Function function_;
};

// Which pairs see each other: a function, a text, or all.
class TREADLE_API MaskMod {
 public:
  // What it holds.
  using Function = std::function<Operand(const Index&, const Index&, const Index&, const Index&)>;

  // Everything sees everything.
  MaskMod() = default;  // everything sees everything
  // Any function of b, h, q and kv that returns a truth value.
  template <class F>
    requires(!std::same_as<F, MaskMod> && detail::ModFunction<F, Index, Index, Index, Index>)
  MaskMod(F function)  // NOLINT: a lambda is a mask
      : function_([f = std::move(function)](const Index& b, const Index& h, const Index& q,
                                            const Index& kv) { return Operand(f(b, h, q, kv)); }) {}

  // The visibility of a pair, for masks that are made of masks.
  Bool operator()(const Index& b, const Index& h, const Index& q, const Index& kv) const;

 private:
  Function function_;
};

}  // namespace treadle
