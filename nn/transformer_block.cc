// SPDX-License-Identifier: Apache-2.0
#include "nn/transformer_block.h"

#include "ops/elementwise/elementwise.h"

namespace tessera::nn {
namespace {

const TransformerBlockConfig& Checked(const TransformerBlockConfig& config) {
  const bool before = config.norm_place == NormPlace::kBefore;
  TESSERA_CHECK(before || (!config.parallel && config.alpha == 0), "transformer_block",
                "parallel parts, and an alpha, need norms before the parts");
  TESSERA_CHECK(!config.parallel || config.alpha == 0, "transformer_block",
                "parallel parts have no alpha");
  const bool both = config.norm_place == NormPlace::kBothSides;
  TESSERA_CHECK(config.parallel || both || !config.mlp_norm_name.empty(), "transformer_block",
                "only parallel parts share a norm; mlp_norm_name is empty");
  TESSERA_CHECK(!config.attention_norm_name.empty() || both ||
                    (before && !config.parallel && config.alpha == 0),
                "transformer_block",
                "only norms before the parts can lack the attention's; attention_norm_name is "
                "empty");
  return config;
}

}  // namespace

TransformerBlock::TransformerBlock(const TransformerBlockConfig& config, const Scope& scope)
    : Module(scope),
      norm_place_(Checked(config).norm_place),
      parallel_(config.parallel),
      alpha_(config.alpha),
      attention_norm_(config.attention_norm_name.empty()
                          ? nullptr
                          : MakeNormOf(config, config.attention_norm_name)),
      attention_(
          config.make_attention != nullptr
              ? config.make_attention(Child(config.attention_name))
              : std::make_unique<SelfAttention>(config.attention, Child(config.attention_name))),
      attention_output_norm_(norm_place_ == NormPlace::kBothSides
                                 ? MakeNormOf(config, config.attention_output_norm_name)
                                 : nullptr),
      mlp_norm_(config.mlp_norm_name.empty() ? nullptr : MakeNormOf(config, config.mlp_norm_name)),
      mlp_(config.feed_forward != nullptr
               ? config.feed_forward(Child(config.mlp_name))
               : std::make_unique<Mlp>(config.mlp, Child(config.mlp_name))),
      mlp_output_norm_(norm_place_ == NormPlace::kBothSides
                           ? MakeNormOf(config, config.mlp_output_norm_name)
                           : nullptr) {}

std::unique_ptr<Norm> TransformerBlock::MakeNormOf(const TransformerBlockConfig& config,
                                                   const std::string& name) {
  const NormConfig norm = {.width = config.attention.hidden_size,
                           .eps = config.norm_eps,
                           .bias = config.norm_bias,
                           .zero_centered = config.norm_zero_centered};
  return MakeNorm(config.norm, norm, Child(name));
}

Tensor TransformerBlock::Before(const Tensor& h, const Attend& attend,
                                const ForwardContext& context) const {
  const auto through = [](const std::unique_ptr<Norm>& norm, const Tensor& x) {
    return norm == nullptr ? x : norm->Forward(x);
  };
  NormResult in;
  in.sum = in.normed = h;
  if (attention_norm_ != nullptr) in = attention_norm_->ForwardResidual(h, Tensor());
  const Tensor attended = through(attention_output_norm_, attend(in.normed));
  NormResult r;
  if (mlp_norm_ != nullptr) {
    r = mlp_norm_->ForwardResidual(in.sum, attended);
  } else {
    r.sum = r.normed = Add(in.sum, attended);
  }
  return Add(r.sum, through(mlp_output_norm_, mlp_->Forward(r.normed, context)));
}

Tensor TransformerBlock::Behind(const Tensor& h, const Attend& attend,
                                const ForwardContext& context) const {
  const Tensor x = attention_norm_->ForwardResidual(h, attend(h)).normed;
  return mlp_norm_->ForwardResidual(x, mlp_->Forward(x, context)).normed;
}

Tensor TransformerBlock::Parallel(const Tensor& h, const Attend& attend,
                                  const ForwardContext& context) const {
  const NormResult in = attention_norm_->ForwardResidual(h, Tensor());
  const Tensor attended = attend(in.normed);
  const NormResult r = mlp_norm_ == nullptr ? in : mlp_norm_->ForwardResidual(in.sum, Tensor());
  return Add(r.sum, Add(attended, mlp_->Forward(r.normed, context)));
}

Tensor TransformerBlock::Scaled(const Tensor& h, const Attend& attend,
                                const ForwardContext& context) const {
  const Tensor x = attention_norm_->Forward(h);
  const Tensor attended = attend(x);
  const Tensor y = mlp_norm_->ForwardResidual(Mul(x, alpha_), attended).normed;
  return Add(Mul(y, alpha_), mlp_->Forward(y, context));
}

Tensor TransformerBlock::Forward(const Tensor& h, const AttentionMasks& masks,
                                 const ForwardContext& context, KeyValueCache* cache,
                                 int layer) const {
  return Call(h, [&] {
    const auto attend = [&](const Tensor& x) {
      return attention_->Forward(x, masks, context, cache, layer);
    };
    if (alpha_ != 0) return Scaled(h, attend, context);
    if (parallel_) return Parallel(h, attend, context);
    return norm_place_ == NormPlace::kBehind ? Behind(h, attend, context)
                                             : Before(h, attend, context);
  });
}

}  // namespace tessera::nn
