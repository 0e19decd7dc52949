// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_kernels.h"
#include "core/thread_pool.h"
#include "ops/channel_norm/plane_kernel.h"
#include "ops/channel_norm/plane_rows.h"

namespace tessera {
namespace {

const PlaneRows& Rows() { return ForActiveIsa(TESSERA_FOR_EVERY_ISA(kPlaneRows)); }

// Calls body(plane) for all planes, several to a task where they are small.
template <typename Body>
void EachPlane(int64_t planes, int64_t n, Body body) {
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(n, 1));
  ParallelFor(planes, grain, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) body(p);
  });
}

const void* PlaneAt(const void* data, DType dtype, int64_t plane, int64_t n) {
  return data == nullptr ? nullptr : static_cast<const char*>(data) + BytesOf(dtype, plane * n);
}

// Coefficient `at`; 0 of those that are not given.
template <typename E>
E CoefficientAt(const void* coefficients, int64_t at) {
  return coefficients == nullptr ? E{0} : static_cast<const E*>(coefficients)[at];
}

void MomentsDouble(const PlaneMomentsArgs& args, int64_t p) {
  const double* x = static_cast<const double*>(args.x) + p * args.n;
  double total = 0;
  for (int64_t i = 0; i < args.n; ++i) total += x[i];
  const double mean = total / static_cast<double>(args.n);
  double squares = 0;
  for (int64_t i = 0; i < args.n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  static_cast<double*>(args.mean)[p] = mean;
  static_cast<double*>(args.squares)[p] = squares;
}

void MomentsCpu(const PlaneMomentsArgs& args) {
  const PlaneRows& rows = Rows();
  EachPlane(args.planes, args.n, [&](int64_t p) {
    if (args.dtype == DType::kFloat64) return MomentsDouble(args, p);
    rows.moments(RowTypeOf(args.dtype), args.n, PlaneAt(args.x, args.dtype, p, args.n),
                 static_cast<float*>(args.mean) + p, static_cast<float*>(args.squares) + p);
  });
}

void SumsDouble(const PlaneSumsArgs& args, int64_t p) {
  const double* x = static_cast<const double*>(args.x) + p * args.n;
  const double* z = static_cast<const double*>(args.z) + p * args.n;
  const double center = CoefficientAt<double>(args.center, p % args.coefficients);
  double sum = 0;
  double product = 0;
  for (int64_t i = 0; i < args.n; ++i) {
    sum += z[i];
    product += z[i] * (x[i] - center);
  }
  static_cast<double*>(args.sums)[p] = sum;
  static_cast<double*>(args.products)[p] = product;
}

void SumsCpu(const PlaneSumsArgs& args) {
  const PlaneRows& rows = Rows();
  EachPlane(args.planes, args.n, [&](int64_t p) {
    if (args.dtype == DType::kFloat64) return SumsDouble(args, p);
    rows.sums(RowTypeOf(args.dtype), args.n, PlaneAt(args.x, args.dtype, p, args.n),
              PlaneAt(args.z, args.dtype, p, args.n),
              CoefficientAt<float>(args.center, p % args.coefficients),
              static_cast<float*>(args.sums) + p, static_cast<float*>(args.products) + p);
  });
}

void AffineDouble(const PlaneAffineArgs& args, int64_t p) {
  const auto* x = static_cast<const double*>(args.x);
  const auto* z = static_cast<const double*>(args.z);
  const int64_t k = p % args.coefficients;
  for (int64_t i = p * args.n; i < (p + 1) * args.n; ++i) {
    double v = CoefficientAt<double>(args.d, k);
    if (x != nullptr) {
      v += CoefficientAt<double>(args.b, k) * (x[i] - CoefficientAt<double>(args.center, k));
    }
    if (z != nullptr) v += CoefficientAt<double>(args.a, k) * z[i];
    static_cast<double*>(args.out)[i] = v;
  }
}

void AffineCpu(const PlaneAffineArgs& args) {
  const PlaneRows& rows = Rows();
  EachPlane(args.planes, args.n, [&](int64_t p) {
    if (args.dtype == DType::kFloat64) return AffineDouble(args, p);
    const int64_t k = p % args.coefficients;
    rows.affine({RowTypeOf(args.dtype), args.n, PlaneAt(args.z, args.dtype, p, args.n),
                 CoefficientAt<float>(args.a, k), PlaneAt(args.x, args.dtype, p, args.n),
                 CoefficientAt<float>(args.b, k), CoefficientAt<float>(args.center, k),
                 CoefficientAt<float>(args.d, k),
                 const_cast<void*>(PlaneAt(args.out, args.dtype, p, args.n))});
  });
}

TESSERA_REGISTER_KERNEL(plane_moments_kernel, DeviceType::kCpu, MomentsCpu);
TESSERA_REGISTER_KERNEL(plane_sums_kernel, DeviceType::kCpu, SumsCpu);
TESSERA_REGISTER_KERNEL(plane_affine_kernel, DeviceType::kCpu, AffineCpu);

}  // namespace
}  // namespace tessera
