// SPDX-License-Identifier: Apache-2.0
// The tensor: a cheap value handle onto storage + shape + strides + dtype + device, and, where it
// takes part in differentiation, an autograd record.
//
//   Tensor x = Tensor::FromVector<float>({1, 2, 3, 4}, {2, 2});
//   Tensor y = Zeros({2, 2}, DType::kFloat32);
//   CopyInto(y, x);                       // y = x, casting where dtypes differ
//   std::vector<float> v = y.ToVector<float>();
//
// Copies of a Tensor refer to the same elements. Strides count elements. This header knows nothing
// of gradients but the opaque record: operations that users call and differentiate are in ops/.
#ifndef TESSERA_CORE_TENSOR_H_
#define TESSERA_CORE_TENSOR_H_

#include <concepts>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/shape.h"
#include "core/storage.h"

namespace tessera {

// What autograd/ attaches to a tensor.
class AutogradRecord {
 public:
  virtual ~AutogradRecord() = default;
};

class Tensor {
 public:
  // An undefined tensor: `defined()` is false and nothing else may be asked.
  Tensor() = default;

  // Views `storage` from element `offset` on. The caller answers for the bounds.
  Tensor(std::shared_ptr<Storage> storage, const Shape& shape, const Shape& strides, int64_t offset,
         DType dtype);

  // A new CPU tensor with the given elements in row-major order.
  template <typename T>
  static Tensor FromVector(const std::vector<T>& values, const Shape& shape);
  // Views a caller's memory, row-major, without copying: changes show on both sides. `owner` keeps
  // it alive; without one the caller does, for as long as there is a tensor. What is const cannot
  // be written to (Storage::ReadOnly). (torch::from_blob)
  //
  //   std::vector<float> pixels(3 * h * w);
  //   Tensor x = Tensor::FromBlob(pixels.data(), {3, h, w});
  template <typename T>
  static Tensor FromBlob(T* data, const Shape& shape, std::shared_ptr<const void> owner = nullptr);
  // The same by dtype and device: a pointer into a GPU's memory, say.
  static Tensor FromBlob(void* data, const Shape& shape, DType dtype, Device device,
                         std::shared_ptr<void> owner = nullptr);
  // A 0-d CPU tensor.
  static Tensor Scalar(double value, DType dtype = DType::kFloat32);

  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const { return impl().shape; }
  const Shape& strides() const { return impl().strides; }
  int ndim() const { return impl().shape.ndim(); }
  int64_t size(int dim) const { return impl().shape[dim]; }
  int64_t stride(int dim) const { return impl().strides[dim]; }
  int64_t numel() const { return impl().numel; }
  DType dtype() const { return impl().dtype; }
  const Device& device() const { return impl().storage->device(); }
  // Offset of the first element in its storage, in elements.
  int64_t offset() const { return impl().offset; }
  const std::shared_ptr<Storage>& storage() const { return impl().storage; }
  // Bytes of the elements, numel * element size.
  int64_t nbytes() const { return BytesOf(dtype(), numel()); }

  // Row-major without gaps (also true for empty and one-element tensors).
  bool is_contiguous() const;

  // The first element. Throws Error while the storage is released. T must be the C++ type of
  // dtype(). On meta, where there are no elements, `data` throws Error, and `raw_data` is nullptr.
  void* raw_data() const;
  template <typename T>
  T* data() const {
    return static_cast<T*>(data_of(DTypeOf<T>::value));
  }

  // The same elements without an autograd record: a constant.
  Tensor Detach() const;
  // Outside of the tape. What they make of a tensor that takes part, while operations record, is
  // severed: it has no gradient to pass on, and an operation refuses it unless it is detached
  // first. Reshape, Slice, ... and Contiguous of ops/view/view.h are those on the tape.
  //
  // Another view of the same storage. `offset` is absolute, in elements.
  Tensor AsStrided(const Shape& shape, const Shape& strides, int64_t offset) const;
  // Itself when contiguous, else a contiguous copy.
  Tensor ContiguousCopy() const;

  // Elements in row-major order, converted to T; from any device but meta.
  template <typename T>
  std::vector<T> ToVector() const;
  // The only element of a one-element tensor.
  double Item() const;

  // autograd's; see autograd/autograd.h.
  const std::shared_ptr<AutogradRecord>& record() const { return impl().record; }
  void set_record(std::shared_ptr<AutogradRecord> record) const;
  // The function that severed it from the tape ("AsStrided"); nullptr: none did.
  const char* severed_by() const { return impl().severed_by; }

  // Whether this is the only handle to the elements: no other tensor or view would see a change.
  bool is_exclusive() const { return impl_.use_count() == 1 && impl().storage.use_count() == 1; }
  // Whether both are the same handle (not merely equal elements).
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }

