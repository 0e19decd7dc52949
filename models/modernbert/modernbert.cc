// SPDX-License-Identifier: Apache-2.0
#include "models/modernbert/modernbert.h"

#include <cmath>
#include <utility>

#include "models/language_model.h"
#include "models/model_keys.h"
#include "models/transformer_stack.h"
#include "nlohmann/json.hpp"
#include "nn/activation.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/norm.h"
#include "nn/transformer_block.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/reduction.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

// B batch, T tokens, C = hidden_size, V = vocab_size, L labels.

nn::Init FirstNumbers(const ModernBertConfig& c, double stddev) {
  return nn::Init::TruncatedNormal(stddev, c.initializer_cutoff_factor);
}
nn::Init InInit(const ModernBertConfig& c) { return FirstNumbers(c, c.initializer_range); }
// Of what is added to the stream, and of heads.
nn::Init OutInit(const ModernBertConfig& c) {
  const auto layers = static_cast<double>(c.num_hidden_layers);
  return FirstNumbers(c, c.initializer_range / std::sqrt(2 * layers));
}

nn::NormConfig Norm(const ModernBertConfig& c) {
  return {.width = c.hidden_size, .eps = c.norm_eps, .bias = c.norm_bias};
}

nn::EmbeddingConfig Words(const ModernBertConfig& c) {
  nn::Init init = InInit(c);
  init.zero_row = c.pad_token_id;
  return {
      .rows = c.vocab_size, .width = c.hidden_size, .init = init, .padding_idx = c.pad_token_id};
}

nn::TransformerBlockConfig LayerConfig(const ModernBertConfig& c, size_t layer) {
  nn::TransformerBlockConfig config;
  const bool slides = c.slides[layer];
  config.attention = {.hidden_size = c.hidden_size,
                      .num_heads = c.num_attention_heads,
                      .causal = false,
                      .window = slides ? c.local_attention / 2 + 1 : 0,
                      .attention_dropout = c.attention_dropout,
                      .residual_dropout = c.attention_dropout,
                      .weight_init = InInit(c),
                      .output_init = OutInit(c),
                      .qkv_bias = c.attention_bias,
                      .output_bias = c.attention_bias,
                      .qkv_name = "Wqkv",
                      .output_name = "Wo",
                      .rotary = slides ? c.local_rotary : c.rotary};
  config.mlp = {.hidden_size = c.hidden_size,
                .inner_size = c.intermediate_size,
                .activation = *nn::FindActivation(c.hidden_activation),
                .inner_dropout = c.mlp_dropout,
                .bias = c.mlp_bias,
                .weight_init = InInit(c),
                .output_init = OutInit(c),
                .gate_name = "Wi",
                .up_name = "Wi",
                .down_name = "Wo"};
  config.norm_eps = c.norm_eps;
  config.norm_bias = c.norm_bias;
  config.attention_norm_name = layer == 0 ? "" : "attn_norm";
  config.mlp_norm_name = "mlp_norm";
  return config;
}

// The mean over the tokens that `attention_mask` [B, T] counts: [B, C].
Tensor MeanOfTokens(const Tensor& h_BTC, const Tensor& mask_BT) {
  if (!mask_BT.defined()) return Mean(h_BTC, {1});
  const Tensor counts_BT = CastCopy(mask_BT, h_BTC.dtype());
  return Div(Sum(Mul(h_BTC, Unsqueeze(counts_BT, 2)), {1}), Sum(counts_BT, {1}, true));
}

}  // namespace

class ModernBert::Encoder : public nn::Module {
 public:
  Encoder(const ModernBertConfig& c, const nn::Scope& scope, const ModernBert& model)
      : Module(scope) {
    const bool last = model.HasBlock(model.num_blocks() - 1);
    const bool tied = c.tie_word_embeddings && c.head == ModernBertHead::kMaskedLm;
    // A stage with the head but not the embedding holds a replica of the tied weight.
    if (model.HasBlock(0) || (last && tied)) {
      words = std::make_unique<nn::VocabParallelEmbedding>(Words(c),
                                                           Child("embeddings.tok_embeddings"));
    }
    if (model.HasBlock(0)) {
      norm = std::make_unique<nn::LayerNorm>(Norm(c), Child("embeddings.norm"));
      dropout = std::make_unique<nn::Dropout>(c.embedding_dropout, Child("embeddings.drop"));
    }
    layers.resize(static_cast<size_t>(c.num_hidden_layers));
    for (size_t i = 0; i < layers.size(); ++i) {
      if (!model.HasBlock(static_cast<int>(i) + 1)) continue;
      layers[i] =
          std::make_unique<nn::TransformerBlock>(LayerConfig(c, i), Child(Concat("layers.", i)));
    }
    if (last) final_norm = std::make_unique<nn::LayerNorm>(Norm(c), Child("final_norm"));
  }

