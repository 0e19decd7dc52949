#include "nn/transformer_block.h"

#include "ops/elementwise/elementwise.h"

namespace tessera::nn {

TransformerBlock::TransformerBlock(const TransformerBlockConfig& config, const Scope& scope)
    : Module(scope),
      pre_norm_(config.pre_norm),
      alpha_(config.alpha),
      attention_norm_({.width = config.attention.hidden_size, .eps = config.norm_eps},
                      Child(config.attention_norm_name)),
      attention_(config.attention, Child(config.attention_name)),
      mlp_norm_({.width = config.attention.hidden_size, .eps = config.norm_eps},
                Child(config.mlp_norm_name)),
      mlp_(config.mlp, Child(config.mlp_name)) {}

Tensor TransformerBlock::Forward(const Tensor& h, const AttentionMasks& masks,
                                 const ForwardContext& context, KeyValueCache* cache,
                                 int layer) const {
  return Call(h, [&] {
    if (alpha_ != 0) {
      const Tensor x = attention_norm_.Forward(h);
      const Tensor attended = attention_.Forward(x, masks, context, cache, layer);
      const Tensor y = mlp_norm_.ForwardResidual(Mul(x, alpha_), attended).normed;
      return Add(Mul(y, alpha_), mlp_.Forward(y, context));
    }
    if (pre_norm_) {
      const Tensor attended =
          attention_.Forward(attention_norm_.Forward(h), masks, context, cache, layer);
      const NormResult r = mlp_norm_.ForwardResidual(h, attended);
      return Add(r.sum, mlp_.Forward(r.normed, context));
    }
    const Tensor attended = attention_.Forward(h, masks, context, cache, layer);
    const Tensor x = attention_norm_.ForwardResidual(h, attended).normed;
    return mlp_norm_.ForwardResidual(x, mlp_.Forward(x, context)).normed;
  });
}

}  // namespace tessera::nn
