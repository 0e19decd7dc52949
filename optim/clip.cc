// SPDX-License-Identifier: Apache-2.0
#include "optim/clip.h"

#include "autograd/autograd.h"
#include "optim/exact_sum.h"
#include "optim/grad_norm_kernel.h"

namespace tessera::optim {
namespace {

// nullptr when undefined or on meta.
float* ScalarData(const Tensor& t, const Device& device, const char* what) {
  if (!t.defined()) return nullptr;
  TESSERA_CHECK(t.ndim() == 0 && t.dtype() == DType::kFloat32 && t.device() == device,
                "clip_grad_norm", what, " is ", t, ", expected float32[] on ", device);
  return device.is_meta() ? nullptr : t.data<float>();
}

std::vector<GradArray> ArraysOf(const std::vector<Tensor>& tensors) {
  std::vector<GradArray> arrays;
  for (const Tensor& t : tensors) {
    TESSERA_CHECK(IsFloating(t.dtype()), "clip_grad_norm", "a gradient is ", t);
    arrays.push_back({t.numel(), t.dtype(), t.raw_data()});
  }
  return arrays;
}

void ScaleInPlace(const std::vector<Parameter>& parameters, const Device& device,
                  const Tensor& factor, const Tensor& loss_scale) {
  std::vector<Tensor> strided;
  std::vector<Tensor> contiguous;
  for (const Parameter& parameter : parameters) {
    const Tensor grad = GradOrNone(parameter.tensor);
    if (!grad.defined()) continue;
    strided.push_back(grad);
    contiguous.push_back(grad.ContiguousCopy());
  }
  const std::vector<GradArray> arrays = ArraysOf(contiguous);
  scale_grads.Launch(device, {arrays, ScalarData(factor, device, "the clip factor"),
                              ScalarData(loss_scale, device, "the loss scale")});
  for (size_t i = 0; i < strided.size(); ++i) {
    if (strided[i].is_contiguous()) {
      strided[i].storage()->BumpVersion();
    } else {
      CopyInto(strided[i], contiguous[i]);
    }
  }
}

}  // namespace

Tensor SquareWords(const std::vector<Tensor>& tensors, Device device) {
  std::vector<Tensor> contiguous;
  for (const Tensor& t : tensors) {
    TESSERA_CHECK(t.device() == device, "clip_grad_norm", t, " is not on ", device);
    contiguous.push_back(t.ContiguousCopy());
  }
  Tensor words = Empty({kSumWords}, DType::kInt64, device);
  const std::vector<GradArray> arrays = ArraysOf(contiguous);
  square_sums.Launch(device, {arrays, static_cast<int64_t*>(words.raw_data())});
  return words;
}

Tensor RoundedSum(const Tensor& words) {
  TESSERA_CHECK(
      words.dtype() == DType::kInt64 && words.shape() == Shape{kSumWords} && words.is_contiguous(),
      "clip_grad_norm", "a sum is ", words, ", expected contiguous int64[", kSumWords, "]");
  Tensor sum = Empty({}, DType::kFloat64, words.device());
  round_sum.Launch(words.device(), {static_cast<const int64_t*>(words.raw_data()),
                                    static_cast<double*>(sum.raw_data())});
  return sum;
}

ClipResult ClipFromSquaredNorm(const Tensor& squared_norm, const ClipOptions& options) {
  TESSERA_CHECK(options.max_norm > 0, "clip_grad_norm", "max_norm is ", options.max_norm);
  TESSERA_CHECK(squared_norm.ndim() == 0 && squared_norm.dtype() == DType::kFloat64,
                "clip_grad_norm", "the squared norm is ", squared_norm, ", expected float64[]");
  const Device& device = squared_norm.device();
  ClipResult result{Empty({}, DType::kFloat32, device), Empty({}, DType::kFloat32, device)};
  clip_factor.Launch(device, {static_cast<const double*>(squared_norm.raw_data()),
                              ScalarData(options.loss_scale, device, "the loss scale"),
                              options.max_norm, static_cast<float*>(result.norm.raw_data()),
                              static_cast<float*>(result.factor.raw_data()),
                              ScalarData(options.found_inf, device, "the found-inf flag")});
  return result;
}

ClipResult ClipGradNorm(const std::vector<Parameter>& parameters, const ClipOptions& options) {
  const NoGrad no_grad;
  JoinTiedGradients(parameters);
  std::vector<Tensor> grads;
  for (const Parameter& parameter : parameters) {
    const Tensor grad = GradOrNone(parameter.tensor);
    if (grad.defined() && (!options.counted || options.counted(parameter))) grads.push_back(grad);
  }
  const Tensor words = SquareWords(grads, CommonDevice(parameters));
  if (options.reduce) options.reduce(words);
  return ClipFromSquaredNorm(RoundedSum(words), options);
}

ClipResult ClipGradNormInPlace(const std::vector<Parameter>& parameters,
                               const ClipOptions& options) {
  const NoGrad no_grad;
  ClipResult result = ClipGradNorm(parameters, options);
  ScaleInPlace(parameters, CommonDevice(parameters), result.factor, options.loss_scale);
  return result;
}

}  // namespace tessera::optim
