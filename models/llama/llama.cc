// SPDX-License-Identifier: Apache-2.0
#include "models/llama/llama.h"

#include <cmath>
#include <utility>

#include "models/language_model.h"
#include "models/model_keys.h"
#include "models/transformer_stack.h"
#include "nlohmann/json.hpp"
#include "nn/activation.h"
#include "nn/expert_mlp.h"
#include "nn/norm.h"
#include "nn/sequence_share.h"
#include "nn/transformer_block.h"
#include "ops/elementwise/elementwise.h"

namespace tessera::models {
namespace {

// B batch, T tokens, C = hidden_size, V = vocab_size.

nn::TransformerBlockConfig LayerConfig(const LlamaConfig& c, size_t layer) {
  const nn::Init weight = nn::Init::Normal(c.initializer_range);
  nn::TransformerBlockConfig config;
  config.attention = {
      .hidden_size = c.hidden_size,
      .num_heads = c.num_attention_heads,
      .num_key_value_heads = c.num_key_value_heads,
      .head_dim = c.head_dim,
      .window = c.windows[layer],
      .scale = c.query_pre_attn_scalar == 0 ? 0.0 : 1 / std::sqrt(c.query_pre_attn_scalar),
      .softcap = c.attn_logit_softcapping,
      .attention_dropout = c.attention_dropout,
      .residual_dropout = c.resid_pdrop,
      .weight_init = weight,
      .output_init = weight,
      .qkv_bias = c.qkv_bias,
      .output_bias = c.output_bias,
      .output_name = c.names.output,
      .head_norm_eps = c.rms_norm_eps,
      .head_norm_zero_centered = c.zero_centered_norms,
      .joint_head_norms = c.joint_head_norms,
      .rotary = c.RotaryOf(layer)};
  if (c.names.qkv.size() == 1) {
    config.attention.qkv_name = c.names.qkv[0];
  } else {
    config.attention.qkv_names = c.names.qkv;
  }
  if (c.has_head_norms) config.attention.head_norm_names = {"q_norm", "k_norm"};
  config.mlp = {.hidden_size = c.hidden_size,
                .inner_size = c.intermediate_size,
                .activation = *nn::FindActivation(c.hidden_act),
                .dropout = c.resid_pdrop,
                .bias = c.mlp_bias,
                .weight_init = weight,
                .output_init = weight,
                .gate_name = c.names.gate,
                .up_name = c.names.up,
                .down_name = c.names.down};
  if (c.experts.In(layer)) {
    config.mlp_name = c.experts.block;
    config.feed_forward = [experts = ExpertsConfig(c)](const nn::Scope& scope) {
      return std::make_unique<nn::ExpertMlp>(experts, scope);
    };
  }
  config.norm = nn::NormKind::kRmsNorm;
  config.norm_eps = c.rms_norm_eps;
  config.norm_zero_centered = c.zero_centered_norms;
  config.attention_norm_name = c.names.attention_norm;
  config.mlp_norm_name = c.names.mlp_norm;
  if (!c.names.attention_output_norm.empty()) {
    config.norm_place = nn::NormPlace::kBothSides;
    config.attention_output_norm_name = c.names.attention_output_norm;
    config.mlp_output_norm_name = c.names.mlp_output_norm;
  }
  config.attention_name = c.names.attention;
  return config;
}

nn::EmbeddingConfig TokenConfig(const LlamaConfig& c) {
  return {.rows = c.vocab_size,
          .width = c.hidden_size,
          .init = nn::Init::Normal(c.initializer_range, c.pad_token_id),
          .padding_idx = c.pad_token_id,
          .scale = c.scaled_embeddings ? std::sqrt(static_cast<double>(c.hidden_size)) : 1.0};
}

}  // namespace

class Llama::Decoder : public nn::Module {
 public:
  Decoder(const LlamaConfig& c, const nn::Scope& scope, const Llama& model) : Module(scope) {
    const bool head = model.HasBlock(model.num_blocks() - 1);
    // A stage with the head but not the embedding holds a replica of the tied weight.
    if (model.HasBlock(0) || (head && c.has_lm_head && c.tie_word_embeddings)) {
      embed_tokens =
          std::make_unique<nn::VocabParallelEmbedding>(TokenConfig(c), Child(c.names.embedding));
    }
    layers.resize(static_cast<size_t>(c.num_hidden_layers));
    for (size_t i = 0; i < layers.size(); ++i) {
      if (!model.HasBlock(static_cast<int>(i) + 1)) continue;
      layers[i] = std::make_unique<nn::TransformerBlock>(LayerConfig(c, i),
                                                         Child(Concat(c.names.layers, ".", i)));
    }
    if (!head) return;
    norm = std::make_unique<nn::RmsNorm>(
        nn::NormConfig{
            .width = c.hidden_size, .eps = c.rms_norm_eps, .zero_centered = c.zero_centered_norms},
        Child(c.names.norm));
  }

