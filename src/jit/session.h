// A Session holds loaded objects: ELF in, address out.
//
//   Session session(options);
//   Code f = session.load("0123abcd", object, "kernel");
//
// An object may call what the process has, libm and libmvec. Its own names are its own: two objects
// may both define "kernel". What is loaded stays until nobody holds it, also beyond the session.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "jit/engine.h"
#include "jit/kernel_cache.h"

namespace treadle::jit {

class Session {
 public:
  explicit Session(const EngineOptions& options);
  ~Session();

  // Threads may load at the same time.
  Code load(const std::string& name, std::string_view object, const std::string& symbol);

 private:
  struct Orc;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace treadle::jit
