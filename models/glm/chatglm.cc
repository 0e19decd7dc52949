// SPDX-License-Identifier: Apache-2.0
#include "models/glm/chatglm.h"

#include <cmath>
#include <utility>

#include "models/glm/prefix_mask.h"
#include "models/glm/text_layout.h"
#include "models/language_model.h"
#include "models/model_keys.h"
#include "models/transformer_stack.h"
#include "nlohmann/json.hpp"
#include "nn/activation.h"
#include "nn/norm.h"
#include "nn/transformer_block.h"
#include "ops/elementwise/elementwise.h"

namespace tessera::models {
namespace {

// B batch, T tokens, C = hidden_size, V = vocab_size.

nn::TransformerBlockConfig LayerConfig(const ChatGlmConfig& c) {
  const double depth = std::sqrt(2.0 * static_cast<double>(c.num_layers));
  const nn::Init weight = nn::Init::Normal(c.initializer_range);
  const nn::Init residual = nn::Init::Normal(c.initializer_range / depth);
  nn::TransformerBlockConfig config;
  config.attention = {.hidden_size = c.hidden_size,
                      .num_heads = c.num_attention_heads,
                      .weight_init = weight,
                      .output_init = residual,
                      .qkv_name = "query_key_value",
                      .qkv_by_head = true,
                      .output_name = "dense",
                      .rotary = nn::RotaryConfig()};
  config.mlp = {.hidden_size = c.hidden_size,
                .inner_size = c.inner_hidden_size,
                .activation = GeluTanh,
                .weight_init = weight,
                .output_init = residual,
                .up_name = "dense_h_to_4h",
                .down_name = "dense_4h_to_h"};
  config.norm_eps = c.layernorm_epsilon;
  config.alpha = depth;
  config.attention_norm_name = "input_layernorm";
  config.mlp_norm_name = "post_attention_layernorm";
  config.attention_name = "attention";
  return config;
}

class ChatGlmTexts : public TextFormat {
 public:
  explicit ChatGlmTexts(const ChatGlmConfig& config) : config_(config) {}
  StatusOr<std::vector<int64_t>> PreparePrompt(std::vector<int64_t> prompt) const override {
    return CompletePrompt(config_, std::move(prompt));
  }
  StatusOr<TextLayout> LayoutOf(const std::vector<int64_t>& text) const override {
    return LayoutOfText(config_, text);
  }
  StatusOr<Bundle> ClozeInputs(const std::vector<ClozeRow>& /*rows*/) const override {
    return InvalidArgument("ChatGLM fills no blanks with candidates");
  }

 private:
  const ChatGlmConfig config_;
};

}  // namespace

class ChatGlm::Transformer : public nn::Module {
 public:
  Transformer(const ChatGlmConfig& c, const nn::Scope& scope, const ChatGlm& model)
      : Module(scope) {
    const bool head = model.HasBlock(model.num_blocks() - 1);
    // A stage with the head but not the embedding holds a replica of a tied weight.
    if (model.HasBlock(0) || (head && c.tie_word_embeddings)) {
      word_embeddings = std::make_unique<nn::VocabParallelEmbedding>(
          nn::EmbeddingConfig{c.vocab_size, c.hidden_size, nn::Init::Normal(c.initializer_range)},
          Child("word_embeddings"));
    }
    layers.resize(static_cast<size_t>(c.num_layers));
    for (int i = 0; i < static_cast<int>(c.num_layers); ++i) {
      if (!model.HasBlock(i + 1)) continue;
      layers[static_cast<size_t>(i)] =
          std::make_unique<nn::TransformerBlock>(LayerConfig(c), Child(Concat("layers.", i)));
    }
    if (!head) return;
    final_layernorm = std::make_unique<nn::LayerNorm>(
        nn::NormConfig{.width = c.hidden_size, .eps = c.layernorm_epsilon},
        Child("final_layernorm"));
  }

