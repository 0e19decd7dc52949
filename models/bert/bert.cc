// SPDX-License-Identifier: Apache-2.0
#include "models/bert/bert.h"

#include <vector>

#include "models/bert/bert_keys.h"
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
#include "ops/view/view.h"

namespace tessera::models {
namespace {

// B batch, T tokens, C = hidden_size, V = vocab_size, L labels.

nn::Init WeightInit(const BertConfig& c) { return nn::Init::Normal(c.initializer_range); }

nn::LinearConfig Dense(const BertConfig& c, int64_t out_features) {
  return {.in_features = c.hidden_size, .out_features = out_features, .weight_init = WeightInit(c)};
}

nn::NormConfig Norm(const BertConfig& c) {
  return {.width = c.hidden_size, .eps = c.layer_norm_eps};
}

nn::EmbeddingConfig Words(const BertConfig& c) {
  return {.rows = c.vocab_size,
          .width = c.hidden_size,
          .init = nn::Init::Normal(c.initializer_range, c.pad_token_id),
          .padding_idx = c.pad_token_id};
}

nn::EmbeddingConfig Positions(const BertConfig& c) {
  const int64_t padding = c.roberta ? c.pad_token_id : -1;
  return {.rows = c.max_position_embeddings,
          .width = c.hidden_size,
          .init = nn::Init::Normal(c.initializer_range, padding),
          .padding_idx = padding};
}

nn::TransformerBlockConfig LayerConfig(const BertConfig& c) {
  nn::TransformerBlockConfig config;
  config.attention = {.hidden_size = c.hidden_size,
                      .num_heads = c.num_attention_heads,
                      .causal = false,
                      .attention_dropout = c.attention_probs_dropout_prob,
                      .residual_dropout = c.hidden_dropout_prob,
                      .weight_init = WeightInit(c),
                      .output_init = WeightInit(c),
                      .qkv_names = {"self.query", "self.key", "self.value"},
                      .output_name = "output.dense"};
  config.mlp = {.hidden_size = c.hidden_size,
                .inner_size = c.intermediate_size,
                .activation = *nn::FindActivation(c.hidden_act),
                .dropout = c.hidden_dropout_prob,
                .weight_init = WeightInit(c),
                .output_init = WeightInit(c),
                .up_name = "intermediate.dense",
                .down_name = "output.dense"};
  config.norm_eps = c.layer_norm_eps;
  config.norm_place = nn::NormPlace::kBehind;
  config.attention_norm_name = "attention.output.LayerNorm";
  config.mlp_norm_name = "output.LayerNorm";
  config.attention_name = "attention";
  config.mlp_name = "";
  return config;
}

// RoBERTa counts the tokens that are no padding, from padding + 1; padding has its own position.
Tensor PositionsFromPadding(const Tensor& ids_BT, int64_t padding) {
  if (ids_BT.device().is_meta()) return Empty(ids_BT.shape(), DType::kInt64, ids_BT.device());
  std::vector<int64_t> values = ids_BT.ToVector<int64_t>();
  const auto tokens = static_cast<size_t>(ids_BT.size(1));
  for (size_t begin = 0; begin < values.size(); begin += tokens) {
    int64_t position = padding;
    for (size_t i = begin; i < begin + tokens; ++i) {
      values[i] = values[i] == padding ? padding : ++position;
    }
  }
  return CopyTo(Tensor::FromVector(values, ids_BT.shape()), ids_BT.device());
}

}  // namespace

class Bert::Encoder : public nn::Module {
 public:
  Encoder(const BertConfig& c, const nn::Scope& scope, const Bert& bert) : Module(scope) {
    const int head = bert.num_blocks() - 1;
    const bool tied = c.tie_word_embeddings &&
                      (c.head == BertHead::kMaskedLm || c.head == BertHead::kPreTraining);
    // A stage with the head but not the embedding holds a replica of the tied weight.
    if (bert.HasBlock(0) || (bert.HasBlock(head) && tied)) {
      words = std::make_unique<nn::VocabParallelEmbedding>(Words(c),
                                                           Child("embeddings.word_embeddings"));
    }
    if (bert.HasBlock(0)) {
      positions = std::make_unique<nn::ReplicatedEmbedding>(
          Positions(c), Child("embeddings.position_embeddings"));
      const nn::EmbeddingConfig type_config = {c.type_vocab_size, c.hidden_size, WeightInit(c)};
      types = std::make_unique<nn::ReplicatedEmbedding>(type_config,
                                                        Child("embeddings.token_type_embeddings"));
      norm = std::make_unique<nn::LayerNorm>(Norm(c), Child("embeddings.LayerNorm"));
      dropout = std::make_unique<nn::Dropout>(c.hidden_dropout_prob, Child("embeddings.dropout"));
    }
    layers.resize(static_cast<size_t>(c.num_hidden_layers));
    for (int i = 0; i < static_cast<int>(c.num_hidden_layers); ++i) {
      if (!bert.HasBlock(i + 1)) continue;
      layers[static_cast<size_t>(i)] = std::make_unique<nn::TransformerBlock>(
          LayerConfig(c), Child(Concat("encoder.layer.", i)));
    }
    if (bert.HasBlock(head) && c.has_pooler()) {
      pooler =
          std::make_unique<nn::ReplicatedLinear>(Dense(c, c.hidden_size), Child("pooler.dense"));
    }
  }

