// SPDX-License-Identifier: Apache-2.0
// Multi-head self-attention, split by heads over the tensor-parallel group.
//
//   SelfAttention attn({.hidden_size = C, .num_heads = H, ...}, Child("attn"));
//   Tensor y_BTC = attn.Forward(h_BTC, masks, context, cache, layer);
//
// q, k and v come from one fused projection of three blocks, each split by heads, so that its
// parameter stays one, as in the checkpoint, or from three layers where the checkpoint has three. A
// rank may hold fewer heads than another, or none.
//
// Grouped heads (Ainslie et al. 2023): query heads share key/value heads, in order. Ranks hold
// whole groups; where there are fewer key/value heads than ranks, query heads are split singly,
// keys and values are computed by equal shares of their features and gathered, and each rank goes
// on with the key/value heads that its queries need.
//
// Keys and values that are before those of the tokens, for an adapter: SetPrefix (nn/prefix.h).
//
// Context parallelism: h is this rank's tokens, and keys and values travel in a ring
// (ops/attention/ring_attention.h), without a cache and without a prefix.
//
// Llama: {.num_key_value_heads = G, .qkv_bias = false, .output_bias = false,
//         .qkv_names = {"q_proj", "k_proj", "v_proj"}, .output_name = "o_proj",
//         .rotary = RotaryConfig{.base = 500000}}; Mistral: .window; Qwen2: .qkv_bias = true;
// Qwen3 and Gemma 3: .head_norm_names = {"q_norm", "k_norm"}; OLMo 2: .joint_head_norms = true,
// too; Gemma 2: .softcap; Phi-3: .qkv_name = "qkv_proj"; GPT-NeoX: .qkv_by_head = true,
//         .rotary = RotaryConfig{.share = 0.25}; ModernBERT: .causal = false, .window.
#ifndef TESSERA_NN_ATTENTION_H_
#define TESSERA_NN_ATTENTION_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/dropout.h"
#include "nn/key_value_cache.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/prefix.h"
#include "nn/rotary.h"

namespace tessera {
struct AttentionOptions;
struct SequenceRing;
}  // namespace tessera

namespace tessera::nn {

struct SelfAttentionConfig {
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t num_key_value_heads = 0;  // 0: num_heads; divides it
  int64_t head_dim = 0;             // 0: hidden_size / num_heads
  bool causal = true;
  // Sliding window (0: none): a token sees itself and the window - 1 places before it, and where
  // attention is not causal as many behind it; padded ones counted, as transformers counts.
  int64_t window = 0;
  double scale = 0.0;    // 0: 1 / sqrt(head size)
  double softcap = 0.0;  // of the scaled scores (ops/attention/attention.h); 0: none
  double attention_dropout = 0.0;
  double residual_dropout = 0.0;
  LinearLayout layout = LinearLayout::kOutIn;
  Init weight_init = Init::Normal(0.02);
  Init output_init = Init::Normal(0.02);
  bool qkv_bias = true;
  bool output_bias = true;
  std::string qkv_name = "c_attn";
  // The fused projection's features go head by head, each with its q, k and v (ChatGLM, GPT-NeoX),
  // instead of all heads' q, then k, then v. Without grouped heads.
  bool qkv_by_head = false;
  // Three names: q, k and v are layers of their own (BERT, ViT) instead of the fused one.
  std::vector<std::string> qkv_names = {};
  std::string output_name = "c_proj";
  // Two names: RMS norms over the features of each head, of q and of k (Qwen3).
  std::vector<std::string> head_norm_names = {};
  double head_norm_eps = 1e-6;
  bool head_norm_zero_centered = false;  // nn/norm.h
  bool joint_head_norms = false;         // over the features of all heads at once (OLMo 2)
  // q and k are rotated by the masks' rotary_positions, which are then needed.
  std::optional<RotaryConfig> rotary = std::nullopt;
};

// The layers that such an attention is made of: the size of a head, this rank's query heads, the
// projections to q and to k or v, and the one behind the heads.
int64_t HeadDim(const SelfAttentionConfig& config);
Share HeadShare(const SelfAttentionConfig& config, const Group& group);
LinearConfig QueryConfig(const SelfAttentionConfig& config, const Group& group);
LinearConfig KeyValueConfig(const SelfAttentionConfig& config, const Group& group);
LinearConfig OutputConfig(const SelfAttentionConfig& config, const Group& group);

// The ranks that a sequence is cut over, where it is: of attention to `keys` tokens of all ranks.
SequenceRing RingOf(const BuildContext& build, const ForwardContext& context, int64_t keys);

// Which keys count, and where tokens stand; undefined tensors mask and change nothing. Where the
// sequence is cut over ranks (ForwardContext::cut_length), key_padding and document are of all its
// tokens, bias of this rank's queries and all keys, and rotary_positions of this rank's tokens.
struct AttentionMasks {
  Tensor key_padding = {};  // [B, Tk] bool: keys that count (Tk includes cached ones)
  Tensor document = {};     // [B, T] int32: tokens see their own document only; without cache
  // [B] int32: keys before it are seen by every query (prefix language models), but for those that
  // a window has passed
  Tensor prefix_length = {};
  // [B or 1, this rank's heads or 1, T, Tk], added to the scores; Tk may count a prefix's keys,
  // which else get none
  Tensor bias = {};
  // [B, T] or [B, N, T] int64 of a configuration with `rotary`: places of the new tokens
  Tensor rotary_positions = {};
};

// What stands in a transformer block's place of the attention: a SelfAttention, or a module of the
// program's own.
//
//   TransformerBlockConfig config = {...};
//   config.attention.hidden_size = width;                  // the width of the block's norms
//   config.make_attention = [&](const Scope& scope) {
//     return std::make_unique<LinearAttention>(options, scope);
//   };
class AttentionLayer : public Module {
 public:
  using Module::Module;
  // h [B, T, C] (its share of the sequence under sequence parallelism), result likewise. With a
  // cache, T new tokens are appended to layer `layer` of it and attend to all; a layer that keeps
  // nothing there serves models without a cache (Model::num_cache_layers() of 0).
  virtual Tensor Forward(const Tensor& h, const AttentionMasks& masks,
                         const ForwardContext& context, KeyValueCache* cache = nullptr,
                         int layer = 0) const = 0;
};

// Makes one under a name of the block's.
using MakeAttention = std::function<std::unique_ptr<AttentionLayer>(const Scope& scope)>;

class SelfAttention : public AttentionLayer {
 public:
  SelfAttention(const SelfAttentionConfig& config, const Scope& scope);
  std::string_view kind() const override { return "SelfAttention"; }
  const SelfAttentionConfig& config() const { return config_; }
  SelfAttention* self_attention() override { return this; }

