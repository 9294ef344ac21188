// A folder that goes away with its contents.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace treadle::test {

class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_((std::filesystem::temp_directory_path() / "treadle-test-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::string& path() const { return path_; }

  // Kernels: files that end with ".o".
  [[nodiscard]] std::vector<std::filesystem::path> objects() const {
    std::vector<std::filesystem::path> found = files();
    std::erase_if(found, [](const auto& path) { return path.extension() != ".o"; });
    return found;
  }

  // Everything below it that is not a folder.
  [[nodiscard]] std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
      if (!entry.is_directory()) found.push_back(entry.path());
    }
    return found;
  }

 private:
  std::string path_;
};

}  // namespace treadle::test
