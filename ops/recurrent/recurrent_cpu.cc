// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_kernels.h"
#include "core/thread_pool.h"
#include "ops/recurrent/recurrent_element.h"
#include "ops/recurrent/recurrent_kernel.h"

namespace tessera {
namespace {

struct Float64Math {
  static double Widen(double x) { return x; }
  template <typename T>
  static T Narrow(double x) {
    return x;
  }
};

const RecurrentRows& Rows() { return ForActiveIsa(TESSERA_FOR_EVERY_ISA(kRecurrentRows)); }

// Rows of a step that a thread takes at once.
int64_t Grain(int64_t hidden) { return std::max<int64_t>(1, 4096 / std::max<int64_t>(hidden, 1)); }

// Element i of a tensor of a dtype; nullptr stays.
template <typename P>
P* At(P* data, DType dtype, int64_t i) {
  using Byte = std::conditional_t<std::is_const_v<P>, const char, char>;
  return data == nullptr ? nullptr : static_cast<Byte*>(data) + BytesOf(dtype, i);
}

// Row b of a sequence whose rows have `parts` times `hidden` elements.
template <typename P, typename Args>
P* RowOf(P* sequence, const Args& args, int64_t b, int64_t parts) {
  return At(sequence, args.dtype, b * args.steps * parts * args.hidden);
}

const float* Wides(const StateRows& rows, int64_t b) {
  return rows.data == nullptr ? nullptr : static_cast<const float*>(rows.data) + b * rows.stride;
}

// Row b has ended: its states stay.
void KeepStates(const RecurrentStepArgs& args, int64_t b) {
  const auto bytes = static_cast<size_t>(BytesOf(args.dtype, args.hidden));
  std::memcpy(RowOf(args.h, args, b, 1),
              At(args.h_before.data, args.dtype, b * args.h_before.stride), bytes);
  if (args.cell == RecurrentCell::kLstm) {
    std::copy_n(Wides(args.c_before, b), args.hidden,
                static_cast<float*>(args.c) + b * args.steps * args.hidden);
  }
  if (args.output != nullptr) std::memset(RowOf(args.output, args, b, 1), 0, bytes);
}

void StepRow(const RecurrentStepArgs& args, const RecurrentRows& rows, int64_t b) {
  const int64_t gates = args.gates;
  void* const h = RowOf(args.h, args, b, 1);
  float* const c =
      args.c == nullptr ? nullptr : static_cast<float*>(args.c) + b * args.steps * args.hidden;
  rows.forward({args.cell, RowTypeOf(args.dtype), args.hidden,
                RowOf(args.projected, args, b, gates),
                At(args.recurrent, args.dtype, b * gates * args.hidden),
                At(args.h_before.data, args.dtype, b * args.h_before.stride),
                Wides(args.c_before, b), h, c, RowOf(args.kept, args, b, KeptOf(args.cell))});
  if (args.output != nullptr) {
    std::memcpy(RowOf(args.output, args, b, 1), h,
                static_cast<size_t>(BytesOf(args.dtype, args.hidden)));
  }
}

void StepCpu(const RecurrentStepArgs& args) {
  const RecurrentRows& rows = Rows();
  ParallelFor(args.batch, Grain(args.hidden), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      if (args.dtype == DType::kFloat64) {
        for (int64_t j = 0; j < args.hidden; ++j) {
          StepElement<Float64Math, double, double>(args, b, j);
        }
      } else if (HasEnded(args, b)) {
        KeepStates(args, b);
      } else {
        StepRow(args, rows, b);
      }
    }
  });
}

void GradRow(const RecurrentStepGradArgs& args, const RecurrentRows& rows, int64_t b) {
  const int64_t gates = args.gates;
  void* const d_projected = RowOf(args.d_projected, args, b, gates);
  void* const d_recurrent = RowOf(args.d_recurrent, args, b, gates);
  if (HasEnded(args, b)) {
    const auto bytes = static_cast<size_t>(BytesOf(args.dtype, gates * args.hidden));
    std::memset(d_projected, 0, bytes);
    if (d_recurrent != nullptr) std::memset(d_recurrent, 0, bytes);
    return;
  }
  const auto wide = [&](void* data) {
    return data == nullptr ? nullptr : static_cast<float*>(data) + b * args.hidden;
  };
  const float* const c = args.c == nullptr
                             ? nullptr
                             : static_cast<const float*>(args.c) + b * args.steps * args.hidden;
  rows.backward(
      {args.cell, RowTypeOf(args.dtype), args.hidden, RowOf(args.kept, args, b, KeptOf(args.cell)),
       At(args.h_before.data, args.dtype, b * args.h_before.stride), RowOf(args.h, args, b, 1),
       Wides(args.c_before, b), c, RowOf(args.d_output, args, b, 1), wide(args.dh), wide(args.dc),
       d_projected, d_recurrent});
}

void GradCpu(const RecurrentStepGradArgs& args) {
  const RecurrentRows& rows = Rows();
  ParallelFor(args.batch, Grain(args.hidden), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      if (args.dtype == DType::kFloat64) {
        for (int64_t j = 0; j < args.hidden; ++j) {
          StepGradElement<Float64Math, double, double>(args, b, j);
        }
      } else {
        GradRow(args, rows, b);
      }
    }
  });
}

TESSERA_REGISTER_KERNEL(recurrent_kernel, DeviceType::kCpu, StepCpu);
TESSERA_REGISTER_KERNEL(recurrent_grad_kernel, DeviceType::kCpu, GradCpu);

}  // namespace
}  // namespace tessera