  std::unique_ptr<nn::VocabParallelEmbedding> word_embeddings;
  std::vector<std::unique_ptr<nn::TransformerBlock>> layers;
  std::unique_ptr<nn::LayerNorm> final_layernorm;
};

ChatGlm::ChatGlm(const ChatGlmConfig& config, nlohmann::json json, const nn::BuildContext& build)
    : Model(nn::Scope::Root(build)),
      config_(config),
      json_(std::move(json)),
      text_format_(std::make_shared<ChatGlmTexts>(config)) {
  transformer_ = std::make_unique<Transformer>(config_, Child("transformer"), *this);
  if (!HasBlock(num_blocks() - 1)) return;
  if (config_.tie_word_embeddings) {
    lm_head_ = std::make_unique<nn::VocabParallelHead>(transformer_->word_embeddings->weight(),
                                                       Child("lm_head"));
  } else {
    lm_head_ = std::make_unique<nn::VocabParallelHead>(
        nn::EmbeddingConfig{config_.vocab_size, config_.hidden_size,
                            nn::Init::Normal(config_.initializer_range)},
        Child("lm_head"));
  }
}

ChatGlm::~ChatGlm() = default;

BlockKeys ChatGlm::keys_of_block(int block) const {
  if (block == 0) {
    return {.takes = {keys::kInputIds},
            .may_take = {keys::kPositionIds, keys::kAttentionMask, keys::kPrefixLength},
            .gives = {keys::kHidden, keys::kPositionIds, keys::kPrefixLength},
            .drops = {keys::kInputIds}};
  }
  return block + 1 < num_blocks() ? PrefixBlockKeys() : LanguageModelKeys();
}

// The last one is what the head reads, behind the final norm.
std::vector<HiddenState> ChatGlm::HiddenStatesOf(int block) const {
  if (block + 1 < num_blocks()) return Model::HiddenStatesOf(block);
  return {{.name = HiddenStateName(block - 1), .key = keys::kLastHiddenState}};
}

Bundle ChatGlm::RunBlock(int block, Bundle in, const RunOptions& options) const {
  TESSERA_CHECK(HasBlock(block), "chatglm", "block ", block, " is not part of this model");
  if (block == 0) return Embed(std::move(in), options);
  if (block + 1 == num_blocks()) return RunHead(std::move(in), options);
  return RunLayer(block - 1, std::move(in), options);
}

Status DeriveFromIds(const ChatGlmConfig& config, Bundle* in) {
  const Tensor ids_BT = in->at(keys::kInputIds);
  const int64_t rows = ids_BT.size(0);
  const int64_t tokens = ids_BT.size(1);
  const Tensor mask = in->get(keys::kAttentionMask);
  const bool padded = mask.defined() && mask.ndim() == 2;
  const bool want_prefix = !in->has(keys::kPrefixLength) && (!mask.defined() || padded);
  const bool want_positions = !in->has(keys::kPositionIds);
  if (!want_prefix && !want_positions) return OkStatus();
  const Device device = ids_BT.device();
  const Tensor positions_B2T = Zeros({rows, 2, tokens}, DType::kInt64);
  const Tensor prefix_B = Zeros({rows}, DType::kInt32);
  // On meta there are no ids to look at, and nobody looks at positions.
  const std::vector<int64_t> ids =
      device.is_meta() ? std::vector<int64_t>() : ids_BT.ToVector<int64_t>();
  const std::vector<double> counts =
      padded && !device.is_meta() ? mask.ToVector<double>() : std::vector<double>();
  for (int64_t b = 0; b < rows && !device.is_meta(); ++b) {
    std::vector<int64_t> text;
    std::vector<int64_t> at;  // where its tokens are in the row
    for (int64_t t = 0; t < tokens; ++t) {
      const auto i = static_cast<size_t>(b * tokens + t);
      if (!counts.empty() && counts[i] == 0) continue;
      text.push_back(ids[i]);
      at.push_back(t);
    }
    const StatusOr<TextLayout> layout = LayoutOfText(config, text);
    if (!layout.ok()) return InvalidArgument("row ", b, ": ", Message(layout.status()));
    prefix_B.data<int32_t>()[b] =
        static_cast<int32_t>(at[static_cast<size_t>(layout->prefix_length)]);
    for (size_t n = 0; n < 2; ++n) {
      int64_t* row = positions_B2T.data<int64_t>() + (b * 2 + static_cast<int64_t>(n)) * tokens;
      for (size_t i = 0; i < at.size(); ++i) row[at[i]] = layout->positions[n][i];
    }
  }
  if (want_positions) in->set(keys::kPositionIds, CopyTo(positions_B2T, device));
  if (want_prefix) in->set(keys::kPrefixLength, CopyTo(prefix_B, device));
  return OkStatus();
}

Bundle ChatGlm::CutSequences(Bundle rows, nn::ForwardContext* context) const {
  const Status derived = DeriveFromIds(config_, &rows);
  TESSERA_CHECK(derived.ok(), "chatglm", Message(derived));
  ResolveMask(&rows);
  const Tensor targets = ShiftedTargets(rows);
  return CutPrefixTexts(std::move(rows), targets, build(), context);
}

Bundle ChatGlm::Embed(Bundle in, const RunOptions& options) const {
  const Tensor ids_BT = in.at(keys::kInputIds);
  TESSERA_CHECK(ids_BT.ndim() == 2 && ids_BT.dtype() == DType::kInt64, "chatglm",
                "input_ids must be int64 [batch, tokens], got ", ids_BT);
  const Status derived = DeriveFromIds(config_, &in);
  TESSERA_CHECK(derived.ok(), "chatglm", Message(derived));
  if (in.has(keys::kAttentionMask) && in.at(keys::kAttentionMask).ndim() == 4) {
    in.set(keys::kAttentionMask, Compare(in.at(keys::kAttentionMask), 0.0, Comparison::kEqual));
  }
  ResolveMask(&in);
  const nn::ForwardContext context = ContextFor(in, options);
  Tensor x_BTC = transformer_->word_embeddings->Forward(ids_BT, context);
  if (build().sequence_parallel) x_BTC = ScatterToGroup(x_BTC, 1, build().tensor_parallel);
  in.erase(keys::kInputIds);
  in.set(keys::kHidden, x_BTC);
  return in;
}

Bundle ChatGlm::RunLayer(int layer, Bundle in, const RunOptions& options) const {
  nn::AttentionMasks masks = MasksOf(&in);
  masks.rotary_positions = in.at(keys::kPositionIds);
  return RunTransformerBlock(*transformer_->layers[static_cast<size_t>(layer)], masks,
                             std::move(in), options, layer);
}

Bundle ChatGlm::RunHead(Bundle in, const RunOptions& options) const {
  const Tensor h_BTC = transformer_->final_layernorm->Forward(in.at(keys::kHidden));
  return LanguageModelOutputs(*lm_head_, h_BTC, ShiftedTargets(in), in, options);
}

}  // namespace tessera::models
