// A DiskCache: objects by key, in files that other processes may read and write meanwhile.
//
//   DiskCache disk("/home/me/.cache/treadle");
//   disk.write(key, object);              // /home/me/.cache/treadle/0123abcd....o
//   std::optional<std::string> object = disk.read(key);
//
// Nothing here is an error: what cannot be read is not there, what cannot be written is not kept. A
// file appears whole or not at all. One that is cut off, damaged, of another version, larger than
// any kernel or not to be trusted (jit/trust.h) counts as absent, and is replaced by the next
// write. A file that was read becomes the last to go when the cache is pruned (jit/prune.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/hash.h"

namespace treadle::jit {

// Larger files are neither read nor written. Kernels take some kilobytes.
constexpr std::int64_t largest_cache_file = std::int64_t{64} << 20;

class DiskCache {
 public:
  // The folder is made when first written to. Without a name there is no cache.
  explicit DiskCache(std::string folder) : folder_(std::move(folder)) {}

  [[nodiscard]] std::optional<std::string> read(const base::Key& key) const;
  void write(const base::Key& key, std::string_view object) const;
  // For an object that is what was written and all the same cannot be used.
  void remove(const base::Key& key) const;

  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

// "0123abcd....o"
std::string cache_file_name(const base::Key& key);

}  // namespace treadle::jit
