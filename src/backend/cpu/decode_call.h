// Forward calls that decode (run/decode.h): few queries each, all of them together.
//
//   decoding.start();
//   if (!decoding.add(request, layouts)) ...              // takes the general way
//   for (entry of decoding.find_kernels(missing)) ...     // and so do those whose mods may fail
//   compile(missing);
//   run({&decoding.prepare(false)}, ...);
//   for (entry of decoding.unclear()) ...                 // has to be computed once more, the general way
//   decoding.deliver();
//   decoding.end();
//
// Keeps its memory from one start to the next: a step of a token at a time allocates nothing.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backend/cpu/call_memory.h"
#include "backend/cpu/cpu.h"
#include "base/fixed_list.h"
#include "run/decode.h"

namespace treadle::backend::cpu {

class Cpu::DecodeCall {
 public:
  // A request and its layout: one tile for all entries of the batch, or one for each of them.
  struct Entry {
    const ForwardRequest* request = nullptr;
    std::size_t number = 0;  // of the request, as the caller counts
    std::size_t first = 0;   // of its layouts
    bool each = false;       // there is one for each entry of the batch
    bool unclear = false;
  };

  explicit DecodeCall(const Cpu& cpu);

  void start();
  // Layouts of all entries of the batch, or one for each of them. False if that is no call that
  // decodes. What layouts refer to and requests outlive this, until it ends.
  template <class LayoutOf>
  bool add(const ForwardRequest& request, std::size_t number, bool each, const LayoutOf& layout_of);
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  // Returns those that cannot decode, and forgets them.
  const std::vector<Entry>& find_kernels(run::Missing& missing);
  // `in_private`: results are not written before they are delivered.
  run::Work& prepare(bool in_private);
  const std::vector<Entry>& unclear();
  void deliver() const;
  // Gives back what others may use.
  void end();

 private:
  [[nodiscard]] layout::Extent extent() const;
  [[nodiscard]] std::int64_t rows_of(const ForwardRequest& request) const;
  [[nodiscard]] std::span<const layout::OneTile> layouts_of(const Entry& entry) const;
  const run::DecodeKernels& kernels_for(std::int64_t rows);
  // Finds sequences whose first pages are the same.
  void share_pages(run::Missing& missing);

  const Cpu& cpu_;
  std::vector<Entry> entries_, others_;
  std::vector<layout::OneTile> layouts_;
  TurnedMods mods_;  // of all entries
  DecodeKind kind_;  // of the last kernels that were looked for
  std::vector<std::pair<std::int64_t, std::shared_ptr<const run::DecodeKernels>>>
      kernels_;                            // by rows
  base::FixedList<ForwardMemory> memory_;  // of each entry
  base::FixedList<run::ForwardProblem> posed_;
  std::vector<std::size_t> entry_of_;  // of each sequence
  run::DecodeProblem problem_;
  run::DecodeWork work_;
  bool runs_ = false;  // work_ has been started
};

template <class LayoutOf>
bool Cpu::DecodeCall::add(const ForwardRequest& request, std::size_t number, bool each,
                          const LayoutOf& layout_of) {
  const Sizes& sizes = request.sizes;
  const std::size_t first = layouts_.size();
  for (std::int64_t b = 0; b < (each ? sizes.batch : 1); ++b) {
    const layout::OneTile& layout = layouts_.emplace_back(layout_of(b));
    if (plan::decodes(cpu_.target_, sizes.compute, layout, sizes.heads / sizes.key_heads)) continue;
    layouts_.resize(first);
    return false;
  }
  entries_.push_back({.request = &request, .number = number, .first = first, .each = each});
  return true;
}

}  // namespace treadle::backend::cpu
