// SPDX-License-Identifier: Apache-2.0
#include "models/glm/glm.h"

#include <cmath>
#include <utility>

#include "models/glm/cloze.h"
#include "models/glm/glm_keys.h"
#include "models/glm/prefix_mask.h"
#include "models/glm/text_layout.h"
#include "models/language_model.h"
#include "models/model_keys.h"
#include "models/transformer_stack.h"
#include "nlohmann/json.hpp"
#include "nn/activation.h"
#include "nn/dropout.h"
#include "nn/norm.h"
#include "nn/transformer_block.h"
#include "ops/elementwise/elementwise.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

// B batch, T tokens, C = hidden_size, V = vocab_size, N candidates.

nn::TransformerBlockConfig LayerConfig(const GlmConfig& c) {
  const nn::Init weight = nn::Init::Normal(c.initializer_range);
  const nn::Init residual =
      nn::Init::Normal(c.initializer_range / std::sqrt(2.0 * static_cast<double>(c.num_layers)));
  nn::TransformerBlockConfig config;
  config.attention = {.hidden_size = c.hidden_size,
                      .num_heads = c.num_attention_heads,
                      .attention_dropout = c.attention_dropout_prob,
                      .residual_dropout = c.output_dropout_prob,
                      .weight_init = weight,
                      .output_init = residual,
                      .qkv_name = "query_key_value",
                      .output_name = "dense"};
  config.mlp = {.hidden_size = c.hidden_size,
                .inner_size = 4 * c.hidden_size,
                .activation = GeluTanh,
                .dropout = c.output_dropout_prob,
                .weight_init = weight,
                .output_init = residual,
                .up_name = "dense_h_to_4h",
                .down_name = "dense_4h_to_h"};
  config.norm_eps = c.layernorm_epsilon;
  config.attention_norm_name = "input_layernorm";
  config.mlp_norm_name = "post_attention_layernorm";
  config.attention_name = "attention";
  return config;
}

// [B, T] places of one kind.
Tensor Coordinate(const Tensor& positions, int which) {
  return Select(positions, 1, which).ContiguousCopy();
}

class GlmTexts : public TextFormat {
 public:
  explicit GlmTexts(const GlmConfig& config) : config_(config) {}
  StatusOr<std::vector<int64_t>> PreparePrompt(std::vector<int64_t> prompt) const override {
    return CompletePrompt(config_, std::move(prompt));
  }
  StatusOr<TextLayout> LayoutOf(const std::vector<int64_t>& text) const override {
    return LayoutOfText(config_, text);
  }
  StatusOr<Bundle> ClozeInputs(const std::vector<ClozeRow>& rows) const override {
    return models::ClozeInputs(config_, rows);
  }

 private:
  const GlmConfig config_;
};

}  // namespace

class Glm::Stack : public nn::Module {
 public:
  Stack(const GlmConfig& c, const nn::Scope& scope, const Glm& glm) : Module(scope) {
    if (glm.HasBlock(0)) {
      const nn::EmbeddingConfig table = {c.position_rows(), c.hidden_size,
                                         nn::Init::Normal(c.initializer_range)};
      position_embeddings =
          std::make_unique<nn::ReplicatedEmbedding>(table, Child("position_embeddings"));
      if (c.block_position_encoding) {
        block_position_embeddings =
            std::make_unique<nn::ReplicatedEmbedding>(table, Child("block_position_embeddings"));
      }
      embedding_dropout =
          std::make_unique<nn::Dropout>(c.embedding_dropout_prob, Child("embedding_dropout"));
    }
    layers.resize(static_cast<size_t>(c.num_layers));
    for (int i = 0; i < static_cast<int>(c.num_layers); ++i) {
      if (!glm.HasBlock(i + 1)) continue;
      layers[static_cast<size_t>(i)] =
          std::make_unique<nn::TransformerBlock>(LayerConfig(c), Child(Concat("layers.", i)));
    }
    if (glm.HasBlock(glm.num_blocks() - 1)) {
      final_layernorm = std::make_unique<nn::LayerNorm>(
          nn::NormConfig{.width = c.hidden_size, .eps = c.layernorm_epsilon},
          Child("final_layernorm"));
    }
  }

  std::unique_ptr<nn::ReplicatedEmbedding> position_embeddings;
  std::unique_ptr<nn::ReplicatedEmbedding> block_position_embeddings;  // null: one coordinate
  std::unique_ptr<nn::Dropout> embedding_dropout;
  std::vector<std::unique_ptr<nn::TransformerBlock>> layers;
  std::unique_ptr<nn::LayerNorm> final_layernorm;
};

Glm::Glm(const GlmConfig& config, nlohmann::json json, const nn::BuildContext& build)
    : Model(nn::Scope::Root(build)),
      config_(config),
      json_(std::move(json)),
      text_format_(std::make_shared<GlmTexts>(config)) {
  const bool head = HasBlock(num_blocks() - 1);
  // A stage with the head but not the embedding holds a replica of the tied weight.
  if (HasBlock(0) || head) {
    word_embeddings_ = std::make_unique<nn::VocabParallelEmbedding>(
        nn::EmbeddingConfig{config_.vocab_size, config_.hidden_size,
                            nn::Init::Normal(config_.initializer_range)},
        Child("word_embeddings"));
  }
  transformer_ = std::make_unique<Stack>(config_, Child("transformer"), *this);
  if (head) {
    lm_head_ =
        std::make_unique<nn::VocabParallelHead>(word_embeddings_->weight(), Child("lm_head"));
  }
}