  std::unique_ptr<nn::VocabParallelEmbedding> embed_tokens;
  std::vector<std::unique_ptr<nn::TransformerBlock>> layers;
  std::unique_ptr<nn::RmsNorm> norm;
};

Llama::Llama(const LlamaConfig& config, nlohmann::json json, const nn::BuildContext& build)
    : Model(nn::Scope::Root(build)), config_(config), json_(std::move(json)) {
  model_ = std::make_unique<Decoder>(config_, Child(config_.names.decoder), *this);
  if (!HasBlock(num_blocks() - 1) || !config_.has_lm_head) return;
  if (config_.tie_word_embeddings) {
    lm_head_ = std::make_unique<nn::VocabParallelHead>(
        model_->embed_tokens->weight(), Child(config_.names.head), config_.final_logit_softcapping);
  } else {
    lm_head_ = std::make_unique<nn::VocabParallelHead>(
        nn::EmbeddingConfig{.rows = config_.vocab_size,
                            .width = config_.hidden_size,
                            .init = nn::Init::Normal(config_.initializer_range)},
        Child(config_.names.head), config_.final_logit_softcapping);
  }
}

Llama::~Llama() = default;

BlockKeys Llama::keys_of_block(int block) const {
  const bool has_experts = config_.experts.num_experts > 0;
  if (block == 0) {
    BlockKeys first = {.takes = {keys::kInputIds},
                       .may_take = {keys::kPositionIds},
                       .gives = {keys::kHidden, keys::kPositionIds},
                       .drops = {keys::kInputIds}};
    if (has_experts) first.gives.Add(keys::kRouterSums);
    return first;
  }
  if (block + 1 == num_blocks()) {
    BlockKeys head = LanguageModelKeys();
    if (!config_.has_lm_head) {
      head = {.takes = {keys::kHidden, keys::kPositionIds}, .gives = {keys::kLastHiddenState}};
    }
    if (has_experts) head.may_take.Add(keys::kRouterSums);
    return head;
  }
  BlockKeys layer = TransformerBlockKeys({keys::kAttentionMask, keys::kDocumentIds});
  if (config_.experts.In(static_cast<size_t>(block - 1))) {
    layer.may_take.Add(keys::kRouterSums);
    layer.may_take.Add(keys::kTokenMask);
  }
  return layer;
}

// The last one is what the head reads, behind the final norm.
std::vector<HiddenState> Llama::HiddenStatesOf(int block) const {
  if (block + 1 < num_blocks()) return Model::HiddenStatesOf(block);
  return {{.name = HiddenStateName(block - 1), .key = keys::kLastHiddenState}};
}

Bundle Llama::RunBlock(int block, Bundle in, const RunOptions& options) const {
  TESSERA_CHECK(HasBlock(block), "llama", "block ", block, " is not part of this model");
  if (block == 0) return Embed(std::move(in), options);
  if (block + 1 < num_blocks()) return RunLayer(block - 1, std::move(in), options);
  if (in.has(keys::kRouterSums) && options.auxiliaries != nullptr) {
    AddRouterLosses(config_, in.at(keys::kRouterSums), options);
  }
  const Tensor h_BTC = model_->norm->Forward(in.at(keys::kHidden));
  if (config_.has_lm_head) {
    return LanguageModelOutputs(*lm_head_, h_BTC, ShiftedTargets(in), in, options);
  }
  Bundle out;
  out.set(keys::kLastHiddenState, WholeSequence(h_BTC, build(), ContextFor(in, options)));
  return out;
}

Bundle Llama::CutSequences(Bundle rows, nn::ForwardContext* context) const {
  const Tensor targets = ShiftedTargets(rows);
  return CutTexts(std::move(rows), targets, build(), context);
}

Bundle Llama::Embed(Bundle in, const RunOptions& options) const {
  const Tensor ids_BT = in.at(keys::kInputIds);
  TESSERA_CHECK(ids_BT.ndim() == 2, "llama", "input_ids must be [batch, tokens], got ", ids_BT);
  if (!in.has(keys::kPositionIds)) {
    in.set(keys::kPositionIds, CountingPositions(ids_BT.size(0), ids_BT.size(1), ids_BT.device()));
  }
  Tensor x_BTC = model_->embed_tokens->Forward(ids_BT, ContextFor(in, options));
  if (build().sequence_parallel) x_BTC = ScatterToGroup(x_BTC, 1, build().tensor_parallel);
  in.erase(keys::kInputIds);
  in.set(keys::kHidden, x_BTC);
  if (CountsRoutings(config_, options)) {
    in.set(keys::kRouterSums, EmptyRouterSums(config_, x_BTC.dtype(), ids_BT.device()));
  }
  return in;
}

namespace {

// Which tokens a balance of experts is of: 0 are not. Undefined: all of them.
Tensor CountedTokens(const Bundle& in) {
  for (const TensorKey& key : {keys::kAttentionMask, keys::kTokenMask}) {
    if (in.has(key)) return in.at(key);
  }
  if (!in.has(keys::kDocumentIds)) return Tensor();
  return Compare(in.at(keys::kDocumentIds), 0.0, Comparison::kGreaterEqual);
}

}  // namespace

Bundle Llama::RunLayer(int layer, Bundle in, const RunOptions& options) const {
  nn::AttentionMasks masks = MasksOf(in);
  masks.rotary_positions = in.at(keys::kPositionIds);
  nn::TransformerBlock& block = *model_->layers[static_cast<size_t>(layer)];
  const bool counts = in.has(keys::kRouterSums) && config_.experts.In(static_cast<size_t>(layer));
  if (!counts) return RunTransformerBlock(block, masks, std::move(in), options, layer);
  std::vector<nn::Routing> routings;
  RunOptions counting = options;
  counting.context.routings = &routings;
  Bundle out = RunTransformerBlock(block, masks, std::move(in), counting, layer);
  Tensor mask = CountedTokens(out);
  const nn::SequenceShare share = nn::GatheredTokens(build(), options.context);
  if (mask.defined() && !share.is_whole()) mask = TakeRuns(mask, 1, share.runs);
  const Group ranks = share.is_whole() ? nullptr : build().context_parallel;
  out.set(keys::kRouterSums,
          AddRouting(config_, out.at(keys::kRouterSums), routings.at(0), mask, ranks));
  return out;
}

}  // namespace tessera::models
