// SPDX-License-Identifier: Apache-2.0
// A transformer block: attention and a feed-forward part, each with a norm and a residual.
//
//   TransformerBlock block({.attention = {...}, .mlp = {...}, .norm = NormKind::kRmsNorm,
//                           .attention_norm_name = "input_layernorm"}, Child("layers.0"));
//
// Norms stand (NormPlace)
//   before (GPT-2, ViT, Llama): x + attn(norm(x)), then x + mlp(norm(x));
//   behind (BERT; Vaswani et al. 2017): norm(x + attn(x)), then norm(x + mlp(x));
//   on both sides (Gemma; Ding et al. 2021): x + norm'(attn(norm(x))), then likewise; the first
//     may lack (OLMo 2): x + norm'(attn(x)).
// In parallel (GPT-NeoX, GPT-J; Wang and Komatsuzaki 2021): x + attn(norm(x)) + mlp(norm(x)), the
// norms two or one. With an alpha, as ChatGLM-6B has it (the residual of DeepNet, Wang et al.
// 2022): n = norm(x), then alpha n + attn(n), and likewise for the feed-forward part.
#ifndef TESSERA_NN_TRANSFORMER_BLOCK_H_
#define TESSERA_NN_TRANSFORMER_BLOCK_H_

#include <functional>
#include <memory>
#include <string>

#include "nn/attention.h"
#include "nn/feed_forward.h"
#include "nn/mlp.h"
#include "nn/norm.h"

namespace tessera::nn {

enum class NormPlace { kBefore, kBehind, kBothSides };

// Which block: its parts, its norms and their places, its names in checkpoints.
struct TransformerBlockConfig {
  SelfAttentionConfig attention;
  MlpConfig mlp;
  // In place of a SelfAttention, under attention_name: of `attention`, hidden_size alone counts.
  MakeAttention make_attention = nullptr;
  MakeFeedForward feed_forward = nullptr;  // in place of an Mlp, under mlp_name
  NormKind norm = NormKind::kLayerNorm;
  double norm_eps = 1e-5;
  bool norm_bias = true;            // LayerNorm only
  bool norm_zero_centered = false;  // RmsNorm only
  NormPlace norm_place = NormPlace::kBefore;
  bool parallel = false;  // with norms before
  double alpha = 0.0;     // 0: as norm_place says; otherwise with norms before, not in parallel
  // "": the attention reads what the block is given; with norms before (ModernBERT's first block),
  // or on both sides (OLMo 2).
  std::string attention_norm_name = "ln_1";
  // "": in parallel, the feed-forward part shares the other norm; on both sides, it has none
  // before.
  std::string mlp_norm_name = "ln_2";
  std::string attention_name = "attn";
  std::string mlp_name = "mlp";
  // Norms of what attention and feed-forward part give: kBothSides.
  std::string attention_output_norm_name = "attn_output_norm";
  std::string mlp_output_norm_name = "mlp_output_norm";
};

class TransformerBlock : public Module {
 public:
  TransformerBlock(const TransformerBlockConfig& config, const Scope& scope);
  std::string_view kind() const override { return "TransformerBlock"; }
  // h [B, T, C] to [B, T, C]; see SelfAttention for masks and cache.
  Tensor Forward(const Tensor& h, const AttentionMasks& masks, const ForwardContext& context,
                 KeyValueCache* cache = nullptr, int layer = 0) const;

 private:
  using Attend = std::function<Tensor(const Tensor&)>;
  std::unique_ptr<Norm> MakeNormOf(const TransformerBlockConfig& config, const std::string& name);
  // By the place of the norms.
  Tensor Before(const Tensor& h, const Attend& attend, const ForwardContext& context) const;
  Tensor Behind(const Tensor& h, const Attend& attend, const ForwardContext& context) const;
  Tensor Parallel(const Tensor& h, const Attend& attend, const ForwardContext& context) const;
  Tensor Scaled(const Tensor& h, const Attend& attend, const ForwardContext& context) const;

  const NormPlace norm_place_;
  const bool parallel_;
  const double alpha_;
  std::unique_ptr<Norm> attention_norm_;  // null: none
  std::unique_ptr<AttentionLayer> attention_;
  std::unique_ptr<Norm> attention_output_norm_;  // null: none
  std::unique_ptr<Norm> mlp_norm_;               // null: attention_norm_ serves both, or none
  std::unique_ptr<FeedForward> mlp_;
  std::unique_ptr<Norm> mlp_output_norm_;  // null: none
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_TRANSFORMER_BLOCK_H_
