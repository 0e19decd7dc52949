// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensors.h"

#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "core/shape.h"
#include "core/tensor.h"
#include "runtime/border.h"
#include "runtime/handles.h"

namespace tessera::runtime {
namespace {

struct NamedDType {
  tsr_dtype outside;
  DType inside;
};
constexpr NamedDType kDTypes[] = {{TSR_FLOAT32, DType::kFloat32}, {TSR_BFLOAT16, DType::kBFloat16},
                                  {TSR_FLOAT16, DType::kFloat16}, {TSR_FLOAT64, DType::kFloat64},
                                  {TSR_INT64, DType::kInt64},     {TSR_INT32, DType::kInt32},
                                  {TSR_UINT8, DType::kUInt8},     {TSR_BOOL, DType::kBool}};

std::optional<DType> FromOutside(tsr_dtype dtype) {
  for (const NamedDType& pair : kDTypes) {
    if (pair.outside == dtype) return pair.inside;
  }
  return std::nullopt;
}

tsr_dtype ToOutside(DType dtype) {
  for (const NamedDType& pair : kDTypes) {
    if (pair.inside == dtype) return pair.outside;
  }
  return TSR_DTYPE_DEFAULT;
}

StatusOr<Tensor> TensorOf(const std::string& where, const tsr_named_tensor& in) {
  const std::optional<DType> dtype = FromOutside(in.dtype);
  if (!dtype) return InvalidArgument(where, ": dtype ", in.dtype, " is unknown");
  if (in.rank > static_cast<size_t>(kMaxDims)) {
    return InvalidArgument(where, ": ", in.rank, " dimensions; there may be ", kMaxDims);
  }
  TESSERA_RETURN_IF_ERROR(CheckArray(in.shape, in.rank, (where + ": shape").c_str()));
  const std::vector<int64_t> sizes(in.shape, in.shape + in.rank);
  auto bytes = static_cast<int64_t>(DTypeSize(*dtype));
  for (const int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) {
      return InvalidArgument(where, ": a dimension of ", size, " cannot be");
    }
  }
  if (static_cast<size_t>(bytes) != in.bytes) {
    return InvalidArgument(where, ": ", in.bytes, " bytes, where ", DTypeName(*dtype), " and the ",
                           "shape need ", bytes);
  }
  TESSERA_RETURN_IF_ERROR(CheckArray(in.data, in.bytes, (where + ": data").c_str()));
  if (*dtype == DType::kBool) {
    const auto* const elements = static_cast<const unsigned char*>(in.data);
    for (size_t i = 0; i < in.bytes; ++i) {
      if (elements[i] > 1) return InvalidArgument(where, ": byte ", i, " is neither 0 nor 1");
    }
  }
  const Tensor t = Empty(Shape(sizes), *dtype);
  if (in.bytes > 0) std::memcpy(t.raw_data(), in.data, in.bytes);
  return t;
}

constexpr size_t kAlignment = 64;
constexpr size_t Aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// A block that is filled from its front.
class Block {
 public:
  explicit Block(size_t bytes)
      : begin_(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(kAlignment)))),
        end_(begin_.get()) {}

  void* Take(size_t bytes) {
    void* const place = end_;
    end_ += Aligned(bytes);
    return place;
  }
  void* Release() { return begin_.release(); }

  struct Delete {
    void operator()(std::byte* block) const {
      ::operator delete(block, std::align_val_t(kAlignment));
    }
  };

 private:
  std::unique_ptr<std::byte, Delete> begin_;
  std::byte* end_;
};

}  // namespace

StatusOr<DType> ComputeDType(tsr_dtype dtype) {
  if (dtype == TSR_DTYPE_DEFAULT) return DType::kFloat32;
  const std::optional<DType> known = FromOutside(dtype);
  if (known && (*known == DType::kFloat32 || IsHalf(*known))) return *known;
  const std::string name = known ? std::string(DTypeName(*known)) : Concat(static_cast<int>(dtype));
  return InvalidArgument("dtype ", name, ": models compute in float32, bfloat16 or float16");
}

StatusOr<std::vector<Bundle::Entry>> TensorsOf(const char* source, const tsr_named_tensor* in,
                                               size_t n) {
  // More names than any model has are a mistake, and are not walked through.
  constexpr size_t kMost = 4096;
  if (n > kMost) return InvalidArgument(source, ": ", n, " tensors");
  TESSERA_RETURN_IF_ERROR(CheckArray(in, n, "in"));
  std::vector<Bundle::Entry> tensors;
  for (size_t i = 0; i < n; ++i) {
    if (in[i].name == nullptr) return InvalidArgument(source, ": tensor ", i, " has no name");
    const std::string name = in[i].name;
    TESSERA_ASSIGN_OR_RETURN(const Tensor t, TensorOf(Concat(source, ": '", name, "'"), in[i]));
    tensors.emplace_back(name, t);
  }
  return tensors;
}

tsr_named_tensor* ToNamedTensors(const std::vector<Bundle::Entry>& tensors) {
  std::vector<Bundle::Entry> host;
  for (const auto& [name, t] : tensors) {
    if (t.defined()) host.emplace_back(name, CopyTo(t, Device::Cpu()).ContiguousCopy());
  }
  size_t bytes = Aligned(sizeof(tsr_named_tensor) * host.size() + 1);
  for (const auto& [name, t] : host) {
    bytes += Aligned(name.size() + 1) + Aligned(sizeof(int64_t) * t.shape().ndim()) +
             Aligned(static_cast<size_t>(t.nbytes()));
  }
  Block block(bytes);
  auto* const out =
      static_cast<tsr_named_tensor*>(block.Take(sizeof(tsr_named_tensor) * host.size() + 1));
  for (size_t i = 0; i < host.size(); ++i) {
    const auto& [name, t] = host[i];
    const auto rank = static_cast<size_t>(t.shape().ndim());
    const auto size = static_cast<size_t>(t.nbytes());
    auto* const text = static_cast<char*>(block.Take(name.size() + 1));
    std::memcpy(text, name.c_str(), name.size() + 1);
    auto* const shape = static_cast<int64_t*>(block.Take(sizeof(int64_t) * rank));
    for (size_t d = 0; d < rank; ++d) shape[d] = t.size(static_cast<int64_t>(d));
    void* const data = block.Take(size);
    if (size > 0) std::memcpy(data, t.raw_data(), size);
    new (&out[i]) tsr_named_tensor{text, ToOutside(t.dtype()), rank, shape, data, size};
  }
  AddHandle(out, HandleKind::kTensors);
  block.Release();
  return out;
}

namespace {

Status Release(tsr_named_tensor* tensors) {
  if (tensors == nullptr) return OkStatus();
  TESSERA_RETURN_IF_ERROR(RemoveHandle(tensors, HandleKind::kTensors));
  Block::Delete()(reinterpret_cast<std::byte*>(tensors));
  return OkStatus();
}

}  // namespace
}  // namespace tessera::runtime

tsr_status* tsr_tensors_release(tsr_named_tensor* tensors) {
  return tessera::runtime::AtBorder([&] { return tessera::runtime::Release(tensors); });
}
