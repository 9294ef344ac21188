// What the linker wrote into this library or program to tell it from every other build.
//
// The emitters are part of it, so a kernel that another build left on disk is never taken for one
// of ours. Empty when the linker was told to leave it out; then nothing is kept on disk.
#pragma once

#include <string>

namespace treadle::jit {

std::string build_id();

}  // namespace treadle::jit
