// A call on the CPU backend, stage by stage: the second table of contents, after api/compile.cpp.
//
//   check, bind            api/attention.cpp: a request has good input only
//   layout                 src/layout    which keys each tile of queries looks at
//   facts                  src/plan      what is proven of the mods for these sizes and captures
//   kernels                src/emit, jit the code for all that; compiled here, or found
//   memory                 where results are computed
//   schedule               src/plan      tasks, longest first
//   run                    src/run       tiles against keys on all threads
//   deliver                results to the caller, when nothing can fail any more
#include <algorithm>
#include <memory>
#include <utility>

#include "backend/cpu/backward_call.h"
#include "backend/cpu/call_memory.h"
#include "backend/cpu/forward_call.h"
#include "backend/cpu/room.h"
#include "base/parallel.h"
#include "run/work.h"

namespace treadle::backend::cpu {
namespace {

// Compiles what a layout needs and no call before needed: all at once, on all threads.
void compile(const run::Missing& missing, const base::Workers& workers) {
  base::parallel_for(workers, missing.count(), [&](std::int64_t i) { missing.prepare(i); });
}

// Whatever becomes of a call: what it refers to ends with it.
template <class Room>
class Ending {
 public:
  explicit Ending(Room& room) : room_(room) {}
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  ~Ending() { room_.end(); }

 private:
  Room& room_;
};

}  // namespace

void Cpu::forward(std::span<const ForwardRequest> requests) const {
  const auto room = rooms_.take([&] { return std::make_unique<Room>(*this); });
  const Ending ending(*room);
  auto& [calls, layouts, decoding, works] = *room;
  for (const ForwardRequest& request : requests) {
    if (request.sizes.batch > 0 && request.sizes.heads > 0 && !request.sizes.queries.empty())
      calls.push_back(&request);
  }
  if (calls.empty()) return;
  const base::Workers& workers = calls.front()->workers;
  layouts.find(calls);
  run::Missing missing;
  decoding.start();
  std::vector<std::unique_ptr<ForwardCall>> others;
  const auto add_other = [&](std::size_t i) {
    others.push_back(std::make_unique<ForwardCall>(*this, *calls[i], layouts.layout(i), missing));
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto tile_of = [&](std::int64_t b) { return layouts.one_tile(i, b); };
    // Decoding does not wait for keys that are on their way.
    if (calls[i]->keys != nullptr || !layouts.is_one_tile(i) ||
        !decoding.add(*calls[i], i, layouts.each(i), tile_of))
      add_other(i);
  }
  for (const DecodeCall::Entry& entry : decoding.find_kernels(missing)) add_other(entry.number);
  compile(missing, workers);
  // When one fails, none has written anything.
  const bool in_private =
      std::ranges::any_of(others, [](const auto& call) { return call->may_fail(); });
  for (const auto& call : others) works.push_back(&call->prepare(in_private));
  if (!decoding.empty()) works.push_back(&decoding.prepare(in_private));
  run::run(works, workers, process_.scratch);
  if (const auto& unclear = decoding.unclear(); !unclear.empty()) {
    works.clear();
    for (const DecodeCall::Entry& entry : unclear) add_other(entry.number);
    compile(missing, workers);
    for (auto call = others.end() - std::ssize(unclear); call != others.end(); ++call)
      works.push_back(&(*call)->prepare(in_private));
    run::run(works, workers, process_.scratch);
  }
  for (const auto& call : others) call->finish();
  for (const auto& call : others) call->deliver();
  decoding.deliver();
}

void Cpu::backward(const BackwardRequest& call) const {
  if (call.sizes.batch == 0 || call.sizes.heads == 0 || call.sizes.queries.empty() ||
      call.sizes.keys.empty())
    return fill_with_zeros(call.results);
  const Layout layout =
      call.layout.empty() ? Cpu::layout(call.sizes, call.bound, call.workers) : call.layout;
  BackwardCall passes(*this, call, layout);
  compile(passes.missing(), call.workers);
  // A NaN may have come from a hidden pair that was multiplied with zero: then once more, exactly.
  if (passes.run(run::Nonfinite::fast) == BackwardEnd::unclear) passes.run(run::Nonfinite::exact);
}

BackwardEnd Cpu::backward_part(const BackwardRequest& call, run::Nonfinite nonfinite) const {
  BackwardCall passes(*this, call, call.layout);
  compile(passes.missing(), call.workers);
  return passes.run(nonfinite);
}

}  // namespace treadle::backend::cpu
