// SPDX-License-Identifier: Apache-2.0
// Fill, count, copy-with-cast and add-into on the GPU, and copies between host and GPU.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/cuda/allocator.h"
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/strided_index.h"
#include "core/device_graph.h"
#include "core/raw_kernels.h"

namespace tessera::cuda {
namespace {

// The rules of core/raw_kernels_cpu.cc.
template <typename D, typename S>
__device__ __forceinline__ D CastTo(S value) {
  if constexpr (std::is_same_v<D, S>) {
    return value;
  } else if constexpr (std::is_same_v<D, bool>) {
    if constexpr (kIsHalf<S>) {
      return ToWide(value) != 0.0f;
    } else {
      return value != S(0);
    }
  } else if constexpr (kIsHalf<D>) {
    if constexpr (kIsHalf<S>) {
      return FromWide<D>(ToWide(value));
    } else {
      return FromWide<D>(static_cast<float>(value));
    }
  } else if constexpr (kIsHalf<S>) {
    return static_cast<D>(ToWide(value));
  } else {
    return static_cast<D>(value);
  }
}

template <typename D, typename S>
__global__ void CopyStrided(StridedIndex<2> index, D* dst, const S* src) {
  for (int64_t i = GridThread(); i < index.numel; i += GridThreads()) {
    int64_t at[2];
    index.Offsets(i, at);
    dst[at[0]] = CastTo<D>(src[at[1]]);
  }
}

// Groups of kCount elements; a source that repeats along the last dim is read once per group.
template <typename D, typename S, int kCount>
__global__ void CopyGroups(StridedIndex<2> index, D* dst, const S* src, bool repeats) {
  for (int64_t i = GridThread(); i < index.numel; i += GridThreads()) {
    int64_t at[2];
    index.Offsets(i, at);
    Vec<D, kCount> out;
    if (repeats) {
      const D value = CastTo<D>(src[at[1]]);
#pragma unroll
      for (int k = 0; k < kCount; ++k) out.v[k] = value;
    } else {
      const Vec<S, kCount> in = LoadVec<kCount>(src + at[1]);
#pragma unroll
      for (int k = 0; k < kCount; ++k) out.v[k] = CastTo<D>(in.v[k]);
    }
    StoreVec<kCount>(dst + at[0], out);
  }
}

constexpr int kGroup = 4;

// Moves, and casts that training steps are made of; the others go element by element.
template <typename T>
inline constexpr bool kNarrowFloat = kIsHalf<T> || std::is_same_v<T, float>;
template <typename D, typename S>
inline constexpr bool kGrouped = std::is_same_v<D, S> || (kNarrowFloat<D> && kNarrowFloat<S>);

template <typename D, typename S>
void CopyTyped(const StridedIndex<2>& index, void* dst, const void* src) {
  D* d = static_cast<D*>(dst);
  const S* s = static_cast<const S*>(src);
  const bool repeats = index.inner_stride(1) == 0;
  if constexpr (kGrouped<D, S>) {
    if (index.CanVectorize(kGroup) && index.inner_stride(0) == 1 &&
        IsAligned(d, sizeof(D) * kGroup) && (repeats || IsAligned(s, sizeof(S) * kGroup))) {
      const StridedIndex<2> groups = index.Vectorized(kGroup);
      Launch("copy", {GridFor(groups.numel), kThreads}, CopyGroups<D, S, kGroup>, groups, d, s,
             repeats);
      return;
    }
  }
  Launch("copy", {GridFor(index.numel), kThreads}, CopyStrided<D, S>, index, d, s);
}

StridedIndex<2> IndexOf(const RawView& dst, const RawView& src) {
  return StridedIndex<2>(dst.shape, {&dst.strides, &src.strides});
}

bool IsContiguous(const RawView& view) {
  int64_t expected = 1;
  for (int d = view.shape.ndim() - 1; d >= 0; --d) {
    if (view.shape[d] == 1) continue;
    if (view.strides[d] != expected) return false;
    expected *= view.shape[d];
  }
  return true;
}

size_t BytesOf(const RawView& view) {
  return static_cast<size_t>(view.shape.numel()) * DTypeSize(view.dtype);
}

// Both on the active GPU.
void CopyOnDevice(const RawView& dst, const RawView& src) {
  const StridedIndex<2> index = IndexOf(dst, src);
  if (dst.dtype == src.dtype) {
    if (index.contiguous()) {
      CheckCuda(cudaMemcpyAsync(dst.data, src.data, BytesOf(dst), cudaMemcpyDeviceToDevice,
                                CurrentStream()),
                "copy");
      return;
    }
    // Elements of equal size are moved as they are, whatever they mean.
    return DispatchCudaWord(dst.dtype, [&](auto word) {
      CopyTyped<decltype(word), decltype(word)>(index, dst.data, src.data);
    });
  }
  DispatchCudaAll(dst.dtype, "copy", [&](auto d) {
    DispatchCudaAll(src.dtype, "copy", [&](auto s) {
      using D = decltype(d);
      using S = decltype(s);
      if constexpr (!std::is_same_v<D, S>) CopyTyped<D, S>(index, dst.data, src.data);
    });
  });
}

RawView ContiguousView(void* data, DType dtype, const Device& device, const Shape& shape) {
  return {data, dtype, device, shape, ContiguousStrides(shape)};
}

// Bytes between host and GPU; the host's may be used again when this returns.
void Transfer(void* dst, const void* src, size_t bytes, bool to_host) {
  // A replay would repeat it with what the host's memory holds by then.
  TESSERA_CHECK(!RecordingGraph(), "copy",
                "between the host and the GPU: this cannot be part of a recorded graph");
  const cudaStream_t stream = CurrentStream();
  CheckCuda(cudaMemcpyAsync(dst, src, bytes,
                            to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream),
            "copy");
  bool wait = to_host || ReadsPageableMemory();
  if (!wait) {
    // The driver has staged what lies in pageable memory when the call returns, as the GPU cannot
    // read it there; what is pinned is read later.
    cudaPointerAttributes attributes;
    CheckCuda(cudaPointerGetAttributes(&attributes, src), "copy");
    wait = attributes.type == cudaMemoryTypeHost;
  }
  if (wait) CheckCuda(cudaStreamSynchronize(stream), "copy");
}

void CopyToDevice(const RawView& dst, const RawView& src) {
  std::vector<char> host;
  const void* from = src.data;
  if (!IsContiguous(src)) {
    host.resize(BytesOf(src));
    copy_kernel.For(Device::Cpu())(
        {ContiguousView(host.data(), src.dtype, Device::Cpu(), src.shape), src});
    from = host.data();
  }
  if (dst.dtype == src.dtype && IsContiguous(dst)) {
    Transfer(dst.data, from, BytesOf(src), /*to_host=*/false);
    return;
  }
  const Workspace staged(BytesOf(src));
  Transfer(staged.data(), from, BytesOf(src), /*to_host=*/false);
  CopyOnDevice(dst, ContiguousView(staged.data(), src.dtype, dst.device, src.shape));
}

void CopyToHost(const RawView& dst, const RawView& src) {
  const void* from = src.data;
  const size_t bytes = static_cast<size_t>(src.shape.numel()) * DTypeSize(dst.dtype);
  const bool direct = src.dtype == dst.dtype && IsContiguous(src);
  const Workspace staged(direct ? 0 : bytes);
  if (!direct) {
    CopyOnDevice(ContiguousView(staged.data(), dst.dtype, src.device, src.shape), src);
    from = staged.data();
  }
  if (IsContiguous(dst)) {
    Transfer(dst.data, from, bytes, /*to_host=*/true);
    return;
  }
  std::vector<char> host(bytes);
  Transfer(host.data(), from, bytes, /*to_host=*/true);
  copy_kernel.For(Device::Cpu())(
      {dst, ContiguousView(host.data(), dst.dtype, Device::Cpu(), dst.shape)});
}

// Between two GPUs: packed on the first, sent, unpacked on the second.
void CopyBetween(const RawView& dst, const RawView& src) {
  const size_t bytes = BytesOf(src);
  ActivateDevice(src.device);
  const Workspace packed(bytes);
  CopyOnDevice(ContiguousView(packed.data(), src.dtype, src.device, src.shape), src);
  const Event ready;
  ready.Record(CurrentStream());
  ActivateDevice(dst.device);
  const Workspace arrived(bytes);
  ready.Block(CurrentStream());
  CheckCuda(cudaMemcpyPeerAsync(arrived.data(), dst.device.index, packed.data(), src.device.index,
                                bytes, CurrentStream()),
            "copy");
  CopyOnDevice(dst, ContiguousView(arrived.data(), src.dtype, dst.device, src.shape));
  // `packed` must not be handed out again before it was read.
  SynchronizeCurrent("copy");
}

void CopyCuda(const CopyArgs& args) {
  const Device& to = args.dst.device;
  const Device& from = args.src.device;
  if (from.is_cpu()) return CopyToDevice(args.dst, args.src);
  if (to.is_cpu()) return CopyToHost(args.dst, args.src);
  if (to == from) return CopyOnDevice(args.dst, args.src);
  CopyBetween(args.dst, args.src);
}

template <typename D>
__global__ void FillStrided(StridedIndex<1> index, D* dst, D value) {
  for (int64_t i = GridThread(); i < index.numel; i += GridThreads()) {
    int64_t at[1];
    index.Offsets(i, at);
    dst[at[0]] = value;
  }
}

// The value as the host's copy kernel would store it, as bits.
uint64_t ValueBits(double value, DType dtype) {
  uint64_t bits = 0;
  DispatchAll(dtype, "fill", [&](auto zero) {
    using D = decltype(zero);
    D stored;
    if constexpr (std::is_same_v<D, bool>) {
      stored = value != 0.0;
    } else if constexpr (std::is_same_v<D, BFloat16> || std::is_same_v<D, Float16>) {
      stored = D(static_cast<float>(value));
    } else {
      stored = static_cast<D>(value);
    }
    std::memcpy(&bits, &stored, sizeof(stored));
  });
  return bits;
}

__global__ void Count(int64_t* dst, int64_t n) {
  for (int64_t i = GridThread(); i < n; i += GridThreads()) dst[i] = i;
}

void CountCuda(const CountArgs& args) {
  if (args.n > 0) Launch("arange", {GridFor(args.n), kThreads}, Count, args.dst, args.n);
}

void FillCuda(const FillArgs& args) {
  const StridedIndex<1> index(args.dst.shape, {&args.dst.strides});
  const uint64_t bits = ValueBits(args.value, args.dst.dtype);
  if (index.contiguous() && bits == 0) {
    CheckCuda(cudaMemsetAsync(args.dst.data, 0, BytesOf(args.dst), CurrentStream()), "fill");
    return;
  }
  DispatchCudaWord(args.dst.dtype, [&](auto word) {
    using D = decltype(word);
    Launch("fill", {GridFor(index.numel), kThreads}, FillStrided<D>, index,
           static_cast<D*>(args.dst.data), static_cast<D>(bits));
  });
}

template <typename D, typename S>
__global__ void AddStrided(StridedIndex<2> index, D* dst, const S* src) {
  using Sum = std::conditional_t<
      std::is_integral_v<D>, D,
      std::conditional_t<std::is_same_v<D, double> || std::is_same_v<S, double>, double, float>>;
  for (int64_t i = GridThread(); i < index.numel; i += GridThreads()) {
    int64_t at[2];
    index.Offsets(i, at);
    dst[at[0]] = CastTo<D>(CastTo<Sum>(dst[at[0]]) + CastTo<Sum>(src[at[1]]));
  }
}

template <typename D, typename S, int kCount>
__global__ void AddGroups(StridedIndex<2> index, D* dst, const S* src) {
  using Sum =
      std::conditional_t<std::is_same_v<D, double> || std::is_same_v<S, double>, double, float>;
  for (int64_t i = GridThread(); i < index.numel; i += GridThreads()) {
    int64_t at[2];
    index.Offsets(i, at);
    Vec<D, kCount> sum = LoadVec<kCount>(dst + at[0]);
    const Vec<S, kCount> in = LoadVec<kCount>(src + at[1]);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      sum.v[k] = CastTo<D>(CastTo<Sum>(sum.v[k]) + CastTo<Sum>(in.v[k]));
    }
    StoreVec<kCount>(dst + at[0], sum);
  }
}

void AddCuda(const AddArgs& args) {
  const StridedIndex<2> index = IndexOf(args.dst, args.src);
  if (args.dst.dtype == DType::kInt64 && args.src.dtype == DType::kInt64) {
    Launch("add_into", {GridFor(index.numel), kThreads}, AddStrided<int64_t, int64_t>, index,
           static_cast<int64_t*>(args.dst.data), static_cast<const int64_t*>(args.src.data));
    return;
  }
  DispatchCudaFloat(args.dst.dtype, "add_into", [&](auto d) {
    DispatchCudaFloat(args.src.dtype, "add_into", [&](auto s) {
      using D = decltype(d);
      using S = decltype(s);
      D* dst = static_cast<D*>(args.dst.data);
      const S* src = static_cast<const S*>(args.src.data);
      if constexpr (kGrouped<D, S>) {
        if (index.CanVectorize(kGroup) && index.inner_stride(0) == 1 &&
            index.inner_stride(1) == 1 && IsAligned(dst, sizeof(D) * kGroup) &&
            IsAligned(src, sizeof(S) * kGroup)) {
          const StridedIndex<2> groups = index.Vectorized(kGroup);
          Launch("add_into", {GridFor(groups.numel), kThreads}, AddGroups<D, S, kGroup>, groups,
                 dst, src);
          return;
        }
      }
      Launch("add_into", {GridFor(index.numel), kThreads}, AddStrided<D, S>, index, dst, src);
    });
  });
}

TESSERA_REGISTER_KERNEL(fill_kernel, DeviceType::kCuda, FillCuda);
TESSERA_REGISTER_KERNEL(copy_kernel, DeviceType::kCuda, CopyCuda);
TESSERA_REGISTER_KERNEL(add_kernel, DeviceType::kCuda, AddCuda);
TESSERA_REGISTER_KERNEL(count_kernel, DeviceType::kCuda, CountCuda);

}  // namespace
}  // namespace tessera::cuda
