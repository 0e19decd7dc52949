// SPDX-License-Identifier: Apache-2.0
// The one harness for tests of operations.
//
//   CheckOp({.name = "softmax",
//            .op = [](const Tensors& in) { return Tensors{Softmax(in[0], -1)}; },
//            .reference = [](const Tensors& in) { ... plain loops over in[0].data<double>() ... },
//            .inputs = {RandomTensor({3, 5}, 1)},
//            .sum_length = 5});
//
// Runs the operation on float64 inputs and checks
//   - its gradients against finite differences, in float64;
//   - for every floating dtype, instruction set of this machine, and on a GPU where this program
//     and machine have one: its outputs against the reference (given the inputs as rounded to
//     that dtype) and its gradients against the CPU's float64 gradients, contiguous and strided
//     inputs alike;
//   - on meta: the same shapes and dtypes without data, and on `meta:cuda` the peak of bytes that
//     the GPU had.
// A tolerance is `slack` * epsilon(dtype) * sqrt(sum_length), relative to the largest magnitude of
// the tensor compared, at least `scale_floor`. The worst element is printed.
#ifndef TESSERA_OPS_TESTING_OP_CHECK_H_
#define TESSERA_OPS_TESTING_OP_CHECK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace tessera {

using Tensors = std::vector<Tensor>;
using OpFn = std::function<Tensors(const Tensors&)>;

struct OpCheck {
  std::string name;
  OpFn op;
  OpFn reference;  // inputs are contiguous float64 (integers as given); may be null: not compared
  Tensors inputs;  // float64 or integers; undefined where an optional argument is left out
  double sum_length = 1;
  double slack = 8;
  // Least magnitude that tolerances are relative to: random inputs are of order one, and a result
  // that comes out small by cancellation has the error of what cancelled.
  double scale_floor = 1;
  bool check_gradient = true;
  bool half_precision = true;
  double gradcheck_tolerance = 1e-6;
};

void CheckOp(const OpCheck& check);

// The CPU, and cuda:0 where this program has CUDA and the machine a GPU. TESSERA_TEST_DEVICES=cpu
// leaves the GPU out, =cuda the CPU; with =cuda, a GPU that cannot be used fails the test.
std::vector<Device> TestDevices();

// float64, normal with mean 0 and deviation `scale`; other seeds give other numbers.
Tensor RandomTensor(const Shape& shape, uint64_t seed, double scale = 1.0);
// int64 in [0, high).
Tensor RandomIndices(const Shape& shape, int64_t high, uint64_t seed);
// The same elements with gaps between them: every stride is larger than it need be.
Tensor WithGaps(const Tensor& t);

// A seed that differs from run to run (TESSERA_TEST_SEED fixes it); printed when a test fails.
uint64_t FreshSeed();

// The unit roundoff: 2^-24 for float32, 2^-8 for bfloat16, ...
double Epsilon(DType dtype);

// Fails the test with the worst index unless |a - b| <= tolerance * max(scale_floor, max |b|)
// elementwise.
void ExpectClose(const Tensor& actual, const Tensor& expected, double tolerance,
                 const std::string& what, double scale_floor = 0);

}  // namespace tessera

#endif  // TESSERA_OPS_TESTING_OP_CHECK_H_