  std::unique_ptr<nn::VocabParallelEmbedding> words;
  std::unique_ptr<nn::LayerNorm> norm;
  std::unique_ptr<nn::Dropout> dropout;
  std::vector<std::unique_ptr<nn::TransformerBlock>> layers;
  std::unique_ptr<nn::LayerNorm> final_norm;
};

// Dense, activation and norm, of shares of sequences or of what every rank has whole.
class ModernBert::PredictionHead : public nn::Module {
 public:
  PredictionHead(const ModernBertConfig& c, bool on_share, const nn::Scope& scope)
      : Module(scope),
        activation_(*nn::FindActivation(c.classifier_activation)),
        dense_({.in_features = c.hidden_size,
                .out_features = c.hidden_size,
                .bias = c.classifier_bias,
                .weight_init = OutInit(c),
                .on_sequence_share = on_share},
               Child("dense")),
        norm_(NormOf(c, on_share), Child("norm")) {}

  // [..., C] to [..., C].
  Tensor Forward(const Tensor& h, const nn::ForwardContext& context) const {
    return Call(h, [&] { return norm_.Forward(activation_(dense_.Forward(h, context))); });
  }

 private:
  static nn::NormConfig NormOf(const ModernBertConfig& c, bool on_share) {
    nn::NormConfig config = Norm(c);
    config.on_whole = !on_share;
    return config;
  }

  const nn::Activation activation_;
  nn::ReplicatedLinear dense_;
  nn::LayerNorm norm_;
};

class ModernBert::Decoder : public nn::Module {
 public:
  Decoder(const ModernBertConfig& c, nn::Parameter* tied, const nn::Scope& scope)
      : Module(scope), head_(MakeHead(c, tied)) {
    if (!c.decoder_bias) return;
    bias_ = &AddParameter("bias", head_->BiasPlacement(), nn::Init::Zeros());
  }

  // h [..., C] (its share of the sequence) to this rank's columns of the logits.
  Tensor Forward(const Tensor& h, const nn::ForwardContext& context) const {
    return Call(
        h, [&] { return head_->Forward(h, context, bias_ == nullptr ? Tensor() : bias_->tensor); });
  }
  nn::VocabParallelHead& head() { return *head_; }

 private:
  std::unique_ptr<nn::VocabParallelHead> MakeHead(const ModernBertConfig& c, nn::Parameter* tied) {
    if (tied != nullptr) return std::make_unique<nn::VocabParallelHead>(*tied, Child(""));
    const nn::EmbeddingConfig own = {
        .rows = c.vocab_size, .width = c.hidden_size, .init = OutInit(c)};
    return std::make_unique<nn::VocabParallelHead>(own, Child(""));
  }

  const std::unique_ptr<nn::VocabParallelHead> head_;
  nn::Parameter* bias_ = nullptr;  // null: none
};

class ModernBert::Classifier : public nn::Module {
 public:
  Classifier(const ModernBertConfig& c, const nn::Scope& scope)
      : Module(scope),
        dropout_(c.classifier_dropout, Child("drop")),
        out_({.in_features = c.hidden_size,
              .out_features = c.labels.count,
              .weight_init = FirstNumbers(c, 1 / std::sqrt(static_cast<double>(c.hidden_size)))},
             Child("")) {}

  // x [..., C], whole on every rank, to [..., L].
  Tensor Forward(const Tensor& x, const nn::ForwardContext& context) const {
    return Call(x, [&] { return out_.Forward(dropout_.ForwardWhole(x, context), context); });
  }

 private:
  nn::Dropout dropout_;
  nn::ReplicatedLinear out_;
};

ModernBert::ModernBert(const ModernBertConfig& config, nlohmann::json json,
                       const nn::BuildContext& build)
    : Model(nn::Scope::Root(build)), config_(config), json_(std::move(json)) {
  // A bare encoder's file has no prefix.
  const bool bare = config_.head == ModernBertHead::kNone;
  encoder_ = std::make_unique<Encoder>(config_, Child(bare ? "" : "model"), *this);
  if (bare || !HasBlock(num_blocks() - 1)) return;
  const bool on_share = config_.head != ModernBertHead::kSequence;
  head_ = std::make_unique<PredictionHead>(config_, on_share, Child("head"));
  if (config_.head == ModernBertHead::kMaskedLm) {
    nn::Parameter* const tied = config_.tie_word_embeddings ? &encoder_->words->weight() : nullptr;
    decoder_ = std::make_unique<Decoder>(config_, tied, Child("decoder"));
  } else {
    classifier_ = std::make_unique<Classifier>(config_, Child("classifier"));
  }
}

ModernBert::~ModernBert() = default;

BlockKeys ModernBert::keys_of_block(int block) const {
  if (block == 0) {
    return {.takes = {keys::kInputIds},
            .may_take = {keys::kPositionIds},
            .gives = {keys::kHidden, keys::kPositionIds},
            .drops = {keys::kInputIds}};
  }
  if (block + 1 < num_blocks()) return TransformerBlockKeys({keys::kAttentionMask});
  BlockKeys head = {.takes = {keys::kHidden, keys::kPositionIds},
                    .gives = {keys::kLastHiddenState}};
  if (config_.head == ModernBertHead::kNone) return head;
  head.may_take = {keys::kLabels, keys::kTargets};
  if (reads_mean()) head.may_take.Add(keys::kAttentionMask);
  head.gives.Add(keys::kLoss);
  head.gives.Add(keys::kLogits);
  return head;
}

