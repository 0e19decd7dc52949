// SPDX-License-Identifier: Apache-2.0
// Finite differences of a layer that is split over ranks, over its global parameters and its input.
//
//   RunRanks(2, [&](std::shared_ptr<Communicator> world) {
//     Mlp layer(config, RootScope(world));
//     CheckGradients(world, layer, x, [&](const Tensor& in) { return layer.Forward(in, {}); });
//   });
#ifndef TESSERA_NN_LAYER_CHECK_H_
#define TESSERA_NN_LAYER_CHECK_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "autograd/autograd.h"
#include "nn/module.h"
#include "ops/cast/cast.h"

namespace tessera::nn {

// A root in float64, of parameters that are the same for any group.
inline Scope RootScope(const Group& world) {
  return Scope::Root({.dtype = DType::kFloat64, .seed = 3, .tensor_parallel = world});
}

// The local offset of global element `index` of a parameter on this rank; -1 where it is not.
inline int64_t LocalOffset(const Parameter& p, int64_t index) {
  const Shape& global = p.placement.global_shape();
  const Shape strides = ContiguousStrides(global);
  for (const BoxMapping& m : p.placement.boxes()) {
    int64_t offset = 0;
    bool inside = true;
    for (int d = 0; d < global.ndim(); ++d) {
      const int64_t at = index / strides[d] % global[d] - m.global.begin[d];
      inside = inside && at >= 0 && at < m.global.size[d];
      offset += (at + m.local_begin[d]) * p.tensor.stride(d);
    }
    if (inside) return offset;
  }
  return -1;
}

inline double Projected(const Tensor& y) {
  const std::vector<double> values = y.ToVector<double>();
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i)
    sum += values[i] * std::sin(1.0 + 3.7 * static_cast<double>(i));
  return sum;
}

inline Tensor ProjectionGrad(const Tensor& y) {
  Tensor w = EmptyLike(y);
  for (int64_t i = 0; i < w.numel(); ++i) {
    w.data<double>()[i] = std::sin(1.0 + 3.7 * static_cast<double>(i));
  }
  return w;
}

// `forward` gives the whole result on every rank. All ranks perturb the same global element.
inline void CheckGradients(const Group& world, Module& layer, const Tensor& x,
                           const std::function<Tensor(const Tensor&)>& forward) {
  const Tensor leaf = RequireGrad(CastCopy(x, DType::kFloat64));  // of this rank alone
  const Tensor y = forward(leaf);
  Backward({y}, {ProjectionGrad(y)});
  for (Parameter* p : layer.Parameters()) {
    if (p->gradient_group != nullptr) {
      p->gradient_group->AllReduce(Grad(p->tensor), ReduceOp::kSum)->Wait();
    }
  }
  const NoGrad no_grad;
  const auto difference = [&](double* element) {
    const double original = element != nullptr ? *element : 0.0;
    const auto at = [&](double value) {
      if (element != nullptr) *element = value;
      return Projected(forward(leaf));
    };
    const double above = at(original + 1e-6);
    const double below = at(original - 1e-6);
    if (element != nullptr) *element = original;
    return (above - below) / 2e-6;
  };
  for (Parameter* p : layer.Parameters()) {
    const int64_t n = p->placement.global_shape().numel();
    for (int64_t i = 0; i < n; i += std::max<int64_t>(1, n / 7)) {
      const int64_t at = LocalOffset(*p, i);
      const double numeric = difference(at >= 0 ? p->tensor.data<double>() + at : nullptr);
      if (at >= 0) {
        EXPECT_NEAR(Grad(p->tensor).ContiguousCopy().data<double>()[at], numeric,
                    1e-6 * (1 + std::abs(numeric)))
            << p->name << " element " << i << " on rank " << world->rank();
      }
    }
  }
  for (int64_t i = 0; i < x.numel(); i += std::max<int64_t>(1, x.numel() / 9)) {
    const double numeric = difference(leaf.data<double>() + i);
    EXPECT_NEAR(Grad(leaf).ContiguousCopy().data<double>()[i], numeric,
                1e-6 * (1 + std::abs(numeric)))
        << "input element " << i << " on rank " << world->rank();
  }
}

}  // namespace tessera::nn

#endif  // TESSERA_NN_LAYER_CHECK_H_