  Tensor Forward(const Tensor& h, const AttentionMasks& masks, const ForwardContext& context,
                 KeyValueCache* cache = nullptr, int layer = 0) const override;

  int64_t local_heads() const { return heads_.count; }

  // How a prefix of this layer is cut, and that of adapter number `adapter`, which is none's yet.
  PrefixHeads prefix_heads() const;
  void SetPrefix(int adapter, std::shared_ptr<KeyValuePrefix> prefix);
  // nullptr: this adapter has none here.
  KeyValuePrefix* prefix(int adapter) const;

 private:
  struct Heads {
    Tensor q;     // [B, H, T, D], H this rank's query heads
    Tensor k, v;  // [B, G, T, D], G the key/value heads that they need
  };
  Heads Project(const Tensor& h, const ForwardContext& context) const;
  // What the projections give, [B, T, F] or [B, T, H, D] each: this rank's features.
  std::vector<Tensor> Features(const Tensor& h, const ForwardContext& context) const;
  // [B, T, F] or [B, T, H, D] to [B, H, T, D], through a norm that is not null.
  Tensor SplitHeads(const Tensor& features, const Norm* norm) const;
  // Of all key/value features those that this rank's queries need.
  Tensor Needed(const Tensor& features) const;
  // Through a norm of all `heads`, of which ranks hold whole units: this rank's features.
  Tensor NormTogether(const Norm& norm, const Tensor& features, int64_t heads, int64_t unit) const;
  // [B, T, F] as [B, T, H, D].
  Tensor ByHead(const Tensor& features) const;
  // Whether each query head gets a key and a value of its own, whose gradients are summed in a
  // tree.
  bool RepeatsInTree() const;
  // Needed, or the key or value of each query head.
  Tensor ForQueries(const Tensor& features) const;
  // The ranks' key or value features, so many in all, through a norm that is not null.
  Tensor AllKeyValues(const Tensor& own, int64_t features, const Norm* norm) const;
  // `before` keys are before the tokens'.
  void Rotate(const AttentionMasks& masks, const ForwardContext& context, int64_t before,
              const KeyValueCache* cache, Heads* heads) const;
  void PutBehindPrefix(const KeyValuePrefix& prefix, const KeyValueCache* cache, Heads* heads,
                       AttentionOptions* options) const;

  const SelfAttentionConfig config_;
  const int64_t head_dim_;
  const Share heads_;  // this rank's query heads
  const bool gathers_key_values_;
  // Where query heads of one group lie in several leaves; else nullptr.
  const std::shared_ptr<const SumTree> query_tree_;
  std::vector<std::unique_ptr<ColumnParallelLinear>> qkv_;  // one fused, or q, k and v
  RowParallelLinear output_;
  std::unique_ptr<RmsNorm> q_norm_;  // null: none
  std::unique_ptr<RmsNorm> k_norm_;
  Dropout attn_dropout_;
  Dropout resid_dropout_;
  std::vector<std::shared_ptr<KeyValuePrefix>> prefixes_;  // by adapter; null: none
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_ATTENTION_H_
