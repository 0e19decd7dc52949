// SPDX-License-Identifier: Apache-2.0
#include "models/gpt/gpt.h"

#include <cmath>

#include "models/language_model.h"
#include "models/model_keys.h"
#include "models/transformer_stack.h"
#include "nlohmann/json.hpp"
#include "nn/activation.h"
#include "ops/elementwise/elementwise.h"

namespace tessera::models {
namespace {

// B batch, T tokens, C = n_embd, V = vocab_size.

nn::TransformerBlockConfig LayerConfig(const GptConfig& c, int layer) {
  const nn::Init weight = nn::Init::Normal(c.initializer_range);
  const nn::Init residual =
      nn::Init::Normal(c.initializer_range / std::sqrt(2.0 * static_cast<double>(c.n_layer)));
  const double head_dim = static_cast<double>(c.n_embd) / static_cast<double>(c.n_head);
  double scale = c.scale_attn_weights ? 1.0 / std::sqrt(head_dim) : 1.0;
  if (c.scale_attn_by_inverse_layer_idx) scale /= layer + 1;
  nn::TransformerBlockConfig config;
  config.attention = {.hidden_size = c.n_embd,
                      .num_heads = c.n_head,
                      .scale = scale,
                      .attention_dropout = c.attn_pdrop,
                      .residual_dropout = c.resid_pdrop,
                      .layout = LinearLayout::kInOut,
                      .weight_init = weight,
                      .output_init = residual};
  config.mlp = {.hidden_size = c.n_embd,
                .inner_size = c.inner_size(),
                .activation = *nn::FindActivation(c.activation_function),
                .dropout = c.resid_pdrop,
                .layout = LinearLayout::kInOut,
                .weight_init = weight,
                .output_init = residual};
  config.norm_eps = c.layer_norm_epsilon;
  return config;
}

}  // namespace

class Gpt::Transformer : public nn::Module {
 public:
  Transformer(const GptConfig& c, const nn::Scope& scope, const Gpt& gpt) : Module(scope) {
    const nn::EmbeddingConfig tokens = {c.vocab_size, c.n_embd,
                                        nn::Init::Normal(c.initializer_range)};
    const int head = gpt.num_blocks() - 1;
    // A stage with the head but not the embedding holds a replica of the tied weight.
    if (gpt.HasBlock(0) || (gpt.HasBlock(head) && c.tie_word_embeddings)) {
      wte = std::make_unique<nn::VocabParallelEmbedding>(tokens, Child("wte"));
    }
    if (gpt.HasBlock(0)) {
      const nn::EmbeddingConfig positions = {c.n_positions, c.n_embd, tokens.init};
      wpe = std::make_unique<nn::ReplicatedEmbedding>(positions, Child("wpe"));
      drop = std::make_unique<nn::Dropout>(c.embd_pdrop, Child("drop"));
    }
    h.resize(static_cast<size_t>(c.n_layer));
    for (int i = 0; i < static_cast<int>(c.n_layer); ++i) {
      if (!gpt.HasBlock(i + 1)) continue;
      h[static_cast<size_t>(i)] =
          std::make_unique<nn::TransformerBlock>(LayerConfig(c, i), Child(Concat("h.", i)));
    }
    if (gpt.HasBlock(head)) {
      ln_f = std::make_unique<nn::LayerNorm>(
          nn::NormConfig{.width = c.n_embd, .eps = c.layer_norm_epsilon}, Child("ln_f"));
    }
  }

  std::unique_ptr<nn::VocabParallelEmbedding> wte;
  std::unique_ptr<nn::ReplicatedEmbedding> wpe;
  std::unique_ptr<nn::Dropout> drop;
  std::vector<std::unique_ptr<nn::TransformerBlock>> h;
  std::unique_ptr<nn::LayerNorm> ln_f;
};

Gpt::Gpt(const GptConfig& config, nlohmann::json json, const nn::BuildContext& build)
    : Model(nn::Scope::Root(build)), config_(config), json_(std::move(json)) {
  transformer_ = std::make_unique<Transformer>(config_, Child("transformer"), *this);
  if (!HasBlock(num_blocks() - 1)) return;
  if (config_.tie_word_embeddings) {
    lm_head_ =
        std::make_unique<nn::VocabParallelHead>(transformer_->wte->weight(), Child("lm_head"));
  } else {
    const nn::EmbeddingConfig own = {config_.vocab_size, config_.n_embd,
                                     nn::Init::Normal(config_.initializer_range)};
    lm_head_ = std::make_unique<nn::VocabParallelHead>(own, Child("lm_head"));
  }
}

Gpt::~Gpt() = default;

BlockKeys Gpt::keys_of_block(int block) const {
  if (block == 0) {
    return {.takes = {keys::kInputIds},
            .may_take = {keys::kPositionIds},
            .gives = {keys::kHidden, keys::kPositionIds},
            .drops = {keys::kInputIds}};
  }
  if (block + 1 == num_blocks()) return LanguageModelKeys();
  return TransformerBlockKeys({keys::kAttentionMask, keys::kDocumentIds});
}

// The last one is what the head reads, behind the final norm.
std::vector<HiddenState> Gpt::HiddenStatesOf(int block) const {
  if (block + 1 < num_blocks()) return Model::HiddenStatesOf(block);
  return {{.name = HiddenStateName(block - 1), .key = keys::kLastHiddenState}};
}

Bundle Gpt::RunBlock(int block, Bundle in, const RunOptions& options) const {
  TESSERA_CHECK(HasBlock(block), "gpt", "block ", block, " is not part of this model");
  if (block == 0) return Embed(std::move(in), options);
  if (block + 1 < num_blocks()) {
    return RunTransformerBlock(*transformer_->h[static_cast<size_t>(block - 1)], std::move(in),
                               options, block - 1);
  }
  const Tensor h_BTC = transformer_->ln_f->Forward(in.at(keys::kHidden));
  return LanguageModelOutputs(*lm_head_, h_BTC, ShiftedTargets(in), in, options);
}

Bundle Gpt::CutSequences(Bundle rows, nn::ForwardContext* context) const {
  const Tensor targets = ShiftedTargets(rows);
  return CutTexts(std::move(rows), targets, build(), context);
}

Bundle Gpt::Embed(Bundle in, const RunOptions& options) const {
  const Tensor ids_BT = in.at(keys::kInputIds);
  TESSERA_CHECK(ids_BT.ndim() == 2, "gpt", "input_ids must be [batch, tokens], got ", ids_BT);
  if (!in.has(keys::kPositionIds)) {
    in.set(keys::kPositionIds, CountingPositions(ids_BT.size(0), ids_BT.size(1), ids_BT.device()));
  }
  const nn::ForwardContext context = ContextFor(in, options);
  Tensor positions_BT = in.at(keys::kPositionIds);
  const int64_t before = prefix(context.adapter).positions;
  if (before > 0) positions_BT = Add(positions_BT, static_cast<double>(before));
  Tensor x_BTC = Add(transformer_->wte->Forward(ids_BT, context),
                     transformer_->wpe->Forward(positions_BT, context));
  if (build().sequence_parallel) x_BTC = ScatterToGroup(x_BTC, 1, build().tensor_parallel);
  in.erase(keys::kInputIds);
  in.set(keys::kHidden, transformer_->drop->Forward(x_BTC, context));
  return in;
}

}  // namespace tessera::models
