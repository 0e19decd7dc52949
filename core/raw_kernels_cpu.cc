// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <numeric>
#include <type_traits>

#include "core/raw_kernels.h"
#include "core/strided_loop.h"

namespace tessera {
namespace {

template <typename D, typename S>
D Cast(S value) {
  if constexpr (std::is_same_v<D, S>) {
    return value;
  } else if constexpr (std::is_same_v<D, bool>) {
    return value != S(0);
  } else if constexpr (std::is_same_v<D, BFloat16> || std::is_same_v<D, Float16>) {
    return D(static_cast<float>(value));
  } else if constexpr (std::is_same_v<S, BFloat16> || std::is_same_v<S, Float16>) {
    return static_cast<D>(static_cast<float>(value));
  } else {
    return static_cast<D>(value);
  }
}

// `n` elements of src, `src_stride` apart, to dst; both strides in elements.
using RowFn = void (*)(void* dst, int64_t dst_stride, const void* src, int64_t src_stride,
                       int64_t n);

// One loop for all pairs of dtypes: they differ in their rows alone.
void ForEachRow(const RawView& dst, const RawView& src, RowFn row) {
  const StridedLoop<2> loop(dst.shape, {dst.strides, src.strides});
  const auto dst_bytes = static_cast<int64_t>(DTypeSize(dst.dtype));
  const auto src_bytes = static_cast<int64_t>(DTypeSize(src.dtype));
  loop.ForEachRow([&](const std::array<int64_t, 2>& offset, int64_t n) {
    row(static_cast<char*>(dst.data) + offset[0] * dst_bytes, loop.inner_stride(0),
        static_cast<const char*>(src.data) + offset[1] * src_bytes, loop.inner_stride(1), n);
  });
}

template <typename D, typename S>
void CopyRow(void* to, int64_t ds, const void* from, int64_t ss, int64_t n) {
  D* dst = static_cast<D*>(to);
  const S* src = static_cast<const S*>(from);
  if (ds == 1 && ss == 1) {
    if constexpr (std::is_same_v<D, S>) {
      std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(D));
    } else {
      for (int64_t i = 0; i < n; ++i) dst[i] = Cast<D>(src[i]);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) dst[i * ds] = Cast<D>(src[i * ss]);
  }
}

void CopyCpu(const CopyArgs& args) {
  DispatchAll(args.dst.dtype, "copy", [&](auto d) {
    DispatchAll(args.src.dtype, "copy",
                [&](auto s) { ForEachRow(args.dst, args.src, CopyRow<decltype(d), decltype(s)>); });
  });
}

void FillCpu(const FillArgs& args) {
  DispatchAll(args.dst.dtype, "fill", [&](auto d) {
    using D = decltype(d);
    const D value = Cast<D>(args.value);
    const StridedLoop<1> loop(args.dst.shape, {args.dst.strides});
    const int64_t stride = loop.inner_stride(0);
    loop.ForEachRow([&](const std::array<int64_t, 1>& offset, int64_t n) {
      D* dst = static_cast<D*>(args.dst.data) + offset[0];
      for (int64_t i = 0; i < n; ++i) dst[i * stride] = value;
    });
  });
}

void CountCpu(const CountArgs& args) { std::iota(args.dst, args.dst + args.n, int64_t{0}); }

template <typename D, typename S>
void AddRow(void* to, int64_t ds, const void* from, int64_t ss, int64_t n) {
  using Sum = std::conditional_t<
      std::is_integral_v<D>, D,
      std::conditional_t<std::is_same_v<D, double> || std::is_same_v<S, double>, double, float>>;
  D* dst = static_cast<D*>(to);
  const S* src = static_cast<const S*>(from);
  if (ds == 1 && ss == 1) {
    for (int64_t i = 0; i < n; ++i) dst[i] = Cast<D>(Cast<Sum>(dst[i]) + Cast<Sum>(src[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) {
      dst[i * ds] = Cast<D>(Cast<Sum>(dst[i * ds]) + Cast<Sum>(src[i * ss]));
    }
  }
}

void AddCpu(const AddArgs& args) {
  if (args.dst.dtype == DType::kInt64 && args.src.dtype == DType::kInt64) {
    ForEachRow(args.dst, args.src, AddRow<int64_t, int64_t>);
    return;
  }
  DispatchFloat(args.dst.dtype, "add_into", [&](auto d) {
    DispatchFloat(args.src.dtype, "add_into", [&](auto s) {
      ForEachRow(args.dst, args.src, AddRow<decltype(d), decltype(s)>);
    });
  });
}

TESSERA_REGISTER_KERNEL(fill_kernel, DeviceType::kCpu, FillCpu);
TESSERA_REGISTER_KERNEL(copy_kernel, DeviceType::kCpu, CopyCpu);
TESSERA_REGISTER_KERNEL(add_kernel, DeviceType::kCpu, AddCpu);
TESSERA_REGISTER_KERNEL(count_kernel, DeviceType::kCpu, CountCpu);

}  // namespace
}  // namespace tessera
