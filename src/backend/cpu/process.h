// What calls of the whole process share.
#pragma once

#include "jit/engine.h"
#include "run/scratch.h"

namespace treadle::backend::cpu {

// Kernels and working memory. They are never taken down: threads may still be running when statics
// are.
struct Process {
  jit::Engine engine{jit::EngineOptions::from_environment()};
  run::Scratch scratch;
};

Process& process();

}  // namespace treadle::backend::cpu
