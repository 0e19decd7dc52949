// A transformer block: attention and a feed-forward part, each with a norm and a residual.
//
// Pre-norm (GPT-2, ViT): x + attn(norm(x)), then x + mlp(norm(x)). Post-norm (BERT, the original
// Vaswani et al. 2017): norm(x + attn(x)), then norm(x + mlp(x)). With an alpha, as ChatGLM-6B has
// it (the residual of DeepNet, Wang et al. 2022): n = norm(x), then alpha n + attn(n), and likewise
// for the feed-forward part.
#ifndef TESSERA_NN_TRANSFORMER_BLOCK_H_
#define TESSERA_NN_TRANSFORMER_BLOCK_H_

#include <string>

#include "nn/attention.h"
#include "nn/mlp.h"
#include "nn/norm.h"

namespace tessera::nn {

struct TransformerBlockConfig {
  SelfAttentionConfig attention;
  MlpConfig mlp;
  double norm_eps = 1e-5;
  bool pre_norm = true;
  double alpha = 0.0;  // 0: as pre_norm says
  std::string attention_norm_name = "ln_1";
  std::string mlp_norm_name = "ln_2";
  std::string attention_name = "attn";
  std::string mlp_name = "mlp";
};

class TransformerBlock : public Module {
 public:
  TransformerBlock(const TransformerBlockConfig& config, const Scope& scope);
  std::string_view kind() const override { return "TransformerBlock"; }
  // h [B, T, C] to [B, T, C]; see SelfAttention for masks and cache.
  Tensor Forward(const Tensor& h, const AttentionMasks& masks, const ForwardContext& context,
                 KeyValueCache* cache = nullptr, int layer = 0) const;

 private:
  const bool pre_norm_;
  const double alpha_;
  LayerNorm attention_norm_;
  SelfAttention attention_;
  LayerNorm mlp_norm_;
  Mlp mlp_;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_TRANSFORMER_BLOCK_H_
