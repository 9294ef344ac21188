// Slabs from the system, cut into rows of pages.
#include "jit/code_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"

namespace treadle::jit {
namespace {

constexpr std::size_t slab_bytes = std::size_t{1} << 20;

std::size_t rounded(std::size_t bytes, std::size_t unit) {
  return (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit;
}

}  // namespace

CodePages::CodePages() : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {}

CodePages::~CodePages() {
  for (const Slab& slab : slabs_) munmap(slab.begin, slab.bytes);
}

std::size_t CodePages::Slab::find_gap(std::size_t wanted) const {
  std::size_t at = 0;
  for (const auto& [offset, size] : used) {
    if (offset - at >= wanted) return at;
    at = offset + size;
  }
  return bytes - at >= wanted ? at : bytes;
}

CodePages::Slab* CodePages::make_slab(std::size_t bytes) {
  slabs_.reserve(slabs_.size() + 1);  // what may throw, before there is something to lose
  const std::size_t size = rounded(bytes, slab_bytes);
  void* begin = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return nullptr;
  return &slabs_.emplace_back(Slab{.begin = static_cast<std::byte*>(begin), .bytes = size});
}

std::vector<CodePages::Slab>::iterator CodePages::slab_of(const std::byte* code) {
  const auto slab = std::ranges::find_if(slabs_, [&](const Slab& s) { return s.holds(code); });
  if (slab == slabs_.end()) base::internal_error("jit: code that is in no slab");
  return slab;
}

std::byte* CodePages::take(std::size_t bytes) {
  const std::size_t size = rounded(bytes, page_);
  const std::lock_guard lock(mutex_);
  const auto roomy = std::ranges::find_if(
      slabs_, [&](const Slab& slab) { return slab.find_gap(size) < slab.bytes; });
  Slab* slab = roomy != slabs_.end() ? &*roomy : make_slab(size);
  if (slab == nullptr) return nullptr;
  const std::size_t at = slab->find_gap(size);
  std::byte* code = slab->begin + at;
  if (mprotect(code, size, PROT_READ | PROT_WRITE) != 0) return nullptr;
  slab->used.emplace(at, size);
  return code;
}

bool CodePages::seal(std::byte* code) {
  const std::lock_guard lock(mutex_);
  const auto slab = slab_of(code);
  const std::size_t size = slab->used.at(static_cast<std::size_t>(code - slab->begin));
  return mprotect(code, size, PROT_READ | PROT_EXEC) == 0;
}

void CodePages::give_back(std::byte* code) {
  const std::lock_guard lock(mutex_);
  const auto slab = slab_of(code);
  const auto used = slab->used.find(static_cast<std::size_t>(code - slab->begin));
  const std::size_t size = used->second;
  slab->used.erase(used);
  if (slab->used.empty()) {
    munmap(slab->begin, slab->bytes);
    slabs_.erase(slab);
    return;
  }
  // As sealed pages are, also when these never were, so that they are one mapping with others.
  madvise(code, size, MADV_DONTNEED);
  mprotect(code, size, PROT_READ | PROT_EXEC);
}

}  // namespace treadle::jit
