#include "nn/attention.h"

#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/rotary/rotary.h"
#include "ops/view/view.h"

namespace tessera::nn {

// B batch, T tokens, C hidden size, H this rank's heads, D head size.

int64_t HeadDim(const SelfAttentionConfig& config) {
  if (config.head_dim > 0) return config.head_dim;
  TESSERA_CHECK(config.num_heads > 0 && config.hidden_size % config.num_heads == 0,
                "self_attention", "hidden size ", config.hidden_size, " does not divide into ",
                config.num_heads, " heads");
  return config.hidden_size / config.num_heads;
}

Share HeadShare(const SelfAttentionConfig& config, const Group& group) {
  return group == nullptr ? Share{0, config.num_heads}
                          : EvenShare(config.num_heads, group->size(), group->rank());
}

LinearConfig ProjectionConfig(const SelfAttentionConfig& config, int64_t parts) {
  const int64_t inner = config.num_heads * HeadDim(config);
  std::vector<FeatureBlock> blocks(static_cast<size_t>(parts), {inner, HeadDim(config)});
  if (config.qkv_by_head) blocks = {{parts * inner, parts * HeadDim(config)}};
  return {.in_features = config.hidden_size,
          .out_features = parts * inner,
          .bias = config.qkv_bias,
          .layout = config.layout,
          .weight_init = config.weight_init,
          .blocks = std::move(blocks)};
}

LinearConfig OutputConfig(const SelfAttentionConfig& config) {
  const int64_t inner = config.num_heads * HeadDim(config);
  return {.in_features = inner,
          .out_features = config.hidden_size,
          .bias = config.output_bias,
          .layout = config.layout,
          .weight_init = config.output_init,
          .blocks = {{inner, HeadDim(config)}}};
}

namespace {

std::vector<std::unique_ptr<ColumnParallelLinear>> MakeQkv(
    const SelfAttentionConfig& config, const std::function<Scope(const std::string&)>& child) {
  std::vector<std::unique_ptr<ColumnParallelLinear>> layers;
  if (config.qkv_names.empty()) {
    layers.push_back(std::make_unique<ColumnParallelLinear>(ProjectionConfig(config, 3),
                                                            child(config.qkv_name)));
    return layers;
  }
  TESSERA_CHECK(config.qkv_names.size() == 3, "self_attention", "q, k and v need three names, not ",
                config.qkv_names.size());
  for (const std::string& name : config.qkv_names) {
    layers.push_back(
        std::make_unique<ColumnParallelLinear>(ProjectionConfig(config, 1), child(name)));
  }
  return layers;
}

}  // namespace

SelfAttention::SelfAttention(const SelfAttentionConfig& config, const Scope& scope)
    : Module(scope),
      config_(config),
      head_dim_(HeadDim(config)),
      heads_(HeadShare(config, build().tensor_parallel)),
      qkv_(MakeQkv(config, [this](const std::string& name) { return Child(name); })),
      output_(OutputConfig(config), Child(config.output_name)),
      attn_dropout_(config.attention_dropout, Child("attn_dropout")),
      resid_dropout_(config.residual_dropout, Child("resid_dropout")) {}

std::vector<Tensor> SelfAttention::Project(const Tensor& h_BTC,
                                           const ForwardContext& context) const {
  const int64_t h = heads_.count;
  const auto split = [&](const Tensor& x, int64_t count) {
    return Transpose(Reshape(x, {x.size(0), x.size(1), count, head_dim_}), 1, 2);
  };
  if (qkv_.size() == 1 && config_.qkv_by_head) {
    const Tensor x_BTF = qkv_[0]->Forward(h_BTC, context);
    const Tensor by_head = Reshape(x_BTF, {x_BTF.size(0), x_BTF.size(1), h, 3 * head_dim_});
    return Split(Transpose(by_head, 1, 2), {head_dim_, head_dim_, head_dim_}, 3);
  }
  if (qkv_.size() == 1) {
    return Split(split(qkv_[0]->Forward(h_BTC, context), 3 * h), {h, h, h}, 1);
  }
  const Tensor whole = qkv_[0]->Gather(h_BTC, context);
  std::vector<Tensor> q_k_v;
  for (const auto& layer : qkv_) q_k_v.push_back(split(layer->ForwardGathered(whole), h));
  return q_k_v;
}

Tensor SelfAttention::Forward(const Tensor& h_BTC, const AttentionMasks& masks,
                              const ForwardContext& context, KeyValueCache* cache,
                              int layer) const {
  return Call(h_BTC, [&] {
    const std::vector<Tensor> q_k_v_BHTD = Project(h_BTC, context);
    Tensor q = q_k_v_BHTD[0];
    Tensor k = q_k_v_BHTD[1];
    Tensor v = q_k_v_BHTD[2];
    if (masks.rotary_positions.defined()) {
      q = Rotary(q, masks.rotary_positions);
      k = Rotary(k, masks.rotary_positions);
    }

    AttentionOptions options;
    options.scale = config_.scale;
    options.causal = config_.causal;
    options.key_padding = masks.key_padding;
    options.query_document = masks.document;
    options.key_document = masks.document;
    options.prefix_length = masks.prefix_length;
    options.bias = masks.bias;
    if (cache != nullptr) {
      std::tie(k, v) = cache->Append(layer, k, v);
      options.query_offsets = CopyTo(cache->QueryOffsets(), k.device());
      options.key_length = CopyTo(cache->KeyLengths(), k.device());
    }
    if (context.training && attn_dropout_.p() > 0) {
      options.dropout_p = attn_dropout_.p();
      options.dropout_key =
          NoiseKey(context.seed, attn_dropout_.path(), context.step, context.micro_batch);
      options.head_begin = heads_.begin;
      options.heads_total = config_.num_heads;
    }
    const Tensor o_BHTD = Attention(q, k, v, options).output;
    const Tensor merged = Reshape(Transpose(o_BHTD, 1, 2),
                                  {o_BHTD.size(0), o_BHTD.size(2), heads_.count * head_dim_});
    return resid_dropout_.Forward(output_.Forward(merged), context);
  });
}

}  // namespace tessera::nn
