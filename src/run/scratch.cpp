// Workspaces: memory that grows as needed, and the pool they wait in.
#include "run/scratch.h"

#include <new>
#include <utility>

namespace treadle::run {
namespace {

constexpr std::align_val_t alignment{64};

}  // namespace

Workspace::~Workspace() { ::operator delete(memory_, alignment); }

std::byte* Workspace::room(std::size_t bytes) {
  if (bytes > bytes_) {
    ::operator delete(std::exchange(memory_, nullptr), alignment);
    bytes_ = 0;
    memory_ = static_cast<std::byte*>(::operator new(bytes, alignment));
    bytes_ = bytes;
  }
  return memory_;
}

Scratch::Lease Scratch::take() {
  std::unique_ptr<Workspace> workspace;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      workspace = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (!workspace) workspace = std::make_unique<Workspace>();
  return {*this, std::move(workspace)};
}

void Scratch::give_back(std::unique_ptr<Workspace> workspace) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(workspace));
}

std::vector<std::size_t> Scratch::sizes() {
  const std::lock_guard lock(mutex_);
  std::vector<std::size_t> sizes;
  for (const auto& workspace : free_) sizes.push_back(workspace->bytes());
  return sizes;
}

}  // namespace treadle::run
