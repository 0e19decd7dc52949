// SPDX-License-Identifier: Apache-2.0
#include "nn/channel_norm.h"

#include "autograd/recompute.h"
#include "nn/running_statistics.h"
#include "ops/elementwise/elementwise.h"

namespace tessera::nn {

BatchNorm::BatchNorm(const BatchNormConfig& config, const Scope& scope)
    : Module(scope),
      config_(config),
      weight_(AddParameter("weight", Placement::Whole({config.channels}), Init::Ones())),
      bias_(AddParameter("bias", Placement::Whole({config.channels}), Init::Zeros())),
      running_mean_(
          AddParameter("running_mean", Placement::Whole({config.channels}), Init::Zeros())),
      running_var_(AddParameter("running_var", Placement::Whole({config.channels}), Init::Ones())) {
  for (Parameter* running : {&running_mean_, &running_var_}) {
    running->can_train = false;
    DropGrad(running->tensor);
  }
}

Tensor BatchNorm::Forward(const Tensor& x, const ForwardContext& context) const {
  return Call(x, [&] {
    if (context.training) return Train(x);
    return NormaliseChannels(x, running_mean_.tensor.Detach(), running_var_.tensor.Detach(),
                             weight_.tensor, bias_.tensor, config_.eps);
  });
}

Tensor BatchNorm::Train(const Tensor& x) const {
  const BatchNormed normed = tessera::BatchNorm(x, weight_.tensor, bias_.tensor, config_.eps);
  const auto count = static_cast<double>(x.numel() / x.size(1));
  TESSERA_CHECK(count > 1, "batch_norm",
                "a pass of training needs more than one element per channel, got ", x);
  if (InRecomputation()) return normed.y;
  RunningStatistics* const statistics = RunningStatistics::Current();
  TESSERA_CHECK(statistics != nullptr, "batch_norm",
                "running statistics have no place to go (nn::RunningStatistics::Scope); "
                "pipelines and ZeRO 3 have none: train by data parallelism with ZeRO 0 to 2");
  statistics->Add(running_mean_, normed.mean, config_.momentum);
  const NoGrad no_grad;
  statistics->Add(running_var_, Mul(normed.variance, count / (count - 1)), config_.momentum);
  return normed.y;
}

GroupNorm::GroupNorm(const GroupNormConfig& config, const Scope& scope)
    : Module(scope),
      config_(config),
      weight_(AddParameter("weight", Placement::Whole({config.channels}), Init::Ones())),
      bias_(AddParameter("bias", Placement::Whole({config.channels}), Init::Zeros())) {}

Tensor GroupNorm::Forward(const Tensor& x) const {
  return Call(x, [&] {
    return tessera::GroupNorm(x, config_.groups, weight_.tensor, bias_.tensor, config_.eps);
  });
}

}  // namespace tessera::nn
