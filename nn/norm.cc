// SPDX-License-Identifier: Apache-2.0
#include "nn/norm.h"

#include <optional>

#include "nn/weight.h"

namespace tessera::nn {
namespace {

// Where layers sum in trees, they give norms of heads all of them, and the others' gradients come
// out summed (TokensOf).
Group PartialGradients(const NormConfig& config, const BuildContext& build) {
  if (SumsInTrees(build)) return nullptr;
  const bool on_share = build.sequence_parallel && !config.on_whole;
  return on_share || config.on_heads ? build.tensor_parallel : nullptr;
}

// In which order gradients are summed over tokens that sequence parallelism may cut.
std::optional<TokenTree> TokensOf(const Tensor& x, const NormConfig& config,
                                  const BuildContext& build) {
  if (!SumsInTrees(build) || config.on_whole || config.on_heads) return std::nullopt;
  if (build.sequence_parallel) return TokenTree{build.tensor_parallel};
  return x.ndim() >= 3 ? std::optional(TokenTree{nullptr}) : std::nullopt;
}

}  // namespace

std::unique_ptr<Norm> MakeNorm(NormKind kind, const NormConfig& config, const Scope& scope) {
  if (kind == NormKind::kRmsNorm) return std::make_unique<RmsNorm>(config, scope);
  return std::make_unique<LayerNorm>(config, scope);
}

LayerNorm::LayerNorm(const NormConfig& config, const Scope& scope)
    : Norm(scope),
      config_(config),
      weight_(AddParameter("weight", Placement::Whole({config.width}), Init::Ones())) {
  TESSERA_CHECK(!config.zero_centered, "norm", path(), ": a weight less 1 is of RmsNorm");
  weight_.gradient_group = PartialGradients(config, build());
  if (!config.bias) return;
  bias_ = &AddParameter("bias", Placement::Whole({config.width}), Init::Zeros());
  bias_->gradient_group = PartialGradients(config, build());
}

Tensor LayerNorm::Forward(const Tensor& x) const {
  return Call(x, [&] {
    return tessera::LayerNorm(x, weight_.tensor, bias_ ? bias_->tensor : Tensor(), config_.eps,
                              TokensOf(x, config_, build()));
  });
}

NormResult LayerNorm::ForwardResidual(const Tensor& x, const Tensor& residual) const {
  return Call(x, [&] {
    return NormResult{LayerNormResidual(x, residual, weight_.tensor,
                                        bias_ ? bias_->tensor : Tensor(), config_.eps,
                                        TokensOf(x, config_, build()))};
  });
}

RmsNorm::RmsNorm(const NormConfig& config, const Scope& scope)
    : Norm(scope),
      config_(config),
      weight_offset_(config.zero_centered ? 1.0 : 0.0),
      weight_(AddParameter("weight", Placement::Whole({config.width}),
                           config.zero_centered ? Init::Zeros() : Init::Ones())) {
  weight_.gradient_group = PartialGradients(config, build());
}

Tensor RmsNorm::Forward(const Tensor& x) const {
  return Call(x, [&] {
    return tessera::RmsNorm(x, weight_.tensor, config_.eps, weight_offset_,
                            TokensOf(x, config_, build()));
  });
}

NormResult RmsNorm::ForwardResidual(const Tensor& x, const Tensor& residual) const {
  return Call(x, [&] {
    return NormResult{RmsNormResidual(x, residual, weight_.tensor, config_.eps, weight_offset_,
                                      TokensOf(x, config_, build()))};
  });
}

}  // namespace tessera::nn
