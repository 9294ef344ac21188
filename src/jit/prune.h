// Keeps the cache on disk small.
//
//   prune_if_due("/home/me/.cache/treadle", {.bytes = 256 << 20});   // once an hour at most
//
// Files that were not used for longer than the age go, then those used longest ago until the rest is
// no larger than the limit; and what a killed process left half written, after an hour. Only names
// that the cache gives are touched. A folder that is not to be trusted (jit/trust.h), or that we may
// not write, stays as it is.
//
// LLVM's pruneCache() prunes only names that begin with "llvmcache-" or "Thin-", and goes by the
// time of the last access, which many systems do not keep.
#pragma once

#include <cstdint>
#include <string>

#include "jit/cache_limits.h"

namespace treadle::jit {

struct CacheContents {
  std::int64_t files = 0, bytes = 0;  // of kernels
  std::int64_t temporary = 0;         // files that are being written, or were when a process ended
  std::string problem;                // why the folder is not used; empty: it is
  bool writable = false;
};

CacheContents contents_of(const std::string& folder);

// By whoever asks first after an hour; a file in the folder says when that was last.
void prune_if_due(const std::string& folder, const CacheLimits& limits);

// Each returns how many files it removed.
std::int64_t prune(const std::string& folder, const CacheLimits& limits);
std::int64_t clear(const std::string& folder);

}  // namespace treadle::jit
