// SPDX-License-Identifier: Apache-2.0
// A recurrent step of one element (row b, feature j), for float64 on the CPU and for CUDA. `M` has
// the functions Exp and Tanh of a number, and Widen and Narrow<T>.
#ifndef TESSERA_OPS_RECURRENT_RECURRENT_ELEMENT_H_
#define TESSERA_OPS_RECURRENT_RECURRENT_ELEMENT_H_

#include "ops/recurrent/recurrent_kernel.h"

#if defined(__CUDACC__)
#define TESSERA_ELEMENT_FN __device__ __forceinline__
#else
#define TESSERA_ELEMENT_FN inline
#endif

namespace tessera {

template <typename M, typename W>
TESSERA_ELEMENT_FN W SigmoidOf(W x) {
  return W(1) / (W(1) + M::Exp(-x));
}

// Element j of part `part` in a sequence whose rows have `parts` of them.
template <typename Args>
TESSERA_ELEMENT_FN int64_t PlaceOf(const Args& args, int64_t b, int64_t parts, int64_t part,
                                   int64_t j) {
  return (b * args.steps * parts + part) * args.hidden + j;
}

// Whether row b is shorter than this step's time.
template <typename Args>
TESSERA_ELEMENT_FN bool HasEnded(const Args& args, int64_t b) {
  return args.lengths != nullptr && args.time >= args.lengths[b];
}

// Element j of row b, one step on.
template <typename M, typename T, typename W>
TESSERA_ELEMENT_FN void StepElement(const RecurrentStepArgs& args, int64_t b, int64_t j) {
  const auto before = [&](const StateRows& rows, auto zero) {
    return static_cast<const decltype(zero)*>(rows.data)[b * rows.stride + j];
  };
  const int64_t at = PlaceOf(args, b, 1, 0, j);
  T* const h = static_cast<T*>(args.h) + at;
  if (HasEnded(args, b)) {
    *h = before(args.h_before, T{});
    if (args.cell == RecurrentCell::kLstm) static_cast<W*>(args.c)[at] = before(args.c_before, W{});
    if (args.output != nullptr) static_cast<T*>(args.output)[at] = M::template Narrow<T>(W(0));
    return;
  }
  const int64_t gates = args.gates;
  const auto p = [&](int gate) {
    return M::Widen(static_cast<const T*>(args.projected)[PlaceOf(args, b, gates, gate, j)]);
  };
  const auto q = [&](int gate) {
    return M::Widen(static_cast<const T*>(args.recurrent)[(b * gates + gate) * args.hidden + j]);
  };
  const auto keep = [&](int part, W value) {
    if (args.kept == nullptr) return;
    static_cast<T*>(args.kept)[PlaceOf(args, b, 4, part, j)] = M::template Narrow<T>(value);
  };
  W state = 0;
  switch (args.cell) {
    case RecurrentCell::kTanh:
      state = M::Tanh(p(0) + q(0));
      break;
    case RecurrentCell::kRelu:
      state = p(0) + q(0);
      if (state < 0) state = 0;
      break;
    case RecurrentCell::kLstm: {
      const W i = SigmoidOf<M>(p(0) + q(0));
      const W f = SigmoidOf<M>(p(1) + q(1));
      const W g = M::Tanh(p(2) + q(2));
      const W o = SigmoidOf<M>(p(3) + q(3));
      const W c = f * before(args.c_before, W{}) + i * g;
      static_cast<W*>(args.c)[at] = c;
      state = o * M::Tanh(c);
      keep(0, i);
      keep(1, f);
      keep(2, g);
      keep(3, o);
      break;
    }
    case RecurrentCell::kGru: {
      const W r = SigmoidOf<M>(p(0) + q(0));
      const W z = SigmoidOf<M>(p(1) + q(1));
      const W n = M::Tanh(p(2) + r * q(2));
      state = n + z * (M::Widen(before(args.h_before, T{})) - n);
      keep(0, r);
      keep(1, z);
      keep(2, n);
      keep(3, q(2));
      break;
    }
  }
  *h = M::template Narrow<T>(state);
  if (args.output != nullptr) static_cast<T*>(args.output)[at] = *h;
}

// Its gradients, one step back.
template <typename M, typename T, typename W>
TESSERA_ELEMENT_FN void StepGradElement(const RecurrentStepGradArgs& args, int64_t b, int64_t j) {
  const int64_t gates = args.gates;
  const auto set = [&](void* to, int gate, W value) {
    static_cast<T*>(to)[PlaceOf(args, b, gates, gate, j)] = M::template Narrow<T>(value);
  };
  if (HasEnded(args, b)) {
    for (int gate = 0; gate < gates; ++gate) {
      set(args.d_projected, gate, 0);
      if (args.d_recurrent != nullptr) set(args.d_recurrent, gate, 0);
    }
    return;
  }
  const int64_t at = PlaceOf(args, b, 1, 0, j);
  const int64_t here = b * args.hidden + j;
  const auto kept = [&](int part) {
    return M::Widen(static_cast<const T*>(args.kept)[PlaceOf(args, b, 4, part, j)]);
  };
  W& carried = static_cast<W*>(args.dh)[here];
  W dh = carried;
  if (args.d_output != nullptr) dh += M::Widen(static_cast<const T*>(args.d_output)[at]);
  carried = 0;
  switch (args.cell) {
    case RecurrentCell::kTanh: {
      const W h = M::Widen(static_cast<const T*>(args.h)[at]);
      set(args.d_projected, 0, dh * (W(1) - h * h));
      break;
    }
    case RecurrentCell::kRelu:
      set(args.d_projected, 0, M::Widen(static_cast<const T*>(args.h)[at]) > 0 ? dh : W(0));
      break;
    case RecurrentCell::kLstm: {
      const W i = kept(0), f = kept(1), g = kept(2), o = kept(3);
      const W tanh_c = M::Tanh(static_cast<const W*>(args.c)[at]);
      const W c_before = static_cast<const W*>(args.c_before.data)[b * args.c_before.stride + j];
      W& dc = static_cast<W*>(args.dc)[here];
      dc += dh * o * (W(1) - tanh_c * tanh_c);
      set(args.d_projected, 0, dc * g * i * (W(1) - i));
      set(args.d_projected, 1, dc * c_before * f * (W(1) - f));
      set(args.d_projected, 2, dc * i * (W(1) - g * g));
      set(args.d_projected, 3, dh * tanh_c * o * (W(1) - o));
      dc *= f;
      break;
    }
    case RecurrentCell::kGru: {
      const W r = kept(0), z = kept(1), n = kept(2);
      const W h_before =
          M::Widen(static_cast<const T*>(args.h_before.data)[b * args.h_before.stride + j]);
      const W dn = dh * (W(1) - z) * (W(1) - n * n);
      const W dr = dn * kept(3) * r * (W(1) - r);
      const W dz = dh * (h_before - n) * z * (W(1) - z);
      set(args.d_projected, 0, dr);
      set(args.d_projected, 1, dz);
      set(args.d_projected, 2, dn);
      set(args.d_recurrent, 0, dr);
      set(args.d_recurrent, 1, dz);
      set(args.d_recurrent, 2, dn * r);
      carried = dh * z;
      break;
    }
  }
}

}  // namespace tessera

#endif  // TESSERA_OPS_RECURRENT_RECURRENT_ELEMENT_H_
