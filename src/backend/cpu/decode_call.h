// Forward calls that decode (run/decode.h): few queries each, all of them together.
//
//   DecodeCall decoding(cpu);
//   if (!decoding.add(request, layout)) ...          // takes the general way
//   for (request of decoding.find_kernels(missing)) ...   // and so do those whose mods may fail
//   compile(missing);
//   run({&decoding.prepare(false)}, ...);
//   for (request of decoding.unclear()) ...          // has to be computed once more, the general way
//   decoding.deliver();
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "backend/cpu/call_memory.h"
#include "backend/cpu/cpu.h"
#include "run/decode.h"

namespace treadle::backend::cpu {

class Cpu::DecodeCall {
 public:
  // A request and its layout.
  struct Entry {
    const ForwardRequest* request = nullptr;
    Layout layout;
    bool unclear = false;
  };

  explicit DecodeCall(const Cpu& cpu) : cpu_(cpu) {}

  // False if it is no call that decodes. Requests outlive this.
  bool add(const ForwardRequest& request, const Layout& layout);
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  // Returns those that cannot decode, and forgets them.
  std::vector<Entry> find_kernels(run::Missing& missing);
  // `in_private`: results are not written before they are delivered.
  run::Work& prepare(bool in_private);
  std::vector<Entry> unclear();
  void deliver() const;

 private:
  [[nodiscard]] layout::Extent extent() const;
  [[nodiscard]] std::int64_t rows_of(const ForwardRequest& request) const;
  const run::DecodeKernels& kernels_for(std::int64_t rows);
  // Finds sequences whose first pages are the same.
  void share_pages(run::Missing& missing);

  const Cpu& cpu_;
  std::vector<Entry> entries_;
  CallFacts facts_;                                                            // of all
  std::map<std::int64_t, std::shared_ptr<const run::DecodeKernels>> kernels_;  // by rows
  std::deque<ForwardMemory> memory_;                                           // of each entry
  std::deque<run::ForwardProblem> posed_;
  std::vector<std::size_t> entry_of_;  // of each sequence
  run::DecodeProblem problem_;
  std::optional<run::DecodeWork> work_;
};

}  // namespace treadle::backend::cpu
