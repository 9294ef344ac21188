// Traces mods.
//
// In: a mod. Out: its graph. The mod is called once with the five symbols.
#include "trace/trace.h"

#include "ir/verify.h"

namespace treadle::trace {
namespace {

using ir::Input;

Index index(const std::shared_ptr<Recorder>& recorder, Input input) {
  return Index(Value(recorder, recorder->make().input(input)));
}

ir::Graph finish(Recorder& recorder, const Value& output, CaptureTable& captures) {
  ir::Graph graph = captures.settle(recorder.make().finish({recorder.node_of(output)}));
  ir::verify(graph);
  return graph;
}

}  // namespace

ir::Graph trace(const ScoreMod& mod, const std::shared_ptr<CaptureTable>& captures) {
  const auto recorder = std::make_shared<Recorder>(captures);
  const Score score(Value(recorder, recorder->make().input(Input::score)));
  const Float result = mod(score, index(recorder, Input::b), index(recorder, Input::h),
                           index(recorder, Input::q), index(recorder, Input::kv));
  return finish(*recorder, result, *captures);
}

ir::Graph trace(const MaskMod& mod, const std::shared_ptr<CaptureTable>& captures) {
  const auto recorder = std::make_shared<Recorder>(captures);
  const Bool result = mod(index(recorder, Input::b), index(recorder, Input::h),
                          index(recorder, Input::q), index(recorder, Input::kv));
  return finish(*recorder, result, *captures);
}

}  // namespace treadle::trace
