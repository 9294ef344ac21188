// The stages of calls that decode. Read find_kernels() and prepare() first.
#include "backend/cpu/decode_call.h"

#include <algorithm>
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

std::int64_t Cpu::DecodeCall::rows_of(const ForwardRequest& request) const {
  return request.sizes.heads / request.sizes.key_heads * request.sizes.queries.count();
}

bool Cpu::DecodeCall::add(const ForwardRequest& request, const Layout& layout) {
  if (!cpu_.decodes(request, *layout.held())) return false;
  entries_.push_back({&request, layout});
  return true;
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
  auto& kernels = kernels_[rows];
  if (kernels == nullptr) {
    const Entry& one = entries_.front();
    kernels = cpu_.kernels_.decode(
        cpu_.decode_kind(*one.request, facts_, one.layout.held()->terms.front(), rows));
  }
  return *kernels;
}

std::vector<Cpu::DecodeCall::Entry> Cpu::DecodeCall::find_kernels(run::Missing& missing) {
  if (entries_.empty()) return {};
  const ForwardRequest& first = *entries_.front().request;
  const auto facts_of = [&](const layout::Extent& extent) {
    return find_turned_facts(cpu_.program_, cpu_.forms_, first.bound, extent);
  };
  std::vector<Entry> rejected;
  TurnedMods mods = facts_of(extent());
  if (mods.facts.checked() && entries_.size() > 1) {
    // Each alone may be proven where all together are not. Kernels are those of the first.
    std::optional<TurnedMods> proven;
    std::erase_if(entries_, [&](const Entry& entry) {
      TurnedMods own = facts_of(entry.request->sizes.extent());
      const bool fits =
          !own.facts.checked() && (!proven || (proven->facts.score == own.facts.score &&
                                               proven->facts.mask == own.facts.mask));
      if (fits && !proven) proven = std::move(own);
      if (!fits) rejected.push_back(entry);
      return !fits;
    });
    if (proven) mods = std::move(*proven);
  } else if (mods.facts.checked()) {
    rejected = std::exchange(entries_, {});
  }
  if (entries_.empty()) return rejected;
  facts_ = mods.facts;
  problem_.score_captures = plan::capture_descriptors(mods.score_memory);
  problem_.mask_captures = plan::capture_descriptors(mods.mask_memory);
  for (const Entry& entry : entries_) {
    const layout::Layout& layout = entry.layout.held()->terms.front().layout;
    needed(kernels_for(rows_of(*entry.request)), layout, missing);
  }
  share_pages(missing);
  return rejected;
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
      needed(kernels, entry.layout.held()->terms.front().layout, missing);
    }
    problem_.shared.push_back({group.sequences, group.pages * page_size, &kernels});
  }
}

run::Work& Cpu::DecodeCall::prepare(bool in_private) {
  problem_.sequences.reserve(entries_.size());
  entry_of_.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const ForwardRequest& request = *entries_[i].request;
    const ForwardMemory& memory = memory_.emplace_back(request, cpu_.forms_, in_private);
    const run::ForwardProblem& posed = posed_.emplace_back(memory.problem(request));
    const layout::Layout& layout = entries_[i].layout.held()->terms.front().layout;
    const run::DecodeKernels& kernels = kernels_for(rows_of(request));
    for (std::int64_t b = 0; b < request.sizes.batch; ++b) {
      problem_.sequences.push_back({posed, b, request.sizes.first_b + b, layout, b, kernels});
      entry_of_.push_back(i);
    }
  }
  return work_.emplace(problem_, entries_.front().request->workers, cpu_.process_.scratch);
}

std::vector<Cpu::DecodeCall::Entry> Cpu::DecodeCall::unclear() {
  std::vector<Entry> found;
  if (!work_) return found;
  for (const std::int64_t sequence : work_->unclear()) {
    Entry& entry = entries_[entry_of_[static_cast<std::size_t>(sequence)]];
    if (!entry.unclear) found.push_back(entry);
    entry.unclear = true;
  }
  return found;
}

void Cpu::DecodeCall::deliver() const {
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (!entries_[i].unclear) memory_[i].deliver();
}

}  // namespace treadle::backend::cpu
