#include "api/process.h"

namespace treadle::api {

Process& process() {
  static auto* process = new Process;
  return *process;
}

}  // namespace treadle::api
