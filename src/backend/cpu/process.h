// What calls of the whole process share.
#pragma once

#include "jit/engine.h"
#include "run/scratch.h"

namespace treadle::backend::cpu {

// Kernels and working memory.
struct Process {
  jit::Engine engine{jit::EngineOptions::from_environment()};
  run::Scratch scratch;
};

// The one of all compiled functions. It is never taken down: threads may still be running when
// statics are.
Process& process();

}  // namespace treadle::backend::cpu
