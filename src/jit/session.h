// A Session holds loaded objects: ELF in, address out.
//
//   Session session;
//   void* f = session.load("0123abcd", object, "kernel");
//
// An object may call what the process has, libm and libmvec. Its own names are its own: two objects
// may both define "kernel". What is loaded stays until the session ends.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace treadle::jit {

class Session {
 public:
  Session();
  ~Session();

  // Threads may load at the same time.
  void* load(const std::string& name, std::string_view object, const std::string& symbol);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace treadle::jit
