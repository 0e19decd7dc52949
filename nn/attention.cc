#include "nn/attention.h"

#include <tuple>

#include "ops/attention/attention.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

// B batch, T tokens, C hidden size, H this rank's heads, D head size.

int64_t HeadDim(const SelfAttentionConfig& config) {
  TESSERA_CHECK(config.num_heads > 0 && config.hidden_size % config.num_heads == 0,
                "self_attention", "hidden size ", config.hidden_size, " does not divide into ",
                config.num_heads, " heads");
  return config.hidden_size / config.num_heads;
}

Share HeadShare(const SelfAttentionConfig& config, const Group& group) {
  return group == nullptr ? Share{0, config.num_heads}
                          : EvenShare(config.num_heads, group->size(), group->rank());
}

LinearConfig QkvConfig(const SelfAttentionConfig& config) {
  const FeatureBlock heads = {config.hidden_size, HeadDim(config)};
  return {.in_features = config.hidden_size,
          .out_features = 3 * config.hidden_size,
          .layout = config.layout,
          .weight_init = config.weight_init,
          .blocks = {heads, heads, heads}};
}

LinearConfig OutputConfig(const SelfAttentionConfig& config) {
  return {.in_features = config.hidden_size,
          .out_features = config.hidden_size,
          .layout = config.layout,
          .weight_init = config.output_init,
          .blocks = {{config.hidden_size, HeadDim(config)}}};
}

}  // namespace

SelfAttention::SelfAttention(const SelfAttentionConfig& config, const Scope& scope)
    : Module(scope),
      config_(config),
      head_dim_(HeadDim(config)),
      heads_(HeadShare(config, build().tensor_parallel)),
      qkv_(QkvConfig(config), Child(config.qkv_name)),
      output_(OutputConfig(config), Child(config.output_name)),
      attn_dropout_(config.attention_dropout, Child("attn_dropout")),
      resid_dropout_(config.residual_dropout, Child("resid_dropout")) {}

Tensor SelfAttention::Forward(const Tensor& h_BTC, const AttentionMasks& masks,
                              const ForwardContext& context, KeyValueCache* cache, int layer) {
  return Call(h_BTC, [&] {
    const Tensor qkv = qkv_.Forward(h_BTC, context);
    const int64_t b = qkv.size(0);
    const int64_t t = qkv.size(1);
    const int64_t h = heads_.count;
    const Tensor heads = Transpose(Reshape(qkv, {b, t, 3 * h, head_dim_}), 1, 2);
    const std::vector<Tensor> q_k_v_BHTD = Split(heads, {h, h, h}, 1);
    Tensor k = q_k_v_BHTD[1];
    Tensor v = q_k_v_BHTD[2];

    AttentionOptions options;
    options.scale = config_.scale;
    options.causal = config_.causal;
    options.key_padding = masks.key_padding;
    options.query_document = masks.document;
    options.key_document = masks.document;
    if (cache != nullptr) {
      std::tie(k, v) = cache->Append(layer, k, v);
      options.query_offsets = CopyTo(cache->QueryOffsets(), k.device());
      options.key_length = CopyTo(cache->KeyLengths(), k.device());
    }
    if (training() && attn_dropout_.p() > 0) {
      options.dropout_p = attn_dropout_.p();
      options.dropout_key =
          NoiseKey(context.seed, attn_dropout_.path(), context.step, context.micro_batch);
      options.head_begin = heads_.begin;
      options.heads_total = config_.num_heads;
    }
    const Tensor o_BHTD = Attention(q_k_v_BHTD[0], k, v, options).output;
    const Tensor merged = Reshape(Transpose(o_BHTD, 1, 2), {b, t, h * head_dim_});
    return resid_dropout_.Forward(output_.Forward(merged), context);
  });
}

}  // namespace tessera::nn
