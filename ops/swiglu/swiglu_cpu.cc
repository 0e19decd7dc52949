// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/every_isa.h"
#include "core/cpu/row_kernels.h"
#include "core/thread_pool.h"
#include "ops/swiglu/swiglu_formulas.h"
#include "ops/swiglu/swiglu_kernel.h"
#include "ops/swiglu/swiglu_rows.h"

namespace tessera {
namespace {

constexpr int64_t kGrain = 16384;  // elements that are worth a task

const SwiGluRows& Rows() { return ForActiveIsa(TESSERA_FOR_EVERY_ISA(kSwiGluRows)); }

const void* At(const void* data, int64_t bytes) { return static_cast<const char*>(data) + bytes; }
void* At(void* data, int64_t bytes) { return static_cast<char*>(data) + bytes; }

void ForwardFloat64(const SwiGluArgs& args, int64_t begin, int64_t end) {
  const auto* gate = static_cast<const double*>(args.gate);
  const auto* up = static_cast<const double*>(args.up);
  auto* out = static_cast<double*>(args.out);
  for (int64_t i = begin; i < end; ++i) out[i] = formula::SwiGlu(gate[i], up[i]);
}

void BackwardFloat64(const SwiGluGradArgs& args, int64_t begin, int64_t end) {
  const auto* grad = static_cast<const double*>(args.grad);
  const auto* gate = static_cast<const double*>(args.gate);
  const auto* up = static_cast<const double*>(args.up);
  auto* d_gate = static_cast<double*>(args.d_gate);
  auto* d_up = static_cast<double*>(args.d_up);
  for (int64_t i = begin; i < end; ++i) {
    formula::SwiGluGrad(grad[i], gate[i], up[i], &d_gate[i], &d_up[i]);
  }
}

void ForwardCpu(const SwiGluArgs& args) {
  const auto row = Rows().forward;
  const auto size = static_cast<int64_t>(DTypeSize(args.dtype));
  ParallelFor(args.n, kGrain, [&](int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) return ForwardFloat64(args, begin, end);
    const int64_t at = begin * size;
    row(RowTypeOf(args.dtype), At(args.gate, at), At(args.up, at), At(args.out, at), end - begin);
  });
}

void BackwardCpu(const SwiGluGradArgs& args) {
  const auto row = Rows().backward;
  const auto size = static_cast<int64_t>(DTypeSize(args.dtype));
  ParallelFor(args.n, kGrain, [&](int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) return BackwardFloat64(args, begin, end);
    const int64_t at = begin * size;
    row(RowTypeOf(args.dtype), At(args.grad, at), At(args.gate, at), At(args.up, at),
        At(args.d_gate, at), At(args.d_up, at), end - begin);
  });
}

TESSERA_REGISTER_KERNEL(swiglu_forward, DeviceType::kCpu, ForwardCpu);
TESSERA_REGISTER_KERNEL(swiglu_backward, DeviceType::kCpu, BackwardCpu);

}  // namespace
}  // namespace tessera
