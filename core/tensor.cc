// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.h"

#include <cmath>
#include <limits>
#include <string>

#include "core/execution_context.h"
#include "core/raw_kernels.h"

namespace tessera {
namespace {

RawView ViewOf(const Tensor& t) {
  return {t.raw_data(), t.dtype(), t.device(), t.shape(), t.strides()};
}

// Whether a conversion of `value` to the dtype is defined and keeps its size.
bool Holds(DType dtype, double value) {
  // bfloat16's largest number; <limits> knows nothing of the 16-bit ones.
  constexpr double kLargestBFloat16 = 0x1.fep127;
  const auto within = [&](double largest) {
    return !std::isfinite(value) || std::abs(value) <= largest;
  };
  switch (dtype) {
    case DType::kFloat32:
      return within(std::numeric_limits<float>::max());
    case DType::kBFloat16:
      return within(kLargestBFloat16);
    case DType::kFloat16:
      return within(65504.0);
    // Fractions are cut off; NaN is in no range.
    case DType::kInt64:
      return value >= -0x1p63 && value < 0x1p63;
    case DType::kInt32:
      return value > -0x1p31 - 1 && value < 0x1p31;
    case DType::kUInt8:
      return value > -1 && value < 256;
    case DType::kFloat64:
    case DType::kBool:
      return true;
  }
  return false;
}

std::string WhyReleased(const Storage& storage) {
  if (storage.keeper() != nullptr) return storage.keeper()->WhyReleased(storage);
  return "its memory was given back";
}

}  // namespace

Tensor::Tensor(std::shared_ptr<Storage> storage, const Shape& shape, const Shape& strides,
               int64_t offset, DType dtype)
    : impl_(std::make_shared<Impl>(Impl{std::move(storage), shape, strides, offset, shape.numel(),
                                        dtype, nullptr, nullptr})) {}

Tensor Tensor::FromBlob(void* data, const Shape& shape, DType dtype, Device device,
                        std::shared_ptr<void> owner) {
  TESSERA_CHECK(data != nullptr || shape.numel() == 0, "from_blob", "no memory for shape ", shape);
  const auto bytes = static_cast<size_t>(BytesOf(dtype, shape.numel()));
  return Tensor(std::make_shared<Storage>(data, bytes, device, std::move(owner)), shape,
                ContiguousStrides(shape), 0, dtype);
}

Tensor Tensor::Scalar(double value, DType dtype) { return Full({}, value, dtype); }

bool Tensor::is_contiguous() const {
  int64_t expected = 1;
  if (numel() <= 1) return true;
  for (int i = ndim() - 1; i >= 0; --i) {
    if (shape()[i] == 1) continue;
    if (strides()[i] != expected) return false;
    expected *= shape()[i];
  }
  return true;
}

void* Tensor::raw_data() const {
  const Impl& t = impl();
  TESSERA_CHECK(!t.storage->released(), "data", *this,
                " has no elements now: ", WhyReleased(*t.storage));
  if (t.storage->data() == nullptr) return nullptr;
  return static_cast<char*>(t.storage->data()) + BytesOf(t.dtype, t.offset);
}

void* Tensor::data_of(DType asked) const {
  TESSERA_CHECK(asked == dtype(), "data", "asked for ", asked, ", the tensor is ", *this);
  TESSERA_CHECK(!device().is_meta(), "data", *this,
                " has no elements: a tensor on meta is a shape and a dtype alone");
  return raw_data();
}

// This tensor, marked where it is a floating result of one that takes part.
void Tensor::SeverFrom(const Tensor& source, const char* function) const {
  const Impl& from = source.impl();
  if (from.record == nullptr && from.severed_by == nullptr) return;
  if (ExecutionContext::Current().records && IsFloating(dtype())) impl().severed_by = function;
}

Tensor Tensor::AsStrided(const Shape& shape, const Shape& strides, int64_t offset) const {
  TESSERA_CHECK(shape.ndim() == strides.ndim(), "as_strided", "shape ", shape, " and strides ",
                strides, " differ in length");
  for (const int64_t size : shape) {
    TESSERA_CHECK(size >= 0, "as_strided", "negative size in shape ", shape);
  }
  if (shape.numel() > 0) {
    int64_t first = offset;
    int64_t last = offset;
    for (int i = 0; i < shape.ndim(); ++i) {
      (strides[i] < 0 ? first : last) += (shape[i] - 1) * strides[i];
    }
    const auto bytes = static_cast<int64_t>(impl().storage->bytes());
    TESSERA_CHECK(first >= 0 && BytesOf(dtype(), last + 1) <= bytes, "as_strided", "shape ", shape,
                  " strides ", strides, " offset ", offset, " leave the storage of ", bytes,
                  " bytes");
  }
  Tensor view(impl().storage, shape, strides, offset, impl().dtype);
  view.SeverFrom(*this, "AsStrided");
  return view;
}

Tensor Tensor::Detach() const {
  return Tensor(impl().storage, impl().shape, impl().strides, impl().offset, impl().dtype);
}

Tensor Tensor::ContiguousCopy() const {
  Tensor copy = is_contiguous() ? Detach() : EmptyLike(*this);
  if (!is_contiguous()) CopyInto(copy, *this);
  copy.SeverFrom(*this, "ContiguousCopy");
  return copy;
}

double Tensor::Item() const {
  TESSERA_CHECK(numel() == 1, "item", "the tensor has ", numel(), " elements: ", *this);
  return ToVector<double>()[0];
}

void Tensor::set_record(std::shared_ptr<AutogradRecord> record) const {
  impl().severed_by = nullptr;
  impl().record = std::move(record);
}

TextBuilder& operator<<(TextBuilder& text, const Tensor& t) {
  if (!t.defined()) return text << "undefined";
  text << t.dtype() << t.shape();
  if (!t.device().is_cpu()) text << " on " << t.device();
  return text;
}

Tensor Empty(const Shape& shape, DType dtype, Device device) {
  for (int64_t size : shape) {
    TESSERA_CHECK(size >= 0, "empty", "negative size in shape ", shape);
  }
  auto storage =
      std::make_shared<Storage>(static_cast<size_t>(BytesOf(dtype, shape.numel())), device);
  return Tensor(std::move(storage), shape, ContiguousStrides(shape), 0, dtype);
}

Tensor Zeros(const Shape& shape, DType dtype, Device device) {
  return Full(shape, 0, dtype, device);
}

Tensor Full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor t = Empty(shape, dtype, device);
  Fill(t, value);
  return t;
}

