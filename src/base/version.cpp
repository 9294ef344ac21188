// The version, from the one place that has it: project() in CMakeLists.txt.
#include "treadle/version.h"

namespace treadle {

std::string_view version() { return TREADLE_VERSION; }

}  // namespace treadle
