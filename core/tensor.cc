// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.h"

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <utility>

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

// Refuses to write to a view whose elements share memory.
void CheckDistinct(const char* operation, const Tensor& dst) {
  for (int d = 0; d < dst.ndim(); ++d) {
    TESSERA_CHECK(dst.strides()[d] != 0 || dst.shape()[d] <= 1 || dst.numel() == 0, operation, dst,
                  " has elements that share memory; write to a copy");
  }
}

// Refuses a negative size, and more elements than 64 bits count the bytes of. Strides are products
// of the other sizes, also where there is no element.
void CheckSizes(const char* operation, const Shape& shape, DType dtype) {
  int64_t bytes = DTypeSize(dtype);
  for (int64_t size : shape) {
    TESSERA_CHECK(size == 0 || (size > 0 && !__builtin_mul_overflow(bytes, size, &bytes)),
                  operation, dtype, shape,
                  " has a negative size, or more bytes than 64 bits count");
  }
}

// Whether gradients flow from it to what it was made of.
bool IsResult(const Tensor& t) {
  return t.record() != nullptr && is_result_of_tape != nullptr && is_result_of_tape(*t.record());
}

// Writing is no operation: gradients would be those of the numbers from before.
void CheckOffTape(const char* operation, const Tensor& dst, const Tensor* src) {
  if (!ExecutionContext::Current().records) return;
  TESSERA_CHECK(!IsResult(dst), operation, dst,
                " needs a gradient, which would not know of what is written; make a new tensor "
                "(x + y, Where, Cat), or write within NoGrad or to its Detach()");
  TESSERA_CHECK(src == nullptr || !IsResult(*src), operation, *src,
                " needs a gradient, which would be lost where it is written to; use x + y, Where "
                "or Cat, or write its Detach()");
}

// The bytes from the first to the last element of a view.
std::pair<const std::byte*, const std::byte*> SpanOf(const Tensor& t) {
  int64_t first = 0;
  int64_t last = 0;
  for (int d = 0; d < t.ndim(); ++d) {
    const int64_t along = (t.shape()[d] - 1) * t.strides()[d];
    (along < 0 ? first : last) += along;
  }
  const auto* begin = static_cast<const std::byte*>(t.raw_data());
  const auto size = static_cast<int64_t>(DTypeSize(t.dtype()));
  return {begin + first * size, begin + (last + 1) * size};
}

// A dimension of several elements.
struct Line {
  int64_t stride;
  int64_t size;
};

// Those of a view, by falling strides; how many there are.
int LinesOf(const Tensor& t, Line* lines) {
  int n = 0;
  for (int d = 0; d < t.ndim(); ++d) {
    if (t.shape()[d] <= 1) continue;
    const Line line = {std::abs(t.strides()[d]), t.shape()[d]};
    int at = n++;
    for (; at > 0 && lines[at - 1].stride < line.stride; --at) lines[at] = lines[at - 1];
    lines[at] = line;
  }
  return n;
}

// Whether two views with the same lines, so many elements from each other, have an element in
// common.
bool Meet(const Line* lines, int n, int64_t apart) {
  if (n == 0) return apart == 0;
  const int64_t stride = lines->stride;
  const int64_t low = (apart - (apart < 0 ? stride - 1 : 0)) / stride;
  for (int64_t steps = low; steps <= low + 1; ++steps) {
    if (std::abs(steps) < lines->size && Meet(lines + 1, n - 1, apart - steps * stride)) {
      return true;
    }
  }
  return false;
}

bool Overlap(const Tensor& a, const Tensor& b) {
  const auto [a_begin, a_end] = SpanOf(a);
  const auto [b_begin, b_end] = SpanOf(b);
  if (std::less_equal<>()(a_end, b_begin) || std::less_equal<>()(b_end, a_begin)) return false;
  const int64_t bytes =
      static_cast<const std::byte*>(b.raw_data()) - static_cast<const std::byte*>(a.raw_data());
  const auto size = static_cast<int64_t>(DTypeSize(a.dtype()));
  if (a.strides() != b.strides() || a.dtype() != b.dtype() || bytes % size != 0) return true;
  Line lines[kMaxDims];
  const int n = LinesOf(a, lines);
  int64_t inner = 1;  // elements that the lines behind one span
  for (int i = n - 1; i >= 0; --i) {
    if (lines[i].stride < inner) return true;  // not nested
    inner = lines[i].stride * lines[i].size;
  }
  return Meet(lines, n, bytes / size);
}