 private:
  struct Impl {
    std::shared_ptr<Storage> storage;
    Shape shape;
    Shape strides;
    int64_t offset = 0;
    int64_t numel = 0;
    DType dtype = DType::kFloat32;
    const char* severed_by = nullptr;
    std::shared_ptr<AutogradRecord> record;
  };
  Impl& impl() const {
    TESSERA_CHECK(impl_ != nullptr, "tensor", "the tensor is undefined");
    return *impl_;
  }
  void* data_of(DType asked) const;
  void SeverFrom(const Tensor& source, const char* function) const;
  friend TextBuilder& operator<<(TextBuilder& text, const Tensor& t);
  friend Tensor CastCopy(const Tensor& src, DType dtype);
  friend Tensor CopyTo(const Tensor& src, Device device);

  std::shared_ptr<Impl> impl_;
};

// "float32[2, 3]", with the device where it is not the CPU: what error messages show.
TextBuilder& operator<<(TextBuilder& text, const Tensor& t);

// The values, then the above: "tensor([1.0000, 2.5000], float32[2])". Streams show the same.
// core/tensor_text.h has options.
std::string ToString(const Tensor& t);
template <std::derived_from<std::ostream> Out>
Out& operator<<(Out& out, const Tensor& t) {
  out << ToString(t);
  return out;
}

// New contiguous tensors.
Tensor Empty(const Shape& shape, DType dtype = DType::kFloat32, Device device = Device::Cpu());
Tensor Zeros(const Shape& shape, DType dtype = DType::kFloat32, Device device = Device::Cpu());
Tensor Full(const Shape& shape, double value, DType dtype = DType::kFloat32,
            Device device = Device::Cpu());
// 0, 1, ..., n-1 as int64.
Tensor Arange(int64_t n, Device device = Device::Cpu());
// Uninitialised, with the dtype and device of `like`.
Tensor EmptyLike(const Tensor& like);
Tensor ZerosLike(const Tensor& like);

// Writing, outside of the tape; each bumps the destination's version. Any strides. While operations
// record, each throws Error for a result of the tape on either side, whose gradient would be that
// of the numbers from before: write its Detach(), or within NoGrad. Leaves are written as they are.
// dst = value, its fraction cut off where dst holds whole numbers. Throws Error for a value out of
// dst's range, and for NaN where dst holds whole numbers. Full and Scalar are filled by it.
void Fill(const Tensor& dst, double value);
// dst = src, cast to dst's dtype, across devices; shapes must be equal.
void CopyInto(const Tensor& dst, const Tensor& src);
// dst += src, computed in AccumulateDType(dst); shapes must be equal, one device.
void AddInto(const Tensor& dst, const Tensor& src);

// A contiguous copy with another dtype and/or on another device, outside of the tape (severed, as
// above). Cast and ToDevice of ops/cast/cast.h are those on it.
Tensor CastCopy(const Tensor& src, DType dtype);
Tensor CopyTo(const Tensor& src, Device device);

template <typename T>
Tensor Tensor::FromVector(const std::vector<T>& values, const Shape& shape) {
  TESSERA_CHECK(static_cast<int64_t>(values.size()) == shape.numel(), "from_vector", values.size(),
                " values for shape ", shape);
  Tensor t = Empty(shape, DTypeOf<T>::value);
  T* data = t.data<T>();
  for (size_t i = 0; i < values.size(); ++i) data[i] = values[i];
  return t;
}

template <typename T>
Tensor Tensor::FromBlob(T* data, const Shape& shape, std::shared_ptr<const void> owner) {
  constexpr DType kDType = DTypeOf<std::remove_const_t<T>>::value;
  if constexpr (std::is_const_v<T>) {
    const auto bytes = static_cast<size_t>(BytesOf(kDType, shape.numel()));
    return Tensor(Storage::ReadOnly(data, bytes, std::move(owner)), shape, ContiguousStrides(shape),
                  0, kDType);
  } else {
    return FromBlob(data, shape, kDType, Device::Cpu(),
                    std::const_pointer_cast<void>(std::move(owner)));
  }
}

template <typename T>
std::vector<T> Tensor::ToVector() const {
  const Tensor host = CopyTo(*this, Device::Cpu());
  std::vector<T> values(static_cast<size_t>(host.numel()));
  DispatchAll(host.dtype(), "to_vector", [&](auto zero) {
    using S = decltype(zero);
    const S* data = host.data<S>();
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(data[i]);
  });
  return values;
}

}  // namespace tessera

#endif  // TESSERA_CORE_TENSOR_H_
