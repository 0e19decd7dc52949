// SPDX-License-Identifier: Apache-2.0
#include "ops/testing/op_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "autograd/autograd.h"
#include "autograd/gradcheck.h"
#include "core/allocator.h"
#include "core/cpu_isa.h"
#include "core/random.h"

namespace tessera {
namespace {

struct Outcome {
  Tensors outputs;
  Tensors grads;  // undefined for inputs that have none
};

// Weights that contract outputs to one number; the same for every dtype.
Tensor OutputWeights(const Tensor& output, size_t index) {
  Tensor w = RandomTensor(output.shape(), 1000 + index);
  return CopyTo(CastCopy(w, output.dtype()), output.device());
}

Outcome Run(const OpCheck& check, const Tensors& inputs) {
  Outcome result;
  Tensors leaves;
  for (const Tensor& input : inputs) {
    if (!input.defined() || !IsFloating(input.dtype()) || !check.check_gradient) {
      leaves.push_back(input);
    } else {
      leaves.push_back(RequireGrad(input.Detach()));
    }
  }
  result.outputs = check.op(leaves);
  if (!check.check_gradient) return result;
  Tensors roots;
  Tensors seeds;
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    if (!RequiresGrad(result.outputs[i])) continue;
    roots.push_back(result.outputs[i]);
    seeds.push_back(OutputWeights(result.outputs[i], i));
  }
  Backward(roots, seeds);
  for (const Tensor& leaf : leaves) {
    result.grads.push_back(leaf.defined() && IsLeaf(leaf) ? Grad(leaf) : Tensor());
  }
  return result;
}

Tensors Converted(const Tensors& inputs, DType dtype, bool gaps, Device device) {
  Tensors converted;
  for (const Tensor& input : inputs) {
    Tensor t = input;
    if (t.defined() && IsFloating(t.dtype())) t = CastCopy(t, dtype);
    if (t.defined()) t = CopyTo(t, device);
    converted.push_back(t.defined() && gaps ? WithGaps(t) : t);
  }
  return converted;
}

// What the inputs are once rounded to `dtype`, in float64 on the CPU.
Tensors Exact(const Tensors& inputs, DType dtype) {
  Tensors converted;
  for (const Tensor& t : Converted(inputs, dtype, false, Device::Cpu())) {
    const bool cast = t.defined() && IsFloating(t.dtype());
    converted.push_back(cast ? CastCopy(t, DType::kFloat64) : t.defined() ? t.ContiguousCopy() : t);
  }
  return converted;
}

void CompareOnce(const OpCheck& check, DType dtype, bool gaps, Device device,
                 const std::string& where) {
  const Tensors inputs = Converted(check.inputs, dtype, gaps, device);
  const Outcome actual = Run(check, inputs);
  const double tolerance = check.slack * Epsilon(dtype) * std::sqrt(check.sum_length);
  if (check.reference) {
    const Tensors expected = check.reference(Exact(check.inputs, dtype));
    ASSERT_EQ(actual.outputs.size(), expected.size()) << where;
    for (size_t i = 0; i < expected.size(); ++i) {
      ExpectClose(actual.outputs[i], expected[i], tolerance, Concat(where, " output ", i),
                  check.scale_floor);
    }
  }
  if (!check.check_gradient || (dtype == DType::kFloat64 && device.is_cpu())) return;
  const Outcome exact = Run(check, Exact(check.inputs, dtype));
  for (size_t i = 0; i < exact.grads.size(); ++i) {
    if (!exact.grads[i].defined()) continue;
    ASSERT_TRUE(actual.grads[i].defined()) << where << " gradient " << i;
    // A half-precision gradient is rounded on its way through every node.
    ExpectClose(actual.grads[i], exact.grads[i], 4 * tolerance, Concat(where, " gradient ", i),
                check.scale_floor);
  }
}

// The most bytes that the operation and its gradient had at once on `device`, beside the inputs.
int64_t PeakBytes(const OpCheck& check, DType dtype, bool gaps, const Device& device) {
  const Tensors inputs = Converted(check.inputs, dtype, gaps, device);
  Allocator& allocator = Allocator::For(device);
  allocator.ResetPeak();
  const int64_t before = allocator.stats().current_bytes;
  Run(check, inputs);
  return allocator.stats().peak_bytes - before;
}

void CheckMeta(const OpCheck& check, const std::string& where) {
  const NoGrad no_grad;
  const Tensors inputs = Converted(check.inputs, DType::kFloat32, false, Device::Cpu());
  const Tensors real = check.op(inputs);
  Tensors meta;
  for (const Tensor& t : inputs) {
    meta.push_back(t.defined() ? Empty(t.shape(), t.dtype(), Device::Meta()) : t);
  }
  const Tensors outputs = check.op(meta);
  ASSERT_EQ(outputs.size(), real.size()) << where;
  for (size_t i = 0; i < real.size(); ++i) {
    EXPECT_EQ(outputs[i].shape(), real[i].shape()) << where << " on meta";
    EXPECT_EQ(outputs[i].dtype(), real[i].dtype()) << where << " on meta";
    EXPECT_TRUE(outputs[i].device().is_meta()) << where;
  }
}

}  // namespace

