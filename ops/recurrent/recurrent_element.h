// SPDX-License-Identifier: Apache-2.0
// A recurrent step of one element (row b, feature j), for float64 on the CPU and for CUDA. `M` has
// Widen and Narrow<T>.
#ifndef TESSERA_OPS_RECURRENT_RECURRENT_ELEMENT_H_
#define TESSERA_OPS_RECURRENT_RECURRENT_ELEMENT_H_

#include "ops/recurrent/cell_formulas.h"
#include "ops/recurrent/recurrent_kernel.h"

namespace tessera {

// Element j of part `part` in a sequence whose rows have `parts` of them.
template <typename Args>
TESSERA_FORMULA int64_t PlaceOf(const Args& args, int64_t b, int64_t parts, int64_t part,
                                int64_t j) {
  return (b * args.steps * parts + part) * args.hidden + j;
}

// Whether row b is shorter than this step's time.
template <typename Args>
TESSERA_FORMULA bool HasEnded(const Args& args, int64_t b) {
  return args.lengths != nullptr && args.time >= args.lengths[b];
}

// Element j of row b, one step on.
template <typename M, typename T, typename W>
TESSERA_FORMULA void StepElement(const RecurrentStepArgs& args, int64_t b, int64_t j) {
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
      state = formula::Tanh(p(0) + q(0));
      break;
    case RecurrentCell::kRelu:
      state = formula::Max(W(0), p(0) + q(0));
      break;
    case RecurrentCell::kLstm: {
      const auto v = formula::LstmStep(p, q, before(args.c_before, W{}));
      static_cast<W*>(args.c)[at] = v.c;
      state = v.h;
      keep(0, v.i);
      keep(1, v.f);
      keep(2, v.g);
      keep(3, v.o);
      break;
    }
    case RecurrentCell::kGru: {
      const auto v = formula::GruStep(p, q, M::Widen(before(args.h_before, T{})));
      state = v.h;
      keep(0, v.r);
      keep(1, v.z);
      keep(2, v.n);
      keep(3, v.qn);
      break;
    }
  }
  *h = M::template Narrow<T>(state);
  if (args.output != nullptr) static_cast<T*>(args.output)[at] = *h;
}

// Its gradients, one step back.
template <typename M, typename T, typename W>
TESSERA_FORMULA void StepGradElement(const RecurrentStepGradArgs& args, int64_t b, int64_t j) {
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
    case RecurrentCell::kTanh:
      set(args.d_projected, 0,
          dh * formula::TanhSlope(M::Widen(static_cast<const T*>(args.h)[at])));
      break;
    case RecurrentCell::kRelu:
      set(args.d_projected, 0, M::Widen(static_cast<const T*>(args.h)[at]) > 0 ? dh : W(0));
      break;
    case RecurrentCell::kLstm: {
      const formula::LstmValues<W> v = {
          kept(0), kept(1), kept(2), kept(3), static_cast<const W*>(args.c)[at], W(0)};
      const W c_before = static_cast<const W*>(args.c_before.data)[b * args.c_before.stride + j];
      W d_gates[4];
      formula::LstmGrad(v, c_before, dh, &static_cast<W*>(args.dc)[here], d_gates);
      for (int gate = 0; gate < 4; ++gate) set(args.d_projected, gate, d_gates[gate]);
      break;
    }
    case RecurrentCell::kGru: {
      const formula::GruValues<W> v = {kept(0), kept(1), kept(2), kept(3), W(0)};
      W d_gates[3];
      formula::GruGrad(
          v, M::Widen(static_cast<const T*>(args.h_before.data)[b * args.h_before.stride + j]), dh,
          d_gates);
      for (int gate = 0; gate < 3; ++gate) {
        set(args.d_projected, gate, d_gates[gate]);
        set(args.d_recurrent, gate, gate == 2 ? d_gates[gate] * v.r : d_gates[gate]);
      }
      carried = dh * v.z;
      break;
    }
  }
}

}  // namespace tessera

#endif  // TESSERA_OPS_RECURRENT_RECURRENT_ELEMENT_H_
