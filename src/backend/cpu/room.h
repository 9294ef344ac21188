// What a forward call leaves for the next one: memory that has grown to what calls need.
#pragma once

#include <vector>

#include "backend/cpu/call_layouts.h"
#include "backend/cpu/decode_call.h"
#include "run/work.h"

namespace treadle::backend::cpu {

struct Cpu::Room {
  explicit Room(const Cpu& cpu) : layouts(cpu), decoding(cpu) {}

  void end() {
    decoding.end();
    layouts.end();
    calls.clear();
    works.clear();
  }

  std::vector<const ForwardRequest*> calls;
  Layouts layouts;
  DecodeCall decoding;
  std::vector<run::Work*> works;
};

}  // namespace treadle::backend::cpu
