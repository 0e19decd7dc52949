// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_kernels.h"
#include "core/strided_loop.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/elementwise_kernel.h"

namespace tessera {
namespace {

const ElementwiseRows& Rows() { return ForActiveIsa(TESSERA_FOR_EVERY_ISA(kElementwiseRows)); }

// A row of an operand as the row functions want it: adjacent elements, or one that repeats. Those
// that lie apart are gathered, some at a time, on the stack: memory of each thread for whole pieces
// of rows would make every stack of a host's threads larger.
constexpr int64_t kGathered = 1024;

struct GatherRoom {
  alignas(64) char bytes[kGathered * 4];
};

class RowOperand {
 public:
  // `keeps_one`: a repeating element is passed as it is, otherwise written out n times.
  RowOperand(const void* data, int64_t stride, size_t element, bool keeps_one)
      : data_(static_cast<const char*>(data)),
        stride_(stride),
        element_(element),
        keeps_one_(keeps_one) {}
  bool repeats() const { return stride_ == 0; }
  bool gathers() const { return stride_ != 1 && !(stride_ == 0 && keeps_one_); }

  // Elements i to i + n of the row that begins at `offset`; n <= kGathered if they are gathered.
  const void* At(int64_t offset, int64_t i, int64_t n, GatherRoom* room) const {
    const char* first = data_ + (offset + i * stride_) * static_cast<int64_t>(element_);
    if (!gathers()) return first;
    if (element_ == 4) {
      Gather<uint32_t>(first, n, room->bytes);
    } else {
      Gather<uint16_t>(first, n, room->bytes);
    }
    return room->bytes;
  }

