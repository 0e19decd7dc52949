// SPDX-License-Identifier: Apache-2.0
#include "nn/cross_attention.h"

#include <string>

#include "ops/attention/ring_attention.h"
#include "ops/view/view.h"

namespace tessera::nn {

// B batch, T tokens, S source tokens, C hidden size, H this rank's heads, D head size.

namespace {

const SelfAttentionConfig& Checked(const SelfAttentionConfig& config, const std::string& path) {
  TESSERA_CHECK(config.num_heads > 0 && config.qkv_names.size() == 3, "cross_attention", path, ": ",
                config.num_heads, " heads and ", config.qkv_names.size(), " names of q, k and v");
  const int64_t key_value_heads = config.num_key_value_heads;
  TESSERA_CHECK((key_value_heads == 0 || key_value_heads == config.num_heads) &&
                    config.window == 0 && config.head_norm_names.empty() && !config.rotary,
                "cross_attention", path,
                ": grouped heads, a window, head norms and rotary positions are of self-attention");
  return config;
}

}  // namespace

CrossAttention::CrossAttention(const SelfAttentionConfig& config, const Scope& scope)
    : Module(scope),
      config_(Checked(config, scope.path)),
      head_dim_(HeadDim(config)),
      heads_(HeadShare(config, build().tensor_parallel)),
      query_(QueryConfig(config, build().tensor_parallel), Child(config.qkv_names.at(0))),
      key_(KeyValueConfig(config, build().tensor_parallel), Child(config.qkv_names.at(1))),
      value_(KeyValueConfig(config, build().tensor_parallel), Child(config.qkv_names.at(2))),
      output_(OutputConfig(config, build().tensor_parallel), Child(config.output_name)),
      attn_dropout_(config.attention_dropout, Child("attn_dropout")),
      resid_dropout_(config.residual_dropout, Child("resid_dropout")) {}

Tensor CrossAttention::SplitHeads(const Tensor& x) const {
  return Transpose(Reshape(x, {x.size(0), x.size(1), heads_.count, head_dim_}), 1, 2);
}

Tensor CrossAttention::Forward(const Tensor& h_BTC, const Tensor& memory_BSC,
                               const AttentionMasks& masks, const ForwardContext& context,
                               KeyValueCache* cache, int layer) const {
  return Call(h_BTC, [&] {
    const Tensor q = SplitHeads(query_.Forward(h_BTC, context));
    AttentionOptions options;
    Tensor k;
    Tensor v;
    const bool kept = cache != nullptr && cache->HasMemory(layer);
    if (!kept) {
      k = SplitHeads(key_.ForwardGathered(memory_BSC, context));
      v = SplitHeads(value_.ForwardGathered(memory_BSC, context));
    }
    if (cache != nullptr) {
      const CachedKeys keys = kept ? cache->Memory(layer) : cache->SetMemory(layer, k, v);
      k = keys.k;
      v = keys.v;
      options.pages = keys.table;
      options.paged_keys = keys.length;
      options.key_length = keys.lengths;
    }
    options.scale = config_.scale;
    // Sources that were padded to longer ones, of other rows, are kept without that.
    const Tensor& padding = masks.key_padding;
    const bool shorter = kept && padding.defined() && padding.size(1) > options.paged_keys;
    options.key_padding = shorter ? Slice(padding, 1, 0, options.paged_keys) : padding;
    if (context.training && attn_dropout_.p() > 0) {
      options.dropout_p = attn_dropout_.p();
      options.dropout_key =
          NoiseKey(context.seed, attn_dropout_.path(), context.step, context.micro_batch);
      options.head_begin = heads_.begin;
      options.heads_total = config_.num_heads;
    }
    const Tensor o_BHTD =
        RingAttention(q, k, v, options, RingOf(build(), context, context.cut_source_length)).output;
    const Tensor merged = Reshape(Transpose(o_BHTD, 1, 2),
                                  {o_BHTD.size(0), o_BHTD.size(2), heads_.count * head_dim_});
    return resid_dropout_.Forward(output_.Forward(merged, context), context);
  });
}

}  // namespace tessera::nn
