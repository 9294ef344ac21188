// FixedList: things that stay where they are, so many as are said before the first is made. Its memory
// is kept when it is started again.
//
//   FixedList<ForwardMemory> memory;
//   memory.start(calls.size());
//   for (const auto* call : calls) memory.emplace(*call);
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace treadle::base {

template <class T>
class FixedList {
 public:
  FixedList() = default;
  FixedList(const FixedList&) = delete;
  FixedList& operator=(const FixedList&) = delete;
  ~FixedList() { clear(); }

  // Empty, with room for that many.
  void start(std::size_t most) {
    clear();
    if (most <= room_) return;
    places_ = std::make_unique<Place[]>(most);
    room_ = most;
  }
  void clear() {
    while (size_ > 0) std::destroy_at(&(*this)[--size_]);
  }
  // There has to be room.
  template <class... Args>
  T& emplace(Args&&... args) {
    T* made = std::construct_at(&places_[size_].thing, std::forward<Args>(args)...);
    ++size_;
    return *made;
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] T& operator[](std::size_t i) { return places_[i].thing; }
  [[nodiscard]] const T& operator[](std::size_t i) const { return places_[i].thing; }

 private:
  union Place {
    Place() {}   // NOLINT(modernize-use-equals-default): it would be deleted
    ~Place() {}  // NOLINT(modernize-use-equals-default)
    T thing;
  };
  std::unique_ptr<Place[]> places_;
  std::size_t room_ = 0, size_ = 0;
};

}  // namespace treadle::base
