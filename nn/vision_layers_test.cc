// SPDX-License-Identifier: Apache-2.0
// Layers of pictures: gradients of inputs and parameters, names, and what is refused.
#include <gtest/gtest.h>

#include <functional>

#include "autograd/gradcheck.h"
#include "nn/channel_norm.h"
#include "nn/convolution.h"
#include "nn/interpolate.h"
#include "nn/running_statistics.h"
#include "ops/testing/op_check.h"

namespace tessera::nn {
namespace {

const BuildContext kDouble = {.dtype = DType::kFloat64, .seed = 5};

// Of x and of all parameters that train.
void CheckLayer(Module& layer, const Tensor& x, const std::function<Tensor(const Tensor&)>& run) {
  Tensors inputs = {RequireGrad(x)};
  layer.VisitParameters([&](Parameter& p) {
    if (RequiresGrad(p.tensor)) inputs.push_back(p.tensor);
  });
  const auto forward = [&](const Tensors& in) { return Tensors{run(in[0])}; };
  const GradCheckResult result = GradCheck(forward, inputs);
  EXPECT_TRUE(result.ok) << layer.kind() << ": " << result.message;
}

TEST(VisionLayersTest, Gradients) {
  const Tensor x = RandomTensor({2, 4, 5, 3}, 1);
  Conv2d conv2d(
      {.in_channels = 4, .out_channels = 6, .kernel = {3, 1}, .padding = {1, 0}, .groups = 2},
      Scope::Root(kDouble));
  CheckLayer(conv2d, x.Detach(), [&](const Tensor& in) { return conv2d.Forward(in); });
  Conv1d conv1d({.in_channels = 4, .out_channels = 3, .kernel = 3, .stride = 2, .bias = false},
                Scope::Root(kDouble));
  CheckLayer(conv1d, RandomTensor({2, 4, 7}, 2),
             [&](const Tensor& in) { return conv1d.Forward(in); });
  ConvTranspose2d transposed({.in_channels = 4,
                              .out_channels = 6,
                              .kernel = 3,
                              .stride = 2,
                              .padding = {1, 0},
                              .output_padding = {1, 0},
                              .groups = 2},
                             Scope::Root(kDouble));
  CheckLayer(transposed, x.Detach(), [&](const Tensor& in) { return transposed.Forward(in); });
  EXPECT_EQ(transposed.Forward(x).shape(), (Shape{2, 6, 10, 7}));
  for (const Interpolation mode : {Interpolation::kNearest, Interpolation::kBilinear}) {
    Interpolate up({.scale = 2, .mode = mode}, Scope::Root(kDouble));
    CheckLayer(up, x.Detach(), [&](const Tensor& in) { return up.Forward(in); });
    EXPECT_EQ(up.Forward(x).shape(), (Shape{2, 4, 10, 6}));
  }
  // PyTorch's nn.Upsample(scale_factor=1.5).
  Interpolate half_as_large({.scale = 1.5}, Scope::Root({}));
  EXPECT_EQ(half_as_large.Forward(Tensor::FromVector<float>({1, 4, 2, 8, 5, 7}, {1, 1, 2, 3}))
                .ToVector<float>(),
            (std::vector<float>{1, 1, 4, 2, 1, 1, 4, 2, 8, 8, 5, 7}));
  Interpolate fixed({.size = Extent2d(3, 7)}, Scope::Root(kDouble));
  EXPECT_EQ(fixed.Forward(x).shape(), (Shape{2, 4, 3, 7}));
  GroupNorm group_norm({.groups = 2, .channels = 4}, Scope::Root(kDouble));
  CheckLayer(group_norm, x.Detach(), [&](const Tensor& in) { return group_norm.Forward(in); });
  BatchNorm batch_norm({.channels = 4}, Scope::Root(kDouble));
  for (const bool training : {true, false}) {
    RunningStatistics statistics;
    const RunningStatistics::Scope scope(&statistics);
    CheckLayer(batch_norm, x.Detach(),
               [&](const Tensor& in) { return batch_norm.Forward(in, {.training = training}); });
    EXPECT_EQ(statistics.empty(), !training);
  }
}

TEST(VisionLayersTest, StatisticsLieInTheStateAndDoNotTrain) {
  BatchNorm norm({.channels = 3}, Scope::Root({}));
  EXPECT_EQ(norm.StateDict().size(), 4u);
  EXPECT_EQ(norm.ParameterCount(), 12);
  EXPECT_EQ(norm.ParameterCount(/*trainable_only=*/true), 6);
}

// PyTorch's states count batches, too.
TEST(VisionLayersTest, LoadsAStateWithACountOfBatches) {
  BatchNorm norm({.channels = 3}, Scope::Root({}));
  auto state = norm.StateDict();
  state["num_batches_tracked"] = Full({}, 5, DType::kInt64);
  EXPECT_TRUE(norm.LoadStateDict(state).ok());
  state["other.num_batches_tracked"] = Full({}, 5, DType::kInt64);
  EXPECT_FALSE(norm.LoadStateDict(state).ok());
}

TEST(VisionLayersTest, RefusesWhatDoesNotFit) {
  EXPECT_THROW(Conv2d({.in_channels = 3, .out_channels = 4, .groups = 2}, Scope::Root({})), Error);
  EXPECT_THROW(Conv2d({.in_channels = 3}, Scope::Root({})), Error);
  EXPECT_THROW(Conv1d({.in_channels = 3}, Scope::Root({})), Error);
  EXPECT_THROW(Conv2d({.out_channels = 4}, Scope::Root({})), Error);
  EXPECT_THROW(ConvTranspose2d({.in_channels = 3, .out_channels = 4, .groups = 2}, Scope::Root({})),
               Error);
  EXPECT_THROW(Interpolate({}, Scope::Root({})), Error);
  EXPECT_THROW(Interpolate({.size = Extent2d(2), .scale = 2}, Scope::Root({})), Error);
  EXPECT_THROW(Interpolate({.scale = 2}, Scope::Root({})).Forward(Zeros({3, 4, 4})), Error);
}

}  // namespace
}  // namespace tessera::nn
