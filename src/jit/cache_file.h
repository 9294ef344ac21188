// What is in a file of the cache on disk: a header, the key in full and the object.
//
//   const std::string file = cache_file(key, object);
//   cache_file_object(file, key) == object
//
// A key and an object have one file: what is damaged, cut off, longer, of another version or another
// key's has no object, so whatever is read was written.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"

namespace treadle::jit {

std::string cache_file(const base::Key& key, std::string_view object);

// In exchange for the file, so that there are never two of an object.
std::optional<std::string> cache_file_object(std::string file, const base::Key& key);

// Of the part before the object.
std::size_t cache_file_overhead(const base::Key& key);

}  // namespace treadle::jit
