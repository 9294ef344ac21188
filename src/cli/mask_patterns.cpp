// Makes the patterns of treadle/patterns.h from text.
//
// In: a name and "parameter=numbers". Out: a mask. One line per pattern: name, parameters, what it
// shows, how it is made. Read all_patterns() first.
#include "cli/mask_patterns.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "base/error.h"
#include "cli/numbers.h"
#include "treadle/mods.h"
#include "treadle/patterns.h"

namespace treadle::cli {
namespace {

using layout::Extent;
using Numbers = std::vector<std::int64_t>;

// The parameters of one pattern, given or default, and the lengths.
class Given {
 public:
  Given(const std::string& pattern, const Extent& extent, std::map<std::string, Numbers> values)
      : pattern_(pattern), extent_(extent), values_(std::move(values)) {}

  [[nodiscard]] const Extent& extent() const { return extent_; }
  [[nodiscard]] const Numbers& list(const char* name) const { return values_.at(name); }
  [[nodiscard]] std::int64_t operator()(const char* name) const {
    const Numbers& numbers = list(name);
    if (numbers.size() != 1) {
      base::fail("mask: pattern {}: {} numbers for {}; it is one", pattern_, numbers.size(), name);
    }
    return numbers[0];
  }

 private:
  std::string pattern_;
  Extent extent_;
  std::map<std::string, Numbers> values_;
};

struct Pattern {
  const char* name;
  // "window sinks=0": one without a default must be given.
  const char* parameters;
  const char* what;
  std::function<MaskMod(const Given&)> make;
};

// --- patterns that need more than their numbers --------------------------------------------------

MaskMod longformer(const Given& given) {
  auto global = std::make_shared<Tensor>(
      DType::boolean, Dims{std::max(given.extent().queries.count(), given.extent().keys.count())});
  for (const std::int64_t position : given.list("global")) global->at<bool>({position}) = true;
  return patterns::longformer(
      {.reach = given("reach"), .global = Capture("", std::shared_ptr<const Tensor>(global))});
}

MaskMod neighborhood(const Given& given) {
  const Numbers& lengths = given.list("length");
  // One number holds for every axis.
  const auto at = [&](const char* name, std::size_t axis) {
    const Numbers& numbers = given.list(name);
    if (numbers.size() != 1 && numbers.size() != lengths.size()) {
      base::fail("mask: pattern neighborhood: {} numbers for {}; there are {} lengths",
                 numbers.size(), name, lengths.size());
    }
    return numbers[numbers.size() == 1 ? 0 : axis];
  };
  std::vector<patterns::Axis> axes;
  for (std::size_t axis = 0; axis < lengths.size(); ++axis) {
    axes.push_back({.length = lengths[axis],
                    .window = at("window", axis),
                    .dilation = at("dilation", axis),
                    .causal = at("causal", axis) != 0});
  }
  return patterns::neighborhood(axes);
}

MaskMod jagged(const Given& given) {
  using Align = patterns::Jagged::Align;
  return patterns::jagged({.query_ends = given.list("query_ends"),
                           .key_ends = given.list("key_ends"),
                           .inner = given("causal") != 0 ? mods::causal() : MaskMod(),
                           .align = given("align_last") != 0 ? Align::last : Align::first});
}

patterns::Conv conv_of(const Given& given) {
  return {.height = given("height"),
          .width = given("width"),
          .filter_height = given("filter_height"),
          .filter_width = given("filter_width"),
          .stride = given("stride"),
          .autoregressive = given("autoregressive") != 0};
}

constexpr const char* conv_parameters =
    "height=1 width filter_height=1 filter_width stride=1 autoregressive=1";

// --- the table -----------------------------------------------------------------------------------

const std::vector<Pattern>& all_patterns() {
  static const std::vector<Pattern> all{
      {"causal", "", "keys up to the query", [](const Given&) { return mods::causal(); }},
      {"causal_lower_right", "", "causal, the last query at the last key",
       [](const Given& p) {
         return mods::causal_lower_right(p.extent().queries.count(), p.extent().keys.count());
       }},
      {"local", "window", "the latest keys",
       [](const Given& p) { return patterns::local({.window = p("window")}); }},
      {"strided", "stride", "every stride-th key before",
       [](const Given& p) { return patterns::strided({.stride = p("stride")}); }},
      {"fixed", "window num_verts=1 vertsize=1 size=32 heads=1",
       "windows side by side, each closed by columns that all later ones see",
       [](const Given& p) {
         return patterns::fixed({p("window"), p("num_verts"), p("vertsize")},
                                {.size = p("size"), .heads = p("heads")});
       }},
      {"conv", conv_parameters, "pixels under a filter; small image asks the large one",
       [](const Given& p) { return patterns::conv(conv_of(p)); }},
      {"deconv", conv_parameters, "pixels under a filter; large image asks the small one",
       [](const Given& p) { return patterns::deconv(conv_of(p)); }},
      {"sliding_window", "window sinks=0", "the latest keys, and always the first ones",
       [](const Given& p) {
         return patterns::sliding_window({.window = p("window"), .sinks = p("sinks")});
       }},
      {"dilated_window", "window dilation=2", "every dilation-th key nearby, to both sides",
       [](const Given& p) {
         return patterns::dilated_window({.window = p("window"), .dilation = p("dilation")});
       }},
      {"longformer", "reach global=0", "keys nearby; positions `global` see and are seen by all",
       longformer},
      {"bigbird", "block_size=64 reach=1 global=1 random=3 seed=0 heads=1",
       "blocks: nearby, the first ones, some at random",
       [](const Given& p) {
         return patterns::bigbird({.length = p.extent().keys.count(),
                                   .heads = p("heads"),
                                   .block_size = p("block_size"),
                                   .reach = p("reach"),
                                   .global = p("global"),
                                   .random = p("random"),
                                   .seed = static_cast<std::uint64_t>(p("seed"))});
       }},
      {"neighborhood", "length window dilation=1 causal=0",
       "cells around one on a line, a grid, a volume; one number per axis, or one for all",
       neighborhood},
      {"block_diagonal", "size", "positions of the same block",
       [](const Given& p) { return patterns::block_diagonal({.size = p("size")}); }},
      {"documents", "lengths", "positions of the same document",
       [](const Given& p) { return patterns::documents({.lengths = p.list("lengths")}); }},
      {"jagged", "query_ends key_ends= causal=0 align_last=0",
       "packed sequences by cumulative lengths", jagged},
      {"prefix_lm", "lengths", "a prefix for each batch, then causal",
       [](const Given& p) { return patterns::prefix_lm({.lengths = p.list("lengths")}); }},
      {"tree", "parents context=0", "drafts: the context, and a node's ancestors",
       [](const Given& p) {
         return patterns::tree(
             {.parents = p.list("parents"), .context = Capture("", p("context"))});
       }}};
  return all;
}

// "window sinks=0" -> {window: none}, {sinks: 0}
std::vector<std::pair<std::string, std::optional<std::string>>> parameters_of(
    const Pattern& pattern) {
  std::vector<std::pair<std::string, std::optional<std::string>>> parameters;
  std::string_view text = pattern.parameters;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    const auto equals = word.find('=');
    parameters.emplace_back(word.substr(0, equals), std::nullopt);
    if (equals != std::string_view::npos) parameters.back().second = word.substr(equals + 1);
  }
  return parameters;
}

}  // namespace

