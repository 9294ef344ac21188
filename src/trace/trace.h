// Trace: from the user's functions to graphs.
//
//   auto captures = std::make_shared<CaptureTable>();
//   ir::Graph score = trace(options.score_mod, captures);     a float
//   ir::Graph mask  = trace(options.mask, captures);          a bool without a score
//
// Each function is called once, with symbols. Captures of both are named apart in one table.
#pragma once

#include <memory>

#include "ir/graph.h"
#include "trace/recorder.h"
#include "treadle/mod.h"

namespace treadle::trace {

ir::Graph trace(const ScoreMod& mod, const std::shared_ptr<CaptureTable>& captures);
ir::Graph trace(const MaskMod& mod, const std::shared_ptr<CaptureTable>& captures);

}  // namespace treadle::trace