Glm::~Glm() = default;

BlockKeys Glm::keys_of_block(int block) const {
  if (block == 0) {
    return {.takes = {keys::kInputIds},
            .may_take = {keys::kPositionIds, keys::kAttentionMask, keys::kPrefixLength},
            .gives = {keys::kHidden, keys::kPositionIds, keys::kPrefixLength},
            .drops = {keys::kInputIds}};
  }
  if (block + 1 < num_blocks()) return PrefixBlockKeys();
  BlockKeys head = LanguageModelKeys();
  head.may_take.Add(keys::kChoiceIds);
  head.may_take.Add(keys::kChoiceIndices);
  head.gives.Add(keys::kLmLogits);
  return head;
}

Bundle Glm::RunBlock(int block, Bundle in, const RunOptions& options) const {
  TESSERA_CHECK(HasBlock(block), "glm", "block ", block, " is not part of this model");
  if (block == 0) return Embed(std::move(in), options);
  if (block + 1 == num_blocks()) return RunHead(std::move(in), options);
  const nn::AttentionMasks masks = MasksOf(&in);
  return RunTransformerBlock(*transformer_->layers[static_cast<size_t>(block - 1)], masks,
                             std::move(in), options, block - 1);
}

Bundle Glm::CutSequences(Bundle rows, nn::ForwardContext* context) const {
  TESSERA_CHECK(!rows.has(keys::kChoiceIds), "glm",
                "rows with candidates are not cut over context-parallel ranks");
  ResolveMask(&rows);
  const Tensor targets = AlignedTargets(rows);
  return CutPrefixTexts(std::move(rows), targets, build(), context);
}

Bundle Glm::Embed(Bundle in, const RunOptions& options) const {
  const Tensor ids_BT = in.at(keys::kInputIds);
  TESSERA_CHECK(ids_BT.ndim() == 2 && ids_BT.dtype() == DType::kInt64, "glm",
                "input_ids must be int64 [batch, tokens], got ", ids_BT);
  ResolveMask(&in);
  if (!in.has(keys::kPositionIds)) {
    in.set(keys::kPositionIds, CountingPositions(ids_BT.size(0), ids_BT.size(1), ids_BT.device()));
  }
  const nn::ForwardContext context = ContextFor(in, options);
  const Tensor positions = in.at(keys::kPositionIds);
  const bool both = positions.ndim() == 3 && positions.size(1) == 2;
  const Tensor place_BT = positions.ndim() == 3 ? Coordinate(positions, 0) : positions;
  Tensor x_BTC = Add(word_embeddings_->Forward(ids_BT, context),
                     transformer_->position_embeddings->Forward(place_BT, context));
  if (transformer_->block_position_embeddings != nullptr) {
    const Tensor within_BT =
        both ? Coordinate(positions, 1) : Zeros(place_BT.shape(), DType::kInt64, place_BT.device());
    x_BTC = Add(x_BTC, transformer_->block_position_embeddings->Forward(within_BT, context));
  }
  if (build().sequence_parallel) x_BTC = ScatterToGroup(x_BTC, 1, build().tensor_parallel);
  in.erase(keys::kInputIds);
  in.set(keys::kHidden, transformer_->embedding_dropout->Forward(x_BTC, context));
  return in;
}

Bundle Glm::RunHead(Bundle in, const RunOptions& options) const {
  const Tensor h_BTC = transformer_->final_layernorm->Forward(in.at(keys::kHidden));
  if (in.has(keys::kChoiceIds)) return ScoreChoices(h_BTC, in, options);
  return LanguageModelOutputs(*lm_head_, h_BTC, AlignedTargets(in), in, options);
}

Bundle Glm::ScoreChoices(const Tensor& h_BTC, const Bundle& in, const RunOptions& options) const {
  Bundle out;
  const bool hidden_only = WantsHiddenOnly(in, options);
  if (options.keep_logits || hidden_only) {
    out.set(keys::kLastHiddenState, WholeSequence(h_BTC, build(), ContextFor(in, options)));
  }
  if (hidden_only) return out;
  const Tensor logits_BTV = lm_head_->Forward(h_BTC, ContextFor(in, options));
  const Tensor scores_BN = ChoiceScores(logits_BTV, in.at(keys::kChoiceIds),
                                        in.at(keys::kChoiceIndices), lm_head_->LossOptions({}));
  out.set(keys::kLogits, scores_BN);
  if (options.keep_logits) out.set(keys::kLmLogits, lm_head_->Gather(logits_BTV));
  const Tensor labels_B = AlignedTargets(in);
  if (labels_B.defined()) {
    CrossEntropyOptions loss = LossOptionsOf(options);
    loss.class_weights = options.class_weights;
    out.set(keys::kLoss, CrossEntropy(scores_BN, labels_B, loss));
  }
  return out;
}

}  // namespace tessera::models
