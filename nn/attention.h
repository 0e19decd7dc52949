// Multi-head self-attention, split by heads over the tensor-parallel group.
//
//   SelfAttention attn({.hidden_size = C, .num_heads = H, ...}, Child("attn"));
//   Tensor y_BTC = attn.Forward(h_BTC, masks, context, cache, layer);
//
// q, k and v come from one fused projection of three blocks, each split by heads, so that its
// parameter stays one, as in the checkpoint, or from three layers where the checkpoint has three. A
// rank may hold fewer heads than another, or none.
#ifndef TESSERA_NN_ATTENTION_H_
#define TESSERA_NN_ATTENTION_H_

#include <memory>
#include <string>
#include <vector>

#include "nn/dropout.h"
#include "nn/key_value_cache.h"
#include "nn/linear.h"

namespace tessera::nn {

struct SelfAttentionConfig {
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t head_dim = 0;  // 0: hidden_size / num_heads
  bool causal = true;
  double scale = 0.0;  // 0: 1 / sqrt(head size)
  double attention_dropout = 0.0;
  double residual_dropout = 0.0;
  LinearLayout layout = LinearLayout::kOutIn;
  Init weight_init = Init::Normal(0.02);
  Init output_init = Init::Normal(0.02);
  bool qkv_bias = true;
  bool output_bias = true;
  std::string qkv_name = "c_attn";
  // The fused projection's features go head by head, each with its q, k and v (ChatGLM), instead of
  // all heads' q, then k, then v.
  bool qkv_by_head = false;
  // Three names: q, k and v are layers of their own (BERT, ViT) instead of the fused one.
  std::vector<std::string> qkv_names = {};
  std::string output_name = "c_proj";
};

// The layers that such an attention is made of: the size of a head, this rank's heads, a projection
// to `parts` of q, k and v, and the one behind the heads.
int64_t HeadDim(const SelfAttentionConfig& config);
Share HeadShare(const SelfAttentionConfig& config, const Group& group);
LinearConfig ProjectionConfig(const SelfAttentionConfig& config, int64_t parts);
LinearConfig OutputConfig(const SelfAttentionConfig& config);

// Which keys count, and where tokens stand; undefined tensors mask and change nothing.
struct AttentionMasks {
  Tensor key_padding = {};  // [B, Tk] bool: keys that count (Tk includes cached ones)
  Tensor document = {};     // [B, T] int32: tokens see their own document only; without cache
  // [B] int32: keys before it are seen by every query, causal or not (prefix language models)
  Tensor prefix_length = {};
  Tensor bias = {};  // [B or 1, this rank's heads or 1, T, Tk], added to the scores
  // [B, T] or [B, N, T] int64: queries and keys are rotated by them (ops/rotary/rotary.h)
  Tensor rotary_positions = {};
};

class SelfAttention : public Module {
 public:
  SelfAttention(const SelfAttentionConfig& config, const Scope& scope);
  std::string_view kind() const override { return "SelfAttention"; }

  // h [B, T, C] (its share of the sequence under sequence parallelism), result likewise. With a
  // cache, T new tokens are appended to layer `layer` of it and attend to all.
  Tensor Forward(const Tensor& h, const AttentionMasks& masks, const ForwardContext& context,
                 KeyValueCache* cache = nullptr, int layer = 0) const;

  int64_t local_heads() const { return heads_.count; }

 private:
  // [B, H, T, D] each, H this rank's heads.
  std::vector<Tensor> Project(const Tensor& h, const ForwardContext& context) const;
  const SelfAttentionConfig config_;
  const int64_t head_dim_;
  const Share heads_;                                       // this rank's
  std::vector<std::unique_ptr<ColumnParallelLinear>> qkv_;  // one fused, or q, k and v
  RowParallelLinear output_;
  Dropout attn_dropout_;
  Dropout resid_dropout_;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_ATTENTION_H_
