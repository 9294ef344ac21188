// The choice of a backend. A new one is a folder in src/backend and a line here.
#include "api/backends.h"

#include "backend/cpu/make_cpu.h"
#include "backend/reference/reference.h"
#include "base/error.h"

namespace treadle::api {

std::unique_ptr<const backend::Backend> make_backend(const backend::Program& program,
                                                     const Options& options) {
  using backend::cpu::make_cpu;
  using backend::reference::make_reference;
  switch (options.backend) {
    case Backend::reference: return make_reference(program);
    case Backend::cpu: return make_cpu(program, options.target);
  }
  base::internal_error("compile: no such backend");
}

}  // namespace treadle::api