  std::unique_ptr<nn::VocabParallelEmbedding> words;
  std::unique_ptr<nn::ReplicatedEmbedding> positions;
  std::unique_ptr<nn::ReplicatedEmbedding> types;
  std::unique_ptr<nn::LayerNorm> norm;
  std::unique_ptr<nn::Dropout> dropout;
  std::vector<std::unique_ptr<nn::TransformerBlock>> layers;
  std::unique_ptr<nn::ReplicatedLinear> pooler;
};

class Bert::MaskedLmHead : public nn::Module {
 public:
  MaskedLmHead(const BertConfig& c, nn::Parameter* tied, const nn::Scope& scope)
      : Module(scope),
        activation_(c.roberta ? Gelu : *nn::FindActivation(c.hidden_act)),
        dense_(ShareOfSequence(c), Child(c.roberta ? "dense" : "transform.dense")),
        norm_(Norm(c), Child(c.roberta ? "layer_norm" : "transform.LayerNorm")),
        decoder_(MakeDecoder(c, tied)),
        bias_(AddParameter("bias", decoder_->BiasPlacement(), nn::Init::Zeros())) {}

  // h [B, T, C] (its share of the sequence) to this rank's columns of the logits.
  Tensor Forward(const Tensor& h, const nn::ForwardContext& context) const {
    return Call(h, [&] {
      const Tensor x = norm_.Forward(activation_(dense_.Forward(h, context)));
      return decoder_->Forward(x, context, bias_.tensor);
    });
  }
  nn::VocabParallelHead& decoder() { return *decoder_; }

 private:
  static nn::LinearConfig ShareOfSequence(const BertConfig& c) {
    nn::LinearConfig config = Dense(c, c.hidden_size);
    config.on_sequence_share = true;
    return config;
  }
  std::unique_ptr<nn::VocabParallelHead> MakeDecoder(const BertConfig& c, nn::Parameter* tied) {
    if (tied != nullptr) return std::make_unique<nn::VocabParallelHead>(*tied, Child("decoder"));
    const nn::EmbeddingConfig own = {c.vocab_size, c.hidden_size, WeightInit(c)};
    return std::make_unique<nn::VocabParallelHead>(own, Child("decoder"));
  }

  const nn::Activation activation_;
  nn::ReplicatedLinear dense_;
  nn::LayerNorm norm_;
  std::unique_ptr<nn::VocabParallelHead> decoder_;
  nn::Parameter& bias_;
};

// Of sequences (from the pooled or first token) or of tokens; RoBERTa's has a dense layer of its
// own for sequences.
class Bert::Classifier : public nn::Module {
 public:
  Classifier(const BertConfig& c, const nn::Scope& scope)
      : Module(scope), dropout_(c.head_dropout(), Child("dropout")) {
    const bool two = c.roberta && c.head == BertHead::kSequence;
    if (two) {
      dense_ = std::make_unique<nn::ReplicatedLinear>(Dense(c, c.hidden_size), Child("dense"));
      dense_dropout_ = std::make_unique<nn::Dropout>(c.head_dropout(), Child("dense.dropout"));
    }
    out_ = std::make_unique<nn::ReplicatedLinear>(Dense(c, c.labels.count),
                                                  Child(two ? "out_proj" : ""));
  }

