// A DiskCache: objects by hash, in files that other processes may read and write meanwhile.
//
//   DiskCache disk("/home/me/.cache/treadle");
//   disk.write(name, object);              // /home/me/.cache/treadle/0123abcd....o
//   std::optional<std::string> object = disk.read(name);
//
// Nothing here is an error: what cannot be read is not there, what cannot be written is not kept. A
// file appears whole or not at all. One that is cut off, damaged, of another version or of another
// user (it would be run) counts as absent, and is replaced by the next write.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/hash.h"

namespace treadle::jit {

class DiskCache {
 public:
  // The folder is made when first written to. Without a name there is no cache.
  explicit DiskCache(std::string folder) : folder_(std::move(folder)) {}

  [[nodiscard]] std::optional<std::string> read(const base::Hash& name) const;
  void write(const base::Hash& name, std::string_view object) const;

 private:
  [[nodiscard]] std::string path_of(const base::Hash& name) const;

  std::string folder_;
};

}  // namespace treadle::jit