// The last one is what heads read, behind the last norm.
std::vector<HiddenState> ModernBert::HiddenStatesOf(int block) const {
  if (block + 1 < num_blocks()) return Model::HiddenStatesOf(block);
  return {{.name = HiddenStateName(block - 1), .key = keys::kLastHiddenState}};
}

Bundle ModernBert::RunBlock(int block, Bundle in, const RunOptions& options) const {
  TESSERA_CHECK(HasBlock(block), "modernbert", "block ", block, " is not part of this model");
  if (block == 0) return Embed(std::move(in), options);
  if (block + 1 == num_blocks()) return RunHead(in, options);
  nn::AttentionMasks masks = MasksOf(in);
  masks.rotary_positions = in.at(keys::kPositionIds);
  return RunTransformerBlock(*encoder_->layers[static_cast<size_t>(block - 1)], masks,
                             std::move(in), options);
}

Bundle ModernBert::Embed(Bundle in, const RunOptions& options) const {
  const Tensor ids_BT = in.at(keys::kInputIds);
  TESSERA_CHECK(ids_BT.ndim() == 2 && ids_BT.dtype() == DType::kInt64, "modernbert",
                "input_ids must be int64 [batch, tokens], got ", ids_BT);
  if (!in.has(keys::kPositionIds)) {
    in.set(keys::kPositionIds, CountingPositions(ids_BT.size(0), ids_BT.size(1), ids_BT.device()));
  }
  const nn::ForwardContext context = ContextFor(in, options);
  Tensor x_BTC = encoder_->words->Forward(ids_BT, context);
  if (build().sequence_parallel) x_BTC = ScatterToGroup(x_BTC, 1, build().tensor_parallel);
  in.erase(keys::kInputIds);
  in.set(keys::kHidden, encoder_->dropout->Forward(encoder_->norm->Forward(x_BTC), context));
  return in;
}

Bundle ModernBert::RunHead(const Bundle& in, const RunOptions& options) const {
  const nn::ForwardContext context = ContextFor(in, options);
  const Tensor h_BTC = encoder_->final_norm->Forward(in.at(keys::kHidden));
  Bundle out;
  const bool hidden_only = WantsHiddenOnly(in, options);
  const bool keeps = options.keep_logits || options.all_hidden_states || hidden_only;
  Tensor whole_BTC;
  if (keeps || config_.head == ModernBertHead::kSequence) {
    whole_BTC = WholeSequence(h_BTC, build(), context);
  }
  if (keeps) out.set(keys::kLastHiddenState, whole_BTC);
  if (hidden_only) return out;
  if (decoder_ != nullptr) RunMaskedLm(h_BTC, in, options, &out);
  if (classifier_ != nullptr) RunClassifier(h_BTC, whole_BTC, in, options, &out);
  return out;
}

void ModernBert::RunMaskedLm(const Tensor& h_BTC, const Bundle& in, const RunOptions& options,
                             Bundle* out) const {
  const nn::ForwardContext context = ContextFor(in, options);
  const auto [h, targets] = MaskedTokensOf(h_BTC, AlignedTargets(in), build(), options);
  const Tensor logits = decoder_->Forward(head_->Forward(h, context), context);
  if (options.keep_logits) out->set(keys::kLogits, decoder_->head().Gather(logits));
  if (!targets.defined()) return;
  CrossEntropyOptions loss = LossOptionsOf(options);
  loss.overwrite_logits = !options.keep_logits;
  out->set(keys::kLoss, CrossEntropy(logits, targets, decoder_->head().LossOptions(loss)));
}

void ModernBert::RunClassifier(const Tensor& h_BTC, const Tensor& whole_BTC, const Bundle& in,
                               const RunOptions& options, Bundle* out) const {
  const nn::ForwardContext context = ContextFor(in, options);
  LabelSpec spec = config_.labels;
  Tensor features;
  if (config_.head == ModernBertHead::kSequence) {
    const Tensor pooled_BC = reads_mean() ? MeanOfTokens(whole_BTC, in.get(keys::kAttentionMask))
                                          : FirstToken(whole_BTC);
    features = head_->Forward(pooled_BC, context);
  } else {
    features = WholeSequence(head_->Forward(h_BTC, context), build(), context);
    spec.problem = ProblemType::kSingleLabel;
  }
  const Tensor logits = classifier_->Forward(features, context);
  if (options.keep_logits) out->set(keys::kLogits, logits);
  const Tensor labels = AlignedTargets(in);
  if (labels.defined()) out->set(keys::kLoss, ClassificationLoss(logits, labels, spec, options));
}

}  // namespace tessera::models