// `src`, or a copy of it where writing to `dst` would change what is still to be read.
Tensor Apart(const Tensor& dst, const Tensor& src) {
  if (dst.numel() == 0 || dst.device().is_meta() || dst.device() != src.device()) return src;
  const bool same = dst.raw_data() == src.raw_data() && dst.dtype() == src.dtype() &&
                    dst.strides() == src.strides();
  return same || !Overlap(dst, src) ? src : CastCopy(src, src.dtype());
}

std::string WhyReleased(const Storage& storage) {
  if (storage.keeper() != nullptr) return storage.keeper()->WhyReleased(storage);
  return "its memory was given back";
}

}  // namespace

Tensor::Tensor(std::shared_ptr<Storage> storage, const Shape& shape, const Shape& strides,
               int64_t offset, DType dtype)
    : impl_(std::make_shared<Impl>(Impl{std::move(storage), shape, strides, offset, shape.numel(),
                                        dtype, nullptr, nullptr})) {
  for (int64_t size : shape) TESSERA_CHECK(size >= 0, "tensor", "negative size in shape ", shape);
}

Tensor Tensor::FromBlob(void* data, const Shape& shape, DType dtype, Device device,
                        std::shared_ptr<void> owner) {
  CheckSizes("from_blob", shape, dtype);
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
  if (!is_contiguous()) CopyInto(copy, Detach());
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
  CheckSizes("empty", shape, dtype);
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
  CheckOffTape("fill", dst, nullptr);
  TESSERA_CHECK(Holds(dst.dtype(), value), "fill", dst.dtype(), " cannot hold ", value);
  dst.storage()->BumpVersion();
  if (dst.numel() == 0 || dst.device().is_meta()) return;
  fill_kernel.Launch(dst.device(), {ViewOf(dst), value});
}

namespace {

// CopyInto of any source: what copies of tensors are made by.
void CopyElements(const Tensor& dst, const Tensor& given) {
  TESSERA_CHECK(dst.shape() == given.shape(), "copy", "shapes differ: ", dst, " = ", given);
  CheckDistinct("copy", dst);
  const Tensor src = Apart(dst, given);
  dst.storage()->BumpVersion();
  if (dst.numel() == 0 || dst.device().is_meta() || src.device().is_meta()) {
    TESSERA_CHECK(dst.device().is_meta() || !src.device().is_meta() || src.numel() == 0, "copy",
                  src, " has no data to copy");
    return;
  }
  const Device& side = dst.device().is_cpu() ? src.device() : dst.device();
  copy_kernel.Launch(side, {ViewOf(dst), ViewOf(src)});
}

}  // namespace

void CopyInto(const Tensor& dst, const Tensor& src) {
  CheckOffTape("copy", dst, &src);
  CopyElements(dst, src);
}

void AddInto(const Tensor& dst, const Tensor& given) {
  CheckOffTape("add_into", dst, &given);
  TESSERA_CHECK(dst.shape() == given.shape() && dst.device() == given.device(), "add_into",
                "shapes or devices differ: ", dst, " += ", given);
  CheckDistinct("add_into", dst);
  const Tensor src = Apart(dst, given);
  dst.storage()->BumpVersion();
  if (dst.numel() == 0 || dst.device().is_meta()) return;
  add_kernel.Launch(dst.device(), {ViewOf(dst), ViewOf(src)});
}

Tensor CastCopy(const Tensor& src, DType dtype) {
  Tensor dst = Empty(src.shape(), dtype, src.device());
  CopyElements(dst, src);
  dst.SeverFrom(src, "CastCopy");
  return dst;
}

Tensor CopyTo(const Tensor& src, Device device) {
  if (src.device() == device) return src.ContiguousCopy();
  // Before the memory for it is asked for: what lies on meta may be larger than any machine.
  TESSERA_CHECK(device.is_meta() || !src.device().is_meta(), "copy", src, " has no data to copy");
  Tensor dst = Empty(src.shape(), src.dtype(), device);
  CopyElements(dst, src);
  dst.SeverFrom(src, "CopyTo");
  return dst;
}

}  // namespace tessera
