// The stages of calls that decode. Read find_kernels() and prepare() first.
#include "backend/cpu/decode_call.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "plan/capture_descriptors.h"
#include "plan/shared_pages.h"

namespace treadle::backend::cpu {
namespace {

// What covers both.
layout::Range hull(layout::Range a, layout::Range b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

}  // namespace

Cpu::DecodeCall::DecodeCall(const Cpu& cpu) : cpu_(cpu), mods_(cpu.program_, cpu.forms_) {
  kind_.forward.target = cpu.target_;
}

void Cpu::DecodeCall::start() {
  end();
  layouts_.clear();
  entry_of_.clear();
}

void Cpu::DecodeCall::end() {
  work_.end();
  runs_ = false;
  problem_.sequences.clear();
  problem_.shared.clear();
  posed_.clear();
  memory_.clear();
  kernels_.clear();
  entries_.clear();
  others_.clear();
}

std::int64_t Cpu::DecodeCall::rows_of(const ForwardRequest& request) const {
  return request.sizes.heads / request.sizes.key_heads * request.sizes.queries.count();
}

std::span<const layout::OneTile> Cpu::DecodeCall::layouts_of(const Entry& entry) const {
  const auto count = static_cast<std::size_t>(entry.each ? entry.request->sizes.batch : 1);
  return std::span(layouts_).subspan(entry.first, count);
}

// Of all entries together: what is proven of it holds for each.
layout::Extent Cpu::DecodeCall::extent() const {
  layout::Extent all = entries_.front().request->sizes.extent();
  std::int64_t end = all.first_b + all.batch;
  for (const Entry& entry : entries_) {
    const layout::Extent extent = entry.request->sizes.extent();
    all.queries = hull(all.queries, extent.queries);
    all.keys = hull(all.keys, extent.keys);
    all.first_b = std::min(all.first_b, extent.first_b);
    end = std::max(end, extent.first_b + extent.batch);
  }
  all.batch = end - all.first_b;
  return all;
}

const run::DecodeKernels& Cpu::DecodeCall::kernels_for(std::int64_t rows) {
  for (const auto& [of, kernels] : kernels_)
    if (of == rows) return *kernels;
  cpu_.describe(*entries_.front().request, mods_.facts, rows, kind_);
  return *kernels_.emplace_back(rows, cpu_.kernels_.decode(kind_)).second;
}

const std::vector<Cpu::DecodeCall::Entry>& Cpu::DecodeCall::find_kernels(run::Missing& missing) {
  others_.clear();
  if (entries_.empty()) return others_;
  const Bindings& bound = entries_.front().request->bound;
  mods_.find(bound, extent());
  if (mods_.facts.checked() && entries_.size() > 1) {
    // Each alone may be proven where all together are not. Kernels are those of the first.
    std::optional<CallFacts> proven;
    std::erase_if(entries_, [&](const Entry& entry) {
      mods_.find(bound, entry.request->sizes.extent());
      const CallFacts& own = mods_.facts;
      const bool fits =
          !own.checked() && (!proven || (proven->score == own.score && proven->mask == own.mask));
      if (fits && !proven) proven = own;
      if (!fits) others_.push_back(entry);
      return !fits;
    });
    if (proven) mods_.facts = *proven;
  } else if (mods_.facts.checked()) {
    std::swap(entries_, others_);
  }
  if (entries_.empty()) return others_;
  plan::describe_captures(mods_.score_memory, problem_.score_captures);
  plan::describe_captures(mods_.mask_memory, problem_.mask_captures);
  for (const Entry& entry : entries_) {
    const run::DecodeKernels& kernels = kernels_for(rows_of(*entry.request));
    for (const layout::OneTile& layout : layouts_of(entry)) needed(kernels, layout, missing);
  }
  share_pages(missing);
  return others_;
}

void Cpu::DecodeCall::share_pages(run::Missing& missing) {
  constexpr std::int64_t fewest_keys = 128;  // fewer are read again sooner than kept
  std::vector<plan::PageTable> tables;
  std::int64_t most_rows = 1, page_size = 1;
  for (const Entry& entry : entries_) {
    const ForwardRequest& request = *entry.request;
    // One sequence, whose positions begin with its pages.
    if (request.pages == nullptr || request.pages->first != 0) return;
    page_size = request.inputs.k.size(2);
    tables.push_back(
        {request.pages->table, request.pages->stride, request.sizes.keys.count() / page_size});
    most_rows = std::max(most_rows, rows_of(request));
  }
  if (tables.size() < 2) return;
  const auto groups =
      plan::shared_pages(tables, std::max<std::int64_t>(plan::most_decode_rows / most_rows, 1),
                         (fewest_keys + page_size - 1) / page_size);
  for (const plan::SharedPages& group : groups) {
    std::int64_t rows = 0;
    for (const std::int64_t sequence : group.sequences)
      rows += rows_of(*entries_[static_cast<std::size_t>(sequence)].request);
    const run::DecodeKernels& kernels = kernels_for(rows);
    for (const std::int64_t sequence : group.sequences) {
      const Entry& entry = entries_[static_cast<std::size_t>(sequence)];
      for (const layout::OneTile& layout : layouts_of(entry)) needed(kernels, layout, missing);
    }
    problem_.shared.push_back({group.sequences, group.pages * page_size, &kernels});
  }
}

run::Work& Cpu::DecodeCall::prepare(bool in_private) {
  memory_.start(entries_.size());
  posed_.start(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const ForwardRequest& request = *entry.request;
    const run::ForwardProblem& posed =
        posed_.emplace(memory_.emplace(request, in_private).problem(request));
    const run::DecodeKernels& kernels = kernels_for(rows_of(request));
    const auto layouts = layouts_of(entry);
    for (std::int64_t b = 0; b < request.sizes.batch; ++b) {
      const layout::OneTile& layout = layouts[static_cast<std::size_t>(entry.each ? b : 0)];
      problem_.sequences.push_back(
          {posed, b, request.sizes.first_b + b, layout, entry.each ? 0 : b, kernels});
      entry_of_.push_back(i);
    }
  }
  work_.start(problem_, entries_.front().request->workers, cpu_.process_.scratch);
  runs_ = true;
  return work_;
}

const std::vector<Cpu::DecodeCall::Entry>& Cpu::DecodeCall::unclear() {
  others_.clear();
  if (!runs_) return others_;
  for (const std::int64_t sequence : work_.unclear()) {
    Entry& entry = entries_[entry_of_[static_cast<std::size_t>(sequence)]];
    if (!entry.unclear) others_.push_back(entry);
    entry.unclear = true;
  }
  return others_;
}

void Cpu::DecodeCall::deliver() const {
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (!entries_[i].unclear) memory_[i].deliver();
}

}  // namespace treadle::backend::cpu
