// Which files and folders the cache may use. What is in them is run, so whoever could have written
// them could run code as us: both must be ours or root's, and nobody else may write them.
//
//   OpenFolder folder = open_folder("/home/me/.cache/treadle");
//   if (!folder.descriptor.is_open()) fmt::print("{}", folder.problem);
//   OpenFile file = open_file(folder.descriptor.number(), "0123abcd....o");
//
// Owner and rights are those of what was opened, not of what has its name by now.
#pragma once

#include <cstdint>
#include <string>

#include "jit/descriptor.h"

namespace treadle::jit {

struct OpenFolder {
  Descriptor descriptor;  // not open when there is a problem
  std::string problem;    // "it is not there", "its mode is 0775: others may write it", ...
  bool writable = false;  // by us
};

OpenFolder open_folder(const std::string& path);

// Makes it first if it is not there, and what is missing above it, for nobody but us.
OpenFolder make_folder(const std::string& path);

struct OpenFile {
  Descriptor descriptor;  // not open when there is no such file, or none to be trusted
  std::int64_t bytes = 0;
  std::int64_t modified = 0;  // seconds since 1970
};

// For reading. No links are followed.
OpenFile open_file(int folder, const std::string& name);

}  // namespace treadle::jit
