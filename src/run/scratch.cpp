// Workspaces: memory that grows as needed, and the pool they wait in. Read Scratch::take() first.
#include "run/scratch.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/no_fork.h"

namespace treadle::run {
namespace {

constexpr std::align_val_t alignment{64};

// A workspace that so many shares have passed by is freed.
constexpr std::int64_t shares_to_keep = 256;

// One that is much larger than needed is left for those who need it, or for being freed.
bool much_larger(std::size_t have, std::size_t need) {
  return have > std::max<std::size_t>(4 * need, std::size_t{1} << 20);
}

}  // namespace

Workspace::~Workspace() { ::operator delete(memory_, alignment); }

void Workspace::reserve(const WorkspaceNeed& need) {
  lists.wanted.reserve(need.wanted);
  lists.block.reserve(need.block);
  lists.runs.reserve(need.block);
  if (need.bytes <= bytes_) return;
  ::operator delete(std::exchange(memory_, nullptr), alignment);
  bytes_ = 0;
  memory_ = static_cast<std::byte*>(::operator new(need.bytes, alignment));
  bytes_ = need.bytes;
}

void Workspace::check(const Carver& carver) const {
  if (carver.used() > bytes_)
    base::internal_error("a task took {} bytes of a workspace of {}", carver.used(), bytes_);
}

Scratch::Lease::~Lease() {
  const std::lock_guard lock(share_.mutex_);
  share_.idle_.push_back(&workspace_);  // has room for all
}

// Delegates, so that the destructor gives back what was taken before a failure.
Scratch::Share::Share(Scratch& owner, std::int64_t count, const WorkspaceNeed& need)
    : Share(owner) {
  const base::NoFork whole;
  need_ = need;
  all_.reserve(static_cast<std::size_t>(count));
  idle_.reserve(all_.capacity());
  for (std::int64_t i = 0; i < count; ++i) add();
  const std::lock_guard lock(owner_.mutex_);
  ++owner_.clock_;
}

Scratch::Share::~Share() { owner_.give_back(all_); }

void Scratch::Share::add() {
  all_.push_back(owner_.take(need_));
  all_.back()->reserve(need_);
  idle_.push_back(all_.back().get());
}

Scratch::Lease Scratch::Share::lend() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) {  // more tasks at once than the executor said
    all_.reserve(all_.size() + 1);
    idle_.reserve(all_.capacity());
    add();
  }
  Workspace* workspace = idle_.back();
  idle_.pop_back();
  return {*this, *workspace};
}

// The smallest that is large enough; else the largest, which has the least to grow; else a new one.
// Of equal ones the one that was used last, so that the others are freed.
std::unique_ptr<Workspace> Scratch::take(const WorkspaceNeed& need) {
  const base::NoFork whole;
  const std::lock_guard lock(mutex_);
  const auto rank = [&](const Workspace& w) {
    const bool fits = w.bytes_ >= need.bytes;
    const auto bytes = static_cast<std::int64_t>(w.bytes_);
    return std::tuple(fits, fits ? -bytes : bytes, w.taken_);
  };
  auto best = free_.end();
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    if (much_larger((*at)->bytes(), need.bytes)) continue;
    if (best == free_.end() || rank(**at) > rank(**best)) best = at;
  }
  std::unique_ptr<Workspace> workspace;
  if (best == free_.end()) {
    free_.reserve(made_ + 1);
    workspace = std::make_unique<Workspace>();
    ++made_;
  } else {
    workspace = std::move(*best);
    *best = std::move(free_.back());
    free_.pop_back();
  }
  workspace->taken_ = clock_;
  return workspace;
}

void Scratch::give_back(std::span<std::unique_ptr<Workspace>> workspaces) {
  const base::NoFork whole;
  const std::lock_guard lock(mutex_);
  for (std::unique_ptr<Workspace>& workspace : workspaces) free_.push_back(std::move(workspace));
  made_ -= std::erase_if(free_, [&](const std::unique_ptr<Workspace>& workspace) {
    return clock_ - workspace->taken_ > shares_to_keep;
  });
}

std::vector<std::size_t> Scratch::sizes() {
  const base::NoFork whole;
  const std::lock_guard lock(mutex_);
  std::vector<std::size_t> sizes;
  for (const auto& workspace : free_) sizes.push_back(workspace->bytes());
  return sizes;
}

std::int64_t Scratch::release() {
  std::vector<std::unique_ptr<Workspace>> released;
  {
    const base::NoFork whole;
    const std::lock_guard lock(mutex_);
    released.reserve(free_.size());
    std::ranges::move(free_, std::back_inserter(released));
    free_.clear();
    made_ -= released.size();
  }
  std::int64_t bytes = 0;
  for (const auto& workspace : released) bytes += static_cast<std::int64_t>(workspace->bytes());
  return bytes;
}

}  // namespace treadle::run