  // x [..., C], whole on every rank, to [..., L].
  Tensor Forward(const Tensor& x, const nn::ForwardContext& context) const {
    return Call(x, [&] {
      Tensor h = dropout_.ForwardWhole(x, context);
      if (dense_ != nullptr) {
        h = dense_dropout_->ForwardWhole(Tanh(dense_->Forward(h, context)), context);
      }
      return out_->Forward(h, context);
    });
  }

 private:
  nn::Dropout dropout_;
  std::unique_ptr<nn::ReplicatedLinear> dense_;
  std::unique_ptr<nn::Dropout> dense_dropout_;
  std::unique_ptr<nn::ReplicatedLinear> out_;
};

Bert::Bert(const BertConfig& config, nlohmann::json json, const nn::BuildContext& build)
    : Model(nn::Scope::Root(build)), config_(config), json_(std::move(json)) {
  // A bare encoder's file has no prefix.
  const std::string prefix =
      config_.head == BertHead::kNone ? "" : (config_.roberta ? "roberta" : "bert");
  encoder_ = std::make_unique<Encoder>(config_, Child(prefix), *this);
  if (!HasBlock(num_blocks() - 1)) return;
  switch (config_.head) {
    case BertHead::kNone:
      break;
    case BertHead::kMaskedLm:
    case BertHead::kPreTraining:
      masked_lm_ = std::make_unique<MaskedLmHead>(
          config_, config_.tie_word_embeddings ? &encoder_->words->weight() : nullptr,
          Child(config_.roberta ? "lm_head" : "cls.predictions"));
      if (config_.head == BertHead::kPreTraining) {
        seq_relationship_ = std::make_unique<nn::ReplicatedLinear>(Dense(config_, 2),
                                                                   Child("cls.seq_relationship"));
      }
      break;
    case BertHead::kSequence:
    case BertHead::kTokens:
      classifier_ = std::make_unique<Classifier>(config_, Child("classifier"));
      break;
  }
}

Bert::~Bert() = default;

BlockKeys Bert::keys_of_block(int block) const {
  if (block == 0) {
    return {.takes = {keys::kInputIds},
            .may_take = {keys::kTokenTypeIds, keys::kPositionIds},
            .gives = {keys::kHidden, keys::kPositionIds},
            .drops = {keys::kInputIds, keys::kTokenTypeIds}};
  }
  if (block + 1 < num_blocks()) return TransformerBlockKeys({keys::kAttentionMask});
  BlockKeys head = {.takes = {keys::kHidden, keys::kPositionIds},
                    .may_take = {keys::kLabels, keys::kTargets},
                    .gives = {keys::kLoss, keys::kLogits, keys::kLastHiddenState}};
  if (config_.head == BertHead::kNone) {
    head.may_take = {};
    head.gives = {keys::kLastHiddenState};
    if (config_.has_pooler()) head.gives.Add(keys::kPoolerOutput);
  } else if (config_.head == BertHead::kPreTraining) {
    head.may_take = {keys::kLabels, keys::kTargets, keys::kNextSentenceLabel};
    head.gives = {keys::kLoss, keys::kPredictionLogits, keys::kSeqRelationshipLogits,
                  keys::kLastHiddenState};
  }
  return head;
}

Bundle Bert::RunBlock(int block, Bundle in, const RunOptions& options) const {
  TESSERA_CHECK(HasBlock(block), "bert", "block ", block, " is not part of this model");
  if (block == 0) return Embed(std::move(in), options);
  if (block + 1 == num_blocks()) return RunHead(in, options);
  return RunTransformerBlock(*encoder_->layers[static_cast<size_t>(block - 1)], std::move(in),
                             options);
}

Bundle Bert::Embed(Bundle in, const RunOptions& options) const {
  const Tensor ids_BT = in.at(keys::kInputIds);
  TESSERA_CHECK(ids_BT.ndim() == 2 && ids_BT.dtype() == DType::kInt64, "bert",
                "input_ids must be int64 [batch, tokens], got ", ids_BT);
  if (!in.has(keys::kPositionIds)) {
    in.set(keys::kPositionIds,
           config_.roberta ? PositionsFromPadding(ids_BT, config_.pad_token_id)
                           : CountingPositions(ids_BT.size(0), ids_BT.size(1), ids_BT.device()));
  }
  const Tensor types_BT = in.has(keys::kTokenTypeIds)
                              ? in.at(keys::kTokenTypeIds)
                              : Zeros(ids_BT.shape(), DType::kInt64, ids_BT.device());
  const nn::ForwardContext context = ContextFor(in, options);
  Tensor x_BTC = Add(
      Add(encoder_->words->Forward(ids_BT, context), encoder_->types->Forward(types_BT, context)),
      encoder_->positions->Forward(in.at(keys::kPositionIds), context));
  if (build().sequence_parallel) x_BTC = ScatterToGroup(x_BTC, 1, build().tensor_parallel);
  in.erase(keys::kInputIds);
  in.erase(keys::kTokenTypeIds);
  in.set(keys::kHidden, encoder_->dropout->Forward(encoder_->norm->Forward(x_BTC), context));
  return in;
}

Bundle Bert::RunHead(const Bundle& in, const RunOptions& options) const {
  const nn::ForwardContext context = ContextFor(in, options);
  Bundle out;
  const bool hidden_only = WantsHiddenOnly(in, options) && !in.has(keys::kNextSentenceLabel);
  if (masked_lm_ != nullptr && !hidden_only) RunMaskedLm(in, options, &out);
  if (config_.head == BertHead::kMaskedLm && !options.keep_logits && !hidden_only) return out;
  const Tensor whole_BTC = WholeSequence(in.at(keys::kHidden), build(), context);
  Tensor pooled_BC;
  if (encoder_->pooler != nullptr) {
    pooled_BC = Tanh(encoder_->pooler->Forward(FirstToken(whole_BTC), context));
  }
  if (options.keep_logits || hidden_only) out.set(keys::kLastHiddenState, whole_BTC);
  if (pooled_BC.defined() && (hidden_only || config_.head == BertHead::kNone)) {
    out.set(keys::kPoolerOutput, pooled_BC);
  }
  if (hidden_only) return out;
  if (seq_relationship_ != nullptr) RunNextSentence(pooled_BC, in, options, &out);
  if (classifier_ != nullptr) RunClassifier(whole_BTC, pooled_BC, in, options, &out);
  return out;
}

void Bert::RunMaskedLm(const Bundle& in, const RunOptions& options, Bundle* out) const {
  const auto [h, labels] =
      MaskedTokensOf(in.at(keys::kHidden), AlignedTargets(in), build(), options);
  const Tensor logits = masked_lm_->Forward(h, ContextFor(in, options));
  if (options.keep_logits) {
    out->set(config_.head == BertHead::kPreTraining ? keys::kPredictionLogits : keys::kLogits,
             masked_lm_->decoder().Gather(logits));
  }
  if (!labels.defined()) return;
  CrossEntropyOptions loss = LossOptionsOf(options);
  loss.overwrite_logits = !options.keep_logits;
  out->set(keys::kLoss, CrossEntropy(logits, labels, masked_lm_->decoder().LossOptions(loss)));
}

void Bert::RunNextSentence(const Tensor& pooled_BC, const Bundle& in, const RunOptions& options,
                           Bundle* out) const {
  const Tensor logits_B2 = static_cast<nn::ReplicatedLinear&>(*seq_relationship_)
                               .Forward(pooled_BC, ContextFor(in, options));
  if (options.keep_logits) out->set(keys::kSeqRelationshipLogits, logits_B2);
  if (!in.has(keys::kNextSentenceLabel)) return;
  const Tensor loss =
      CrossEntropy(logits_B2, in.at(keys::kNextSentenceLabel), LossOptionsOf(options));
  out->set(keys::kLoss, out->has(keys::kLoss) ? Add(out->at(keys::kLoss), loss) : loss);
}

void Bert::RunClassifier(const Tensor& whole_BTC, const Tensor& pooled_BC, const Bundle& in,
                         const RunOptions& options, Bundle* out) const {
  const nn::ForwardContext context = ContextFor(in, options);
  Tensor features = whole_BTC;
  if (config_.head == BertHead::kSequence) {
    features = pooled_BC.defined() ? pooled_BC : FirstToken(whole_BTC);
  }
  const Tensor logits = classifier_->Forward(features, context);
  if (options.keep_logits) out->set(keys::kLogits, logits);
  const Tensor labels = AlignedTargets(in);
  if (!labels.defined()) return;
  LabelSpec spec = config_.labels;
  if (config_.head == BertHead::kTokens) spec.problem = ProblemType::kSingleLabel;
  out->set(keys::kLoss, ClassificationLoss(logits, labels, spec, options));
}

}  // namespace tessera::models
