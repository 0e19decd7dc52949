// SPDX-License-Identifier: Apache-2.0
// Attention of one sequence to another: a decoder's to what its encoder gave (Vaswani et al. 2017).
//
//   CrossAttention attn({.hidden_size = C, .num_heads = H, ...}, Child("EncDecAttention"));
//   Tensor y_BTC = attn.Forward(h_BTC, memory_BSC, {.key_padding = mask_BS}, context, cache,
//   layer);
//
// Configured as SelfAttention (`causal` and the fused projection are of no use here: q, k and v are
// layers of their own, by `qkv_names`; grouped heads, windows, head norms and rotary are refused).
// Split by heads over the tensor-parallel group. `memory` is the whole source sequence on every
// rank, gathered once for all layers (CopyToGroup or AllGatherToGroup), so that its gradient is
// summed over ranks once.
#ifndef TESSERA_NN_CROSS_ATTENTION_H_
#define TESSERA_NN_CROSS_ATTENTION_H_

#include "nn/attention.h"

namespace tessera::nn {

class CrossAttention : public Module {
 public:
  CrossAttention(const SelfAttentionConfig& config, const Scope& scope);
  std::string_view kind() const override { return "CrossAttention"; }
  const SelfAttentionConfig& config() const { return config_; }

  // h [B, T, C] (its share of the sequence under sequence parallelism), result likewise; memory
  // [B, S, C]. Of the masks `key_padding` [B, S] applies. With a cache the keys and values of the
  // memory are computed in the first step and kept; `memory` may be undefined afterwards.
  Tensor Forward(const Tensor& h, const Tensor& memory, const AttentionMasks& masks,
                 const ForwardContext& context, KeyValueCache* cache = nullptr,
                 int layer = 0) const;

 private:
  Tensor SplitHeads(const Tensor& x) const;

  const SelfAttentionConfig config_;
  const int64_t head_dim_;
  const Share heads_;  // this rank's
  ColumnParallelLinear query_;
  ColumnParallelLinear key_;
  ColumnParallelLinear value_;
  RowParallelLinear output_;
  Dropout attn_dropout_;
  Dropout resid_dropout_;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_CROSS_ATTENTION_H_
