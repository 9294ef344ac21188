// Dims: a few integers, one for each axis of a tensor. Shapes, strides and indices are such.
//
//   Dims shape{1, 8, 4096, 64};
//   shape[2] = 1;
//
// Like a std::vector, but up to six of them need no memory of their own: views are made and copied in
// every call.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <stdexcept>
#include <vector>

namespace treadle {

// Lengths or strides, one for each axis. Up to six need no memory of their own.
class Dims {
 public:
  // As in containers of the standard library.
  using value_type = std::int64_t;
  using iterator = std::int64_t*;
  using const_iterator = const std::int64_t*;

  // None, copies, so many equal ones, these, or those of a range.
  Dims() = default;
  // Moving copies: what was moved from stays what it was.
  Dims(const Dims& other) { *this = other; }
  Dims& operator=(const Dims& other) {
    size_ = other.size_;
    some_ = other.some_;
    if (size_ > few) many_ = other.many_;
    return *this;
  }
  ~Dims() = default;
  // So many equal ones, these, or those of a range.
  explicit Dims(std::size_t size, std::int64_t value = 0) {
    resize(size);
    std::fill(begin(), end(), value);
  }
  Dims(std::initializer_list<std::int64_t> values) : Dims(values.begin(), values.end()) {}
  Dims(const std::vector<std::int64_t>& values)  // NOLINT(google-explicit-constructor)
      : Dims(values.begin(), values.end()) {}
  template <std::forward_iterator Iterator>
  Dims(Iterator first, Iterator last) {
    resize(static_cast<std::size_t>(std::distance(first, last)));
    std::copy(first, last, begin());
  }

  // As in std::vector.
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::int64_t* data() { return size_ <= few ? some_.data() : many_.data(); }
  [[nodiscard]] const std::int64_t* data() const {
    return size_ <= few ? some_.data() : many_.data();
  }
  [[nodiscard]] iterator begin() { return data(); }
  [[nodiscard]] iterator end() { return data() + size_; }
  [[nodiscard]] const_iterator begin() const { return data(); }
  [[nodiscard]] const_iterator end() const { return data() + size_; }
  [[nodiscard]] std::int64_t& operator[](std::size_t i) { return data()[i]; }
  [[nodiscard]] const std::int64_t& operator[](std::size_t i) const { return data()[i]; }
  // Throws std::out_of_range.
  [[nodiscard]] const std::int64_t& at(std::size_t i) const {
    if (i >= size_) throw std::out_of_range("treadle::Dims: there is no such axis");
    return data()[i];
  }
  // As in std::vector.
  [[nodiscard]] std::int64_t& front() { return data()[0]; }
  [[nodiscard]] const std::int64_t& front() const { return data()[0]; }
  [[nodiscard]] std::int64_t& back() { return data()[size_ - 1]; }
  [[nodiscard]] const std::int64_t& back() const { return data()[size_ - 1]; }

  // As in std::vector.
  void push_back(std::int64_t value) {
    resize(size_ + 1);
    back() = value;
  }
  void pop_back() { resize(size_ - 1); }
  // New ones are 0.
  void resize(std::size_t size) {
    if (size > few && size_ <= few) many_.assign(some_.begin(), some_.begin() + size_);
    if (size <= few && size_ > few) std::copy_n(many_.begin(), size, some_.begin());
    if (size > few) many_.resize(size);
    for (std::size_t i = size_; i < std::min(size, few); ++i) some_[i] = 0;
    size_ = size;
  }

  // Axis by axis, the first one first.
  bool operator==(const Dims& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }
  auto operator<=>(const Dims& other) const {
    return std::lexicographical_compare_three_way(begin(), end(), other.begin(), other.end());
  }

 private:
  static constexpr std::size_t few = 6;

  std::size_t size_ = 0;
  std::array<std::int64_t, few> some_{};  // if there are few,
  std::vector<std::int64_t> many_;        // else all of them
};

}  // namespace treadle
