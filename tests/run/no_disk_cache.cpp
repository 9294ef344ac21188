// Kernels of random graphs are of no use to anyone later: unless asked to, these tests keep none.
#include <cstdlib>

namespace {

[[maybe_unused]] const int unset = setenv("TREADLE_CACHE_DIR", "", 0);

}  // namespace