 private:
  template <typename T>
  void Gather(const char* first, int64_t n, char* room) const {
    const T* from = reinterpret_cast<const T*>(first);
    T* to = reinterpret_cast<T*>(room);
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride_];
  }
  const char* data_;
  int64_t stride_;
  size_t element_;
  bool keeps_one_;
};

// piece(i, count): elements i to i + count of a row of n.
template <typename F>
void ForEachPiece(int64_t n, bool gathers, F piece) {
  const int64_t most = gathers ? kGathered : n;
  for (int64_t i = 0; i < n; i += most) piece(i, std::min(most, n - i));
}

void UnaryCpu(const UnaryArgs& args) {
  const StridedLoop<2> loop(args.shape, {ContiguousStrides(args.shape), args.x_strides});
  const int64_t stride = loop.inner_stride(1);
  if (args.dtype == DType::kFloat64) {
    loop.ForEachRow([&](const auto& offset, int64_t n) {
      const double* x = static_cast<const double*>(args.x) + offset[1];
      double* out = static_cast<double*>(args.out) + offset[0];
      for (int64_t i = 0; i < n; ++i) {
        out[i] = UnaryValue<double>(args.op, x[i * stride], args.scale, args.shift);
      }
    });
    return;
  }
  const auto row = Rows().unary;
  const RowType type = RowTypeOf(args.dtype);
  const size_t element = DTypeSize(args.dtype);
  const RowOperand x(args.x, stride, element, /*keeps_one=*/false);
  loop.ForEachRow([&](const auto& offset, int64_t n) {
    char* out = static_cast<char*>(args.out) + offset[0] * static_cast<int64_t>(element);
    ForEachPiece(n, x.gathers(), [&](int64_t i, int64_t count) {
      GatherRoom room;
      row(args.op, type, x.At(offset[1], i, count, &room), out + i * static_cast<int64_t>(element),
          count, static_cast<float>(args.scale), static_cast<float>(args.shift));
    });
  });
}

template <typename T, typename F>
void BinaryPlain(const BinaryArgs& args, F f) {
  const StridedLoop<3> loop(args.shape,
                            {ContiguousStrides(args.shape), args.a_strides, args.b_strides});
  const int64_t sa = loop.inner_stride(1);
  const int64_t sb = loop.inner_stride(2);
  loop.ForEachRow([&](const auto& offset, int64_t n) {
    T* out = static_cast<T*>(args.out) + offset[0];
    const T* a = static_cast<const T*>(args.a) + offset[1];
    const T* b = static_cast<const T*>(args.b) + offset[2];
    for (int64_t i = 0; i < n; ++i) out[i] = f(args.op, a[i * sa], b[i * sb]);
  });
}

void BinaryCpu(const BinaryArgs& args) {
  if (args.dtype == DType::kFloat64) return BinaryPlain<double>(args, BinaryValue<double>);
  if (args.dtype == DType::kInt64) return BinaryPlain<int64_t>(args, WholeBinaryValue);
  const StridedLoop<3> loop(args.shape,
                            {ContiguousStrides(args.shape), args.a_strides, args.b_strides});
  const auto row = Rows().binary;
  const RowType type = RowTypeOf(args.dtype);
  const size_t element = DTypeSize(args.dtype);
  const RowOperand a(args.a, loop.inner_stride(1), element, /*keeps_one=*/true);
  const RowOperand b(args.b, loop.inner_stride(2), element, /*keeps_one=*/true);
  loop.ForEachRow([&](const auto& offset, int64_t n) {
    char* out = static_cast<char*>(args.out) + offset[0] * static_cast<int64_t>(element);
    ForEachPiece(n, a.gathers() || b.gathers(), [&](int64_t i, int64_t count) {
      GatherRoom room_a;
      GatherRoom room_b;
      row(args.op, type, a.At(offset[1], i, count, &room_a), a.repeats(),
          b.At(offset[2], i, count, &room_b), b.repeats(), out + i * static_cast<int64_t>(element),
          count);
    });
  });
}

void WhereCpu(const WhereArgs& args) {
  DispatchAll(args.dtype, "where", [&](auto zero) {
    using T = decltype(zero);
    const StridedLoop<4> loop(args.shape, {ContiguousStrides(args.shape), args.condition_strides,
                                           args.a_strides, args.b_strides});
    loop.ForEachRow([&](const auto& offset, int64_t n) {
      T* out = static_cast<T*>(args.out) + offset[0];
      const uint8_t* condition = args.condition + offset[1];
      const T* a = static_cast<const T*>(args.a) + offset[2];
      const T* b = static_cast<const T*>(args.b) + offset[3];
      for (int64_t i = 0; i < n; ++i) {
        out[i] = condition[i * loop.inner_stride(1)] != 0 ? a[i * loop.inner_stride(2)]
                                                          : b[i * loop.inner_stride(3)];
      }
    });
  });
}

template <typename T>
bool Holds(Comparison comparison, T a, T b) {
  switch (comparison) {
    case Comparison::kEqual:
      return a == b;
    case Comparison::kNotEqual:
      return a != b;
    case Comparison::kLess:
      return a < b;
    case Comparison::kLessEqual:
      return a <= b;
    case Comparison::kGreater:
      return a > b;
    case Comparison::kGreaterEqual:
      return a >= b;
  }
  return false;
}

void CompareCpu(const CompareArgs& args) {
  DispatchAll(args.dtype, "compare", [&](auto zero) {
    using T = decltype(zero);
    using Wide =
        std::conditional_t<std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>, float, T>;
    const StridedLoop<3> loop(args.shape,
                              {ContiguousStrides(args.shape), args.a_strides, args.b_strides});
    loop.ForEachRow([&](const auto& offset, int64_t n) {
      bool* out = args.out + offset[0];
      const T* a = static_cast<const T*>(args.a) + offset[1];
      const T* b = static_cast<const T*>(args.b) + offset[2];
      for (int64_t i = 0; i < n; ++i) {
        out[i] = Holds<Wide>(static_cast<Comparison>(args.comparison),
                             static_cast<Wide>(a[i * loop.inner_stride(1)]),
                             static_cast<Wide>(b[i * loop.inner_stride(2)]));
      }
    });
  });
}

TESSERA_REGISTER_KERNEL(unary_kernel, DeviceType::kCpu, UnaryCpu);
TESSERA_REGISTER_KERNEL(binary_kernel, DeviceType::kCpu, BinaryCpu);
TESSERA_REGISTER_KERNEL(where_kernel, DeviceType::kCpu, WhereCpu);
TESSERA_REGISTER_KERNEL(compare_kernel, DeviceType::kCpu, CompareCpu);

}  // namespace
}  // namespace tessera
