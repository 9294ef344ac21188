// Compiles the texts of a function's mods, and calls it.
//
// In: text, declared captures, tensors as views. Out: a Layout, or results in Python's memory.
#include "function.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "api/inspect.h"
#include "threads.h"
#include "treadle/mod.h"

namespace treadle::python {
namespace {

Attention compiled(const FunctionOptions& given) {
  const std::vector<Capture> captures = unbound(given.captures);
  Options options{.scale = given.scale};
  if (given.most_nodes) options.most_nodes = *given.most_nodes;
  std::vector<std::string> read;  // one that is declared may be in no text
  for (const std::string& text : {given.score_mod, given.mask}) {
    if (text.empty()) continue;
    for (std::string& name : api::captures_read(text, captures)) read.push_back(std::move(name));
  }
  std::ranges::copy_if(
      given.gradients, std::back_inserter(options.gradients),
      [&](const std::string& name) { return std::ranges::find(read, name) != read.end(); });
  if (!given.score_mod.empty()) options.score_mod = parse(given.score_mod, captures);
  if (!given.mask.empty()) options.mask = parse(given.mask, captures);
  return compile(options);
}

void set_to_zero(const View& view) {
  std::memset(view.data(), 0, static_cast<std::size_t>(view.count()) * size_of(view.dtype()));
}

}  // namespace

Function::Function(const FunctionOptions& options)
    : options_(options), attention_(compiled(options)) {
  for (const CaptureInfo& capture : attention_.captures()) read_.push_back(capture.name);
}

bool Function::reads(const std::string& name) const {
  return std::ranges::find(read_, name) != read_.end();
}

Call Function::call_of(const Tensors& tensors, const Layout& layout, const Crew& crew) const {
  Call call{
      .captures = {}, .executor = executor_for(crew.threads), .layout = layout, .stop = crew.stop};
  call.sinks = tensors.sinks;
  call.q_offsets = tensors.q_offsets;
  call.kv_offsets = tensors.kv_offsets;
  call.dropout = tensors.dropout;
  for (std::size_t i = 0; i < options_.captures.size(); ++i) {
    const std::string& name = options_.captures[i].name;
    if (reads(name)) call.captures.emplace_back(name, tensors.captures.views[i]);
  }
  return call;
}

Layout Function::layout(const Tensors& tensors, const Crew& crew) const {
  return attention_.layout(std::get<Inputs>(tensors.inputs), call_of(tensors, {}, crew));
}

Layout Function::layout(const KeyLists& keys, const Tensors& tensors, const Crew& crew) const {
  return attention_.layout(keys, std::get<Inputs>(tensors.inputs), call_of(tensors, {}, crew));
}

void Function::forward(const Tensors& tensors, const Layout& layout, const ForwardViews& results,
                       const Crew& crew) const {
  const Call call = call_of(tensors, layout, crew);
  std::visit([&](const auto& inputs) { attention_.forward_into(results, inputs, call); },
             tensors.inputs);
}

BackwardViews Function::views_of(const Tensors& tensors, const std::vector<View>& results) const {
  BackwardViews views{results[0], results[1], results[2], {}, std::nullopt};
  if (tensors.sinks) views.dsinks = results.back();
  for (std::size_t i = 0; i < options_.gradients.size(); ++i) {
    const std::string& name = options_.gradients[i];
    if (reads(name)) views.captures.push_back({name, results[3 + i]});
  }
  return views;
}

void Function::clear_unread(const std::vector<View>& results) const {
  for (std::size_t i = 0; i < options_.gradients.size(); ++i)
    if (!reads(options_.gradients[i])) set_to_zero(results[3 + i]);
}

void Function::backward(const Tensors& tensors, const Layout& layout, const Saved& saved,
                        const ConstView& dout, const std::optional<ConstView>& dlse,
                        const std::vector<View>& results, const Crew& crew) const {
  const BackwardViews views = views_of(tensors, results);
  const Call call = call_of(tensors, layout, crew);
  std::visit([&](const auto& in) { attention_.backward_into(views, in, saved, dout, dlse, call); },
             tensors.inputs);
  clear_unread(results);  // a call that throws has not come here
}

std::string Function::score_mod() const {
  if (options_.score_mod.empty()) return "";
  return api::simplified(options_.score_mod, unbound(options_.captures));
}

std::string Function::mask() const {
  if (options_.mask.empty()) return "";
  return api::simplified(options_.mask, unbound(options_.captures));
}

}  // namespace treadle::python