uint64_t FreshSeed() {
  static const uint64_t seed = [] {
    const char* fixed = std::getenv("TESSERA_TEST_SEED");
    const uint64_t value =
        fixed != nullptr ? std::strtoull(fixed, nullptr, 10) : std::random_device()() % 1000000;
    ::testing::Test::RecordProperty("seed", std::to_string(value));
    return value;
  }();
  return seed;
}

double Epsilon(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 0x1p-53;
    case DType::kBFloat16:
      return 0x1p-8;
    case DType::kFloat16:
      return 0x1p-11;
    default:
      return 0x1p-24;
  }
}

Tensor RandomTensor(const Shape& shape, uint64_t seed, double scale) {
  Tensor t = Empty(shape, DType::kFloat64);
  const RandomKey key = RandomKey::FromSeed(FreshSeed()).With(seed);
  for (int64_t i = 0; i < t.numel(); ++i) {
    t.data<double>()[i] = scale * NormalDouble(key, static_cast<uint64_t>(i));
  }
  return t;
}

Tensor RandomIndices(const Shape& shape, int64_t high, uint64_t seed) {
  Tensor t = Empty(shape, DType::kInt64);
  const RandomKey key = RandomKey::FromSeed(FreshSeed()).With(seed);
  for (int64_t i = 0; i < t.numel(); ++i) {
    t.data<int64_t>()[i] = static_cast<int64_t>(RandomBits(key, static_cast<uint64_t>(i)) %
                                                static_cast<uint64_t>(high));
  }
  return t;
}

Tensor WithGaps(const Tensor& t) {
  if (t.ndim() == 0) return t;
  Shape larger = t.shape();
  for (int d = 0; d < larger.ndim(); ++d) larger[d] = larger[d] * 2 + 1;
  const Tensor room = Full(larger, 7.0, t.dtype(), t.device());
  Shape strides = room.strides();
  int64_t offset = 0;
  for (int d = 0; d < strides.ndim(); ++d) {
    offset += strides[d];
    strides[d] *= 2;
  }
  if (t.numel() == 0) offset = 0;
  Tensor view = room.AsStrided(t.shape(), strides, offset);
  CopyInto(view, t);
  return view;
}

void ExpectClose(const Tensor& actual, const Tensor& expected, double tolerance,
                 const std::string& what, double scale_floor) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  const std::vector<double> a = actual.ToVector<double>();
  const std::vector<double> e = expected.ToVector<double>();
  double scale = scale_floor;
  for (double value : e) {
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  }
  const double allowed = tolerance * std::max(scale, 1e-30);
  double worst = -1;
  size_t at = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    double error = std::abs(a[i] - e[i]);
    if (a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i]))) error = 0;
    if (!(error <= worst)) {
      worst = error;
      at = i;
    }
  }
  if (!a.empty()) {
    EXPECT_LE(worst, allowed) << what << ": worst at element " << at << " of " << actual << ": "
                              << a[at] << ", expected " << e[at] << " (seed " << FreshSeed() << ")";
  }
}

std::vector<Device> TestDevices() {
  const char* setting = std::getenv("TESSERA_TEST_DEVICES");
  const std::string wanted = setting != nullptr ? setting : "";
  std::vector<Device> devices;
  if (wanted != "cuda") devices.push_back(Device::Cpu());
  if (wanted != "cpu") {
    const Status status = CheckDeviceAvailable(Device::Cuda(0));
    if (status.ok()) devices.push_back(Device::Cuda(0));
    EXPECT_TRUE(status.ok() || wanted != "cuda") << Message(status);
  }
  return devices;
}

namespace {

void CheckCpu(const OpCheck& check) {
  CompareOnce(check, DType::kFloat64, false, Device::Cpu(), Concat(check.name, " float64"));
  const CpuIsa best = ActiveIsa();
  for (const CpuIsa isa : kKernelIsas) {
    if (isa > best) continue;
    SetActiveIsa(isa);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      if (IsHalf(dtype) && !check.half_precision) continue;
      for (const bool gaps : {false, true}) {
        CompareOnce(check, dtype, gaps, Device::Cpu(),
                    Concat(check.name, " ", dtype, gaps ? " strided " : " ", CpuIsaName(isa)));
      }
    }
  }
  SetActiveIsa(best);
}

void CheckCuda(const OpCheck& check, Device device) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    if (IsHalf(dtype) && !check.half_precision) continue;
    for (const bool gaps : {false, true}) {
      const std::string where = Concat(check.name, " ", dtype, gaps ? " strided " : " ", device);
      CompareOnce(check, dtype, gaps, device, where);
      EXPECT_EQ(PeakBytes(check, dtype, gaps, device),
                PeakBytes(check, dtype, gaps, Device::Meta(device.type)))
          << where << ": bytes on the device and on meta";
    }
  }
}

}  // namespace

void CheckOp(const OpCheck& check) {
  if (check.check_gradient) {
    // Keeps integer and undefined inputs out of the differences.
    const GradCheckResult result =
        GradCheck(check.op, check.inputs, {.tolerance = check.gradcheck_tolerance});
    EXPECT_TRUE(result.ok) << check.name << ": " << result.message << " (seed " << FreshSeed()
                           << ")";
  }
  for (const Device& device : TestDevices()) {
    if (device.is_cpu()) {
      CheckCpu(check);
    } else {
      CheckCuda(check, device);
    }
  }
  CheckMeta(check, check.name);
}

}  // namespace tessera