MaskMod pattern_mask(const std::string& name, const std::vector<std::string>& parameters,
                     const Extent& extent) {
  const auto found = std::ranges::find(all_patterns(), std::string_view(name),
                                       [](const Pattern& p) { return std::string_view(p.name); });
  if (found == all_patterns().end()) {
    base::fail("mask: there is no pattern \"{}\"; treadle mask --list shows all", name);
  }
  std::map<std::string, std::string> texts;
  for (const std::string& parameter : parameters) {
    const auto equals = parameter.find('=');
    if (equals == std::string::npos) {
      base::fail("mask: --param \"{}\" is not name=numbers, as in window=128", parameter);
    }
    texts[parameter.substr(0, equals)] = parameter.substr(equals + 1);
  }
  std::map<std::string, Numbers> values;
  for (const auto& [key, by_default] : parameters_of(*found)) {
    std::optional<std::string> text = by_default;
    if (const auto given = texts.find(key); given != texts.end()) {
      text = given->second;
      texts.erase(given);
    }
    if (!text) base::fail("mask: pattern {} needs --param {}=...", name, key);
    values[key] = numbers_from<std::int64_t>(fmt::format("mask: --param {}", key), *text);
  }
  if (!texts.empty()) {
    base::fail("mask: pattern {} has no parameter {}; it takes: {}", name, texts.begin()->first,
               *found->parameters == '\0' ? "none" : found->parameters);
  }
  return found->make(Given(name, extent, std::move(values)));
}

Table pattern_table() {
  Table table({"pattern", "parameters", "what"});
  for (const Pattern& pattern : all_patterns()) {
    table.add({pattern.name, pattern.parameters, pattern.what});
  }
  return table;
}

}  // namespace treadle::cli
