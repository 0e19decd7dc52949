// SPDX-License-Identifier: Apache-2.0
// Compares gradients with finite differences, in float64.
//
//   GradCheckResult r = GradCheck([](const std::vector<Tensor>& in) {
//     return std::vector<Tensor>{Softmax(in[0], -1)};
//   }, {RandomTensor({3, 5}, ...)});
//   EXPECT_TRUE(r.ok) << r.message;
//
// The function's outputs are contracted with fixed pseudo-random weights into one number f; for
// each element x of each floating input, df/dx from the tape is compared with the central
// difference (f(x+h) - f(x-h)) / 2h. Inputs are float64 and must be away from kinks by more than h.
#ifndef TESSERA_AUTOGRAD_GRADCHECK_H_
#define TESSERA_AUTOGRAD_GRADCHECK_H_

#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace tessera {

struct GradCheckOptions {
  double step = 1e-6;
  // Accepted: |analytic - numeric| <= tolerance * (1 + |numeric|).
  double tolerance = 1e-6;
  // Checks at most this many elements per input, spread evenly.
  int64_t max_elements = 200;
};

struct GradCheckResult {
  bool ok = true;
  double worst = 0;     // greatest |analytic - numeric| / (1 + |numeric|)
  std::string message;  // input, index and both values where it is worst
};

using GradCheckFn = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

// An input that is a leaf already is moved in place and put back, and its gradient is left as it
// was: with a module's parameters (after To(DType::kFloat64)) beside the inputs of its Forward,
// their gradients are checked as well. `fn` gets copies of the others.
//
//   std::vector<Tensor> inputs = {x};
//   module.VisitParameters([&](nn::Parameter& p) { inputs.push_back(p.tensor); });
//   GradCheckResult r = GradCheck([&](const std::vector<Tensor>& in) {
//     return std::vector<Tensor>{module.Forward(in[0])};
//   }, inputs);
GradCheckResult GradCheck(const GradCheckFn& fn, const std::vector<Tensor>& inputs,
                          const GradCheckOptions& options = {});

}  // namespace tessera

#endif  // TESSERA_AUTOGRAD_GRADCHECK_H_