Tensor Arange(int64_t n, Device device) {
  Tensor t = Empty({n}, DType::kInt64, device);
  count_kernel.Launch(device, {static_cast<int64_t*>(t.raw_data()), n});
  return t;
}

Tensor EmptyLike(const Tensor& like) { return Empty(like.shape(), like.dtype(), like.device()); }
Tensor ZerosLike(const Tensor& like) { return Zeros(like.shape(), like.dtype(), like.device()); }

void Fill(const Tensor& dst, double value) {
  TESSERA_CHECK(Holds(dst.dtype(), value), "fill", dst.dtype(), " cannot hold ", value);
  dst.storage()->BumpVersion();
  if (dst.numel() == 0 || dst.device().is_meta()) return;
  fill_kernel.Launch(dst.device(), {ViewOf(dst), value});
}

void CopyInto(const Tensor& dst, const Tensor& src) {
  TESSERA_CHECK(dst.shape() == src.shape(), "copy", "shapes differ: ", dst, " = ", src);
  dst.storage()->BumpVersion();
  if (dst.numel() == 0 || dst.device().is_meta() || src.device().is_meta()) {
    TESSERA_CHECK(dst.device().is_meta() || !src.device().is_meta() || src.numel() == 0, "copy",
                  src, " has no data to copy");
    return;
  }
  const Device& side = dst.device().is_cpu() ? src.device() : dst.device();
  copy_kernel.Launch(side, {ViewOf(dst), ViewOf(src)});
}

void AddInto(const Tensor& dst, const Tensor& src) {
  TESSERA_CHECK(dst.shape() == src.shape() && dst.device() == src.device(), "add_into",
                "shapes or devices differ: ", dst, " += ", src);
  dst.storage()->BumpVersion();
  if (dst.numel() == 0 || dst.device().is_meta()) return;
  add_kernel.Launch(dst.device(), {ViewOf(dst), ViewOf(src)});
}

Tensor CastCopy(const Tensor& src, DType dtype) {
  Tensor dst = Empty(src.shape(), dtype, src.device());
  CopyInto(dst, src);
  dst.SeverFrom(src, "CastCopy");
  return dst;
}

Tensor CopyTo(const Tensor& src, Device device) {
  if (src.device() == device) return src.ContiguousCopy();
  // Before the memory for it is asked for: what lies on meta may be larger than any machine.
  TESSERA_CHECK(device.is_meta() || !src.device().is_meta(), "copy", src, " has no data to copy");
  Tensor dst = Empty(src.shape(), src.dtype(), device);
  CopyInto(dst, src);
  dst.SeverFrom(src, "CopyTo");
  return dst;
}

}  // namespace tessera
