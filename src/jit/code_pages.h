// Pages that hold code, many kernels in one mapping.
//
//   CodePages pages;
//   std::byte* code = pages.take(bytes);   // to be written; nullptr when there is no memory
//   pages.seal(code);                      // from now on it can be run, and not be written
//   pages.give_back(code);
//
// The system allows a process some 65,000 mappings, and neighbours of the same rights are one. So a
// kernel is a row of whole pages that all end up with the same rights, in slabs of a megabyte. Pages
// given back lose their contents and keep their rights until they are taken again: no mapping is
// cut. A slab without kernels is unmapped.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

namespace treadle::jit {

class CodePages {
 public:
  CodePages();
  CodePages(const CodePages&) = delete;
  CodePages& operator=(const CodePages&) = delete;
  ~CodePages();

  // Threads may call all of these.
  std::byte* take(std::size_t bytes);
  bool seal(std::byte* code);  // false: the system refuses
  void give_back(std::byte* code);

 private:
  struct Slab {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    std::map<std::size_t, std::size_t> used;  // offset -> bytes

    // The first gap that is large enough; `bytes` of the slab if there is none.
    [[nodiscard]] std::size_t find_gap(std::size_t wanted) const;
    [[nodiscard]] bool holds(const std::byte* code) const {
      return code >= begin && code < begin + bytes;
    }
  };

  Slab* make_slab(std::size_t bytes);
  std::vector<Slab>::iterator slab_of(const std::byte* code);

  const std::size_t page_;
  std::mutex mutex_;
  std::vector<Slab> slabs_;
};

}  // namespace treadle::jit
