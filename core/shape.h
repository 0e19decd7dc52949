// SPDX-License-Identifier: Apache-2.0
// The sizes (and strides) of a tensor: a small fixed-capacity vector of int64, no allocation.
//
//   Shape s{2, 3, 4};  s.numel() == 24;  s.ndim() == 3;  s[-1] == 4
#ifndef TESSERA_CORE_SHAPE_H_
#define TESSERA_CORE_SHAPE_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tessera {

inline constexpr int kMaxDims = 8;

class Shape;
inline TextBuilder& operator<<(TextBuilder& text, const Shape& shape);

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) : Shape(sizes.begin(), sizes.end()) {}
  explicit Shape(const std::vector<int64_t>& sizes) : Shape(sizes.begin(), sizes.end()) {}
  template <typename It>
  Shape(It begin, It end) {
    for (; begin != end; ++begin) push_back(*begin);
  }

  int ndim() const { return ndim_; }
  bool empty() const { return ndim_ == 0; }
  // Negative dims count from the end.
  int64_t operator[](int dim) const { return sizes_[Normalize(dim)]; }
  int64_t& operator[](int dim) { return sizes_[Normalize(dim)]; }
  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + ndim_; }

  void push_back(int64_t size) {
    if (ndim_ >= kMaxDims) [[unlikely]]
      ThrowTooMany();
    sizes_[ndim_++] = size;
  }
  void erase(int dim) {
    dim = Normalize(dim);
    for (int i = dim; i + 1 < ndim_; ++i) sizes_[i] = sizes_[i + 1];
    --ndim_;
  }
  void insert(int dim, int64_t size) {
    push_back(size);
    for (int i = ndim_ - 1; i > dim; --i) sizes_[i] = sizes_[i - 1];
    sizes_[dim] = size;
  }

  // The number of elements; 1 for a scalar.
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t s : *this) n *= s;
    return n;
  }

  // A dim in [-ndim, ndim) as one in [0, ndim). Throws Error(operation) for another one.
  int Normalize(int dim, std::string_view operation = "shape") const {
    const int normalized = dim < 0 ? dim + ndim_ : dim;
    if (normalized < 0 || normalized >= ndim_) [[unlikely]]
      ThrowOutOfRange(dim, operation);
    return normalized;
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.ndim_ != b.ndim_) return false;
    for (int i = 0; i < a.ndim_; ++i) {
      if (a.sizes_[i] != b.sizes_[i]) return false;
    }
    return true;
  }

 private:
  // Out of line: hundreds of sources ask for a size.
  [[noreturn]] static void ThrowTooMany();
  [[noreturn]] void ThrowOutOfRange(int dim, std::string_view operation) const;

  std::array<int64_t, kMaxDims> sizes_{};
  int ndim_ = 0;
};

// "[2, 3]".
inline TextBuilder& operator<<(TextBuilder& text, const Shape& shape) {
  text << '[';
  for (int i = 0; i < shape.ndim(); ++i) text << (i ? ", " : "") << shape[i];
  return text << ']';
}

// Row-major strides (in elements) of a contiguous tensor.
inline Shape ContiguousStrides(const Shape& shape) {
  Shape strides = shape;
  int64_t stride = 1;
  for (int i = shape.ndim() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

// NumPy broadcasting: dims align from the right, a size of 1 stretches. Throws Error(operation).
Shape BroadcastShapes(const Shape& a, const Shape& b, std::string_view operation);

}  // namespace tessera

#endif  // TESSERA_CORE_SHAPE_H_
