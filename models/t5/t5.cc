// SPDX-License-Identifier: Apache-2.0
#include "models/t5/t5.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "models/language_model.h"
#include "models/model_keys.h"
#include "models/t5/t5_keys.h"
#include "models/transformer_stack.h"
#include "nlohmann/json.hpp"
#include "nn/activation.h"
#include "nn/cross_attention.h"
#include "nn/dropout.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "nn/prefix.h"
#include "nn/relative_position.h"
#include "nn/sequence_share.h"
#include "ops/collective/sequence_runs.h"
#include "ops/elementwise/elementwise.h"
#include "ops/index/index.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

// B batch, S source tokens, T target tokens, C = d_model, V = vocab_size, H heads.

nn::Init Scaled(const T5Config& c, double width) {
  return nn::Init::Normal(c.initializer_factor / std::sqrt(width));
}

nn::SelfAttentionConfig AttentionConfig(const T5Config& c, bool causal) {
  const auto width = static_cast<double>(c.d_model);
  return {.hidden_size = c.d_model,
          .num_heads = c.num_heads,
          .head_dim = c.d_kv,
          .causal = causal,
          .scale = 1.0,
          .attention_dropout = c.dropout_rate,
          .residual_dropout = c.dropout_rate,
          .weight_init = Scaled(c, width),
          .output_init = Scaled(c, static_cast<double>(c.num_heads * c.d_kv)),
          .qkv_bias = false,
          .output_bias = false,
          .qkv_names = {"q", "k", "v"},
          .output_name = "o"};
}

nn::MlpConfig FeedForwardConfig(const T5Config& c) {
  return {.hidden_size = c.d_model,
          .inner_size = c.d_ff,
          .activation = *nn::FindActivation(c.dense_act),
          .dropout = c.dropout_rate,
          .inner_dropout = c.dropout_rate,
          .bias = false,
          .weight_init = Scaled(c, static_cast<double>(c.d_model)),
          .output_init = Scaled(c, static_cast<double>(c.d_ff)),
          .gate_name = c.gated ? "wi_0" : "",
          .up_name = c.gated ? "wi_1" : "wi",
          .down_name = "wo"};
}

nn::NormConfig NormOf(const T5Config& c) {
  return {.width = c.d_model, .eps = c.layer_norm_epsilon};
}

Tensor KeyPadding(const Tensor& mask) {
  return mask.defined() ? Compare(mask, 0.0, Comparison::kNotEqual) : Tensor();
}

// What a decoder reads while it learns to say `labels`: they, one place later.
Tensor ShiftedRight(const Tensor& labels, const T5Config& c) {
  const Tensor shifted = Pad(Slice(labels, 1, 0, labels.size(1) - 1), 1, 1, 0,
                             static_cast<double>(c.decoder_start_token_id));
  const Tensor ignored = Compare(shifted, -100.0, Comparison::kEqual);
  return Where(
      ignored,
      Full(shifted.shape(), static_cast<double>(c.pad_token_id), DType::kInt64, shifted.device()),
      shifted);
}

// A part of a block: norm, then attention or feed-forward; the residual is added outside.
class SelfAttentionPart : public nn::Module {
 public:
  // The first layer uses the table itself, the others are tied to it.
  SelfAttentionPart(const T5Config& c, bool causal, nn::Parameter& bias_table, bool first,
                    const nn::Scope& scope)
      : Module(scope),
        attention(AttentionConfig(c, causal), Child("SelfAttention")),
        norm(NormOf(c), Child("layer_norm")),
        bias_use(first ? bias_table : AddTiedParameter("relative_attention_bias", bias_table)) {}
  nn::SelfAttention attention;
  nn::RmsNorm norm;
  nn::Parameter& bias_use;
};

class CrossAttentionPart : public nn::Module {
 public:
  CrossAttentionPart(const T5Config& c, const nn::Scope& scope)
      : Module(scope),
        attention(AttentionConfig(c, false), Child("EncDecAttention")),
        norm(NormOf(c), Child("layer_norm")) {}
  nn::CrossAttention attention;
  nn::RmsNorm norm;
};

class FeedForwardPart : public nn::Module {
 public:
  FeedForwardPart(const T5Config& c, const nn::Scope& scope)
      : Module(scope),
        mlp(FeedForwardConfig(c), Child("DenseReluDense")),
        norm(NormOf(c), Child("layer_norm")) {}
  nn::Mlp mlp;
  nn::RmsNorm norm;
};

// One layer of the encoder, or of the decoder (`cross`).
class T5Block : public nn::Module {
 public:
  T5Block(const T5Config& c, bool decoder, nn::Parameter& bias_table, bool first,
          const nn::Scope& scope)
      : Module(scope),
        self_(c, decoder, bias_table, first, Child("layer.0")),
        cross_(decoder ? std::make_unique<CrossAttentionPart>(c, Child("layer.1")) : nullptr),
        feed_forward_(c, Child(decoder ? "layer.2" : "layer.1")) {}
  std::string_view kind() const override { return "T5Block"; }

  // `memory` [B, S, C] and its mask: the decoder's.
  Tensor Forward(const Tensor& x_BTC, const nn::AttentionMasks& masks, const Tensor& memory,
                 const nn::AttentionMasks& memory_masks, const nn::ForwardContext& context,
                 nn::KeyValueCache* cache, int layer) const {
    return Call(x_BTC, [&] {
      nn::NormResult normed = self_.norm.ForwardResidual(x_BTC, Tensor());
      Tensor branch = self_.attention.Forward(normed.normed, masks, context, cache, layer);
      if (cross_ != nullptr) {
        normed = cross_->norm.ForwardResidual(normed.sum, branch);
        branch =
            cross_->attention.Forward(normed.normed, memory, memory_masks, context, cache, layer);
      }
      normed = feed_forward_.norm.ForwardResidual(normed.sum, branch);
      return Add(normed.sum, feed_forward_.mlp.Forward(normed.normed, context));
    });
  }

  const nn::Parameter& bias_use() const { return self_.bias_use; }

 private:
  SelfAttentionPart self_;
  std::unique_ptr<CrossAttentionPart> cross_;
  FeedForwardPart feed_forward_;
};

}  // namespace

// The layers of one side that this model has, and what is around them.
class T5::Stack : public nn::Module {
 public:
  // Blocks [first, first + layers) of the model are the side's layers; the block before them embeds
  // its tokens, the one behind them holds its last norm.
  Stack(const T5Config& c, bool decoder, int first, int num_layers, const T5& t5,
        const nn::Scope& scope)
      : Module(scope), dropout(c.dropout_rate, Child("dropout")) {
    bool any = false;
    for (int i = 0; i < num_layers; ++i) any = any || t5.HasBlock(first + i);
    if (any) {
      bias = std::make_unique<nn::RelativePositionBias>(
          nn::RelativePositionBiasConfig{.num_buckets = c.relative_attention_num_buckets,
                                         .max_distance = c.relative_attention_max_distance,
                                         .num_heads = c.num_heads,
                                         .bidirectional = !decoder,
                                         .init = Scaled(c, static_cast<double>(c.d_model))},
          Child("block.0.layer.0.SelfAttention.relative_attention_bias"));
    }
    block.resize(static_cast<size_t>(num_layers));
    for (int i = 0; i < num_layers; ++i) {
      if (!t5.HasBlock(first + i)) continue;
      block[static_cast<size_t>(i)] =
          std::make_unique<T5Block>(c, decoder, bias->weight(), i == 0, Child(Concat("block.", i)));
    }
    if (t5.HasBlock(first + num_layers)) {
      final_layer_norm = std::make_unique<nn::RmsNorm>(NormOf(c), Child("final_layer_norm"));
      final_dropout = std::make_unique<nn::Dropout>(c.dropout_rate, Child("final_dropout"));
    }
  }

  // The bias of one of the layers, whose tokens are behind `before` keys of a prefix; its values
  // are computed once for all of this stage.
  Tensor BiasOf(const T5Block& layer, const TensorKey& key, const nn::ForwardContext& context,
                int64_t before, Bundle* in) const {
    const nn::SequenceShare share = nn::GatheredTokens(build(), context);
    std::vector<SequenceRun> queries = share.runs;
    if (share.is_whole()) queries = {{before, context.sequence_length}};
    const int64_t tokens = share.is_whole() ? context.sequence_length : share.length;
    if (!in->has(key)) {
      const NoGrad no_grad;
      in->set(key, bias->Forward(queries, before + tokens));
    }
    return bias->ForLayer(layer.bias_use(), in->at(key), queries, before + tokens);
  }

  std::unique_ptr<nn::RelativePositionBias> bias;
  std::vector<std::unique_ptr<T5Block>> block;
  std::unique_ptr<nn::RmsNorm> final_layer_norm;
  nn::Dropout dropout;  // of the embedded tokens
  std::unique_ptr<nn::Dropout> final_dropout;
};

T5::T5(const T5Config& config, nlohmann::json json, const nn::BuildContext& build)
    : Model(nn::Scope::Root(build)), config_(config), json_(std::move(json)) {
  const nn::EmbeddingConfig tokens = {config.vocab_size, config.d_model,
                                      nn::Init::Normal(config.initializer_factor)};
  const bool decodes = !config.encoder_only;
  if (HasBlock(0) ||
      (decodes && (HasBlock(bridge()) || (HasBlock(head()) && config.tie_word_embeddings)))) {
    shared_ = std::make_unique<nn::VocabParallelEmbedding>(tokens, Child("shared"));
  }
  if (HasBlock(bridge()) && !config.encoder_only) {
    decoder_tokens_ =
        std::make_unique<nn::VocabParallelEmbedding>(*shared_, Child("decoder.embed_tokens"));
  }
  encoder_ = std::make_unique<Stack>(config, false, 1, static_cast<int>(config.num_layers), *this,
                                     Child("encoder"));
  if (!decodes) return;
  decoder_ =
      std::make_unique<Stack>(config, true, bridge() + 1,
                              static_cast<int>(config.num_decoder_layers), *this, Child("decoder"));
  if (!HasBlock(head())) return;
  lm_head_ = config.tie_word_embeddings
                 ? std::make_unique<nn::VocabParallelHead>(shared_->weight(), Child("lm_head"))
                 : std::make_unique<nn::VocabParallelHead>(tokens, Child("lm_head"));
}

T5::~T5() = default;

int T5::num_blocks() const {
  if (config_.encoder_only) return bridge() + 1;
  return static_cast<int>(config_.num_layers + config_.num_decoder_layers) + 3;
}

BlockKeys T5::keys_of_block(int block) const {
  if (block < bridge()) {
    return {
        .takes = block == 0 ? KeyNames{keys::kInputIds} : KeyNames{keys::kHidden, keys::kInputIds},
        .may_take = {keys::kAttentionMask, keys::kEncoderBias},
        .gives = {keys::kHidden, keys::kEncoderBias}};
  }
  if (config_.encoder_only) {
    return {.takes = {keys::kHidden, keys::kInputIds}, .gives = {keys::kLastHiddenState}};
  }
  if (block == bridge()) {
    return {.takes = {keys::kHidden, keys::kInputIds},
            .may_take = {keys::kDecoderInputIds, keys::kLabels, keys::kTargets, keys::kMemory},
            .gives = {keys::kHidden, keys::kMemory, keys::kDecoderInputIds},
            .drops = {keys::kInputIds, keys::kEncoderBias}};
  }
  if (block < head()) {
    return {.takes = {keys::kHidden, keys::kMemory, keys::kDecoderInputIds},
            .may_take = {keys::kAttentionMask, keys::kDecoderAttentionMask, keys::kDecoderBias},
            .gives = {keys::kHidden, keys::kDecoderBias}};
  }
  return {.takes = {keys::kHidden, keys::kMemory, keys::kDecoderInputIds},
          .may_take = {keys::kLabels, keys::kTargets, keys::kLogitPositions},
          .gives = {keys::kLoss, keys::kLogits, keys::kEncoderLastHiddenState}};
}

std::vector<HiddenState> T5::HiddenStatesOf(int block) const {
  const auto of_encoder = [this](int layer) {
    return (config_.encoder_only ? "" : "encoder_") + HiddenStateName(layer);
  };
  if (block < bridge()) return {{of_encoder(block), keys::kHidden, keys::kInputIds}};
  if (config_.encoder_only) return {{of_encoder(block - 1), keys::kLastHiddenState}};
  const int layer = block - bridge();
  if (block == head()) return {{HiddenStateName(layer - 1), keys::kLastHiddenState}};
  std::vector<HiddenState> states = {
      {HiddenStateName(layer), keys::kHidden, keys::kDecoderInputIds}};
  if (layer == 0) states.push_back({of_encoder(block - 1), keys::kMemory});
  return states;
}

namespace {

nn::ForwardContext ContextOf(const RunOptions& options, const Tensor& ids) {
  nn::ForwardContext context = options.context;
  context.sequence_length = ids.size(1);
  return context;
}

// The encoder's sequence is the source.
nn::ForwardContext SourceContextOf(const RunOptions& options, const Tensor& ids) {
  nn::ForwardContext context = ContextOf(options, ids);
  context.cut_length = context.cut_source_length;
  return context;
}

}  // namespace

Bundle T5::RunBlock(int block, Bundle in, const RunOptions& options) const {
  TESSERA_CHECK(HasBlock(block), "t5", "block ", block, " is not part of this model");
  // While decoding the encoder has run already.
  const bool encoded = in.has(keys::kMemory);
  if (block < bridge()) {
    if (encoded) return in;
    return block == 0 ? EmbedSource(std::move(in), options)
                      : RunEncoderLayer(block - 1, std::move(in), options);
  }
  if (config_.encoder_only) {
    const nn::ForwardContext context = SourceContextOf(options, in.at(keys::kInputIds));
    Bundle out;
    out.set(keys::kLastHiddenState, WholeSequence(EncodedOf(in, context), build(), context));
    return out;
  }
  if (block == bridge()) {
    return EmbedTarget(encoded ? std::move(in) : FinishEncoder(std::move(in), options), options);
  }
  if (block == head()) return RunHead(std::move(in), options);
  return RunDecoderLayer(block - bridge() - 1, std::move(in), options);
}

Tensor T5::EmbedTokens(nn::VocabParallelEmbedding& table, const Tensor& ids,
                       const nn::ForwardContext& context) const {
  const Tensor x_BTC = table.Forward(ids, context);
  return build().sequence_parallel ? ScatterToGroup(x_BTC, 1, build().tensor_parallel) : x_BTC;
}

Bundle T5::EmbedSource(Bundle in, const RunOptions& options) const {
  const Tensor ids_BS = in.at(keys::kInputIds);
  TESSERA_CHECK(ids_BS.ndim() == 2 && ids_BS.dtype() == DType::kInt64, "t5",
                "input_ids must be int64 [batch, tokens], got ", ids_BS);
  const nn::ForwardContext context = SourceContextOf(options, ids_BS);
  in.set(keys::kHidden, encoder_->dropout.Forward(EmbedTokens(*shared_, ids_BS, context), context));
  return in;
}

Bundle T5::RunEncoderLayer(int layer, Bundle in, const RunOptions& options) const {
  const nn::ForwardContext context = SourceContextOf(options, in.at(keys::kInputIds));
  T5Block& block = *encoder_->block[static_cast<size_t>(layer)];
  const Tensor bias = encoder_->BiasOf(block, keys::kEncoderBias, context, 0, &in);
  const Tensor padding = KeyPadding(in.get(keys::kAttentionMask));
  in.set(keys::kHidden, block.Forward(in.at(keys::kHidden), {.key_padding = padding, .bias = bias},
                                      Tensor(), {}, context, nullptr, 0));
  return in;
}

Bundle T5::Encode(Bundle in, const RunOptions& options) const {
  const auto [first, end] = block_range();
  for (int block = first; block < std::min(end, bridge()); ++block) {
    in = RunBlock(block, std::move(in), options);
  }
  if (!HasBlock(bridge())) return in;
  in = FinishEncoder(std::move(in), options);
  in.erase(keys::kInputIds);
  return in;
}

Tensor T5::EncodedOf(const Bundle& in, const nn::ForwardContext& context) const {
  return encoder_->final_dropout->Forward(encoder_->final_layer_norm->Forward(in.at(keys::kHidden)),
                                          context);
}

// What every layer of the decoder reads: gathered once, so that its gradients are summed once.
Bundle T5::FinishEncoder(Bundle in, const RunOptions& options) const {
  const nn::ForwardContext context = SourceContextOf(options, in.at(keys::kInputIds));
  in.set(keys::kMemory, nn::GatherForColumns(EncodedOf(in, context), context, build()));
  in.erase(keys::kHidden);
  in.erase(keys::kEncoderBias);
  return in;
}

// Masks are of all tokens.
Bundle T5::CutSequences(Bundle rows, nn::ForwardContext* context) const {
  const Tensor targets = AlignedTargets(rows);
  if (!rows.has(keys::kDecoderInputIds)) {
    TESSERA_CHECK(targets.defined(), "t5", "neither decoder_input_ids nor labels are given");
    rows.set(keys::kDecoderInputIds, ShiftedRight(targets, config_));
  }
  rows.erase(keys::kLabels);
  if (targets.defined()) rows.set(keys::kTargets, targets);
  context->cut_source_length = rows.at(keys::kInputIds).size(1);
  context->cut_length = rows.at(keys::kDecoderInputIds).size(1);
  const Group& ranks = build().context_parallel;
  for (const TensorKey& key : {keys::kInputIds, keys::kDecoderInputIds, keys::kTargets}) {
    if (!rows.has(key)) continue;
    const Tensor whole = rows.at(key);
    rows.set(key, TakeRuns(whole, 1, SequenceRuns(whole.size(1), ranks->size(), ranks->rank())));
  }
  return rows;
}

Bundle T5::EmbedTarget(Bundle in, const RunOptions& options) const {
  if (!in.has(keys::kDecoderInputIds)) {
    const Tensor labels = AlignedTargets(in);
    TESSERA_CHECK(labels.defined(), "t5", "neither decoder_input_ids nor labels are given");
    in.set(keys::kDecoderInputIds, ShiftedRight(labels, config_));
  }
  const Tensor ids_BT = in.at(keys::kDecoderInputIds);
  const nn::ForwardContext context = ContextOf(options, ids_BT);
  in.set(keys::kHidden,
         decoder_->dropout.Forward(EmbedTokens(*decoder_tokens_, ids_BT, context), context));
  return in;
}

Bundle T5::RunDecoderLayer(int layer, Bundle in, const RunOptions& options) const {
  const nn::ForwardContext context = ContextOf(options, in.at(keys::kDecoderInputIds));
  nn::KeyValueCache* cache = options.cache;
  T5Block& block = *decoder_->block[static_cast<size_t>(layer)];
  Tensor bias;
  const int64_t before = prefix(context.adapter).tokens;
  if (cache == nullptr) {
    bias = decoder_->BiasOf(block, keys::kDecoderBias, context, before, &in);
  } else {
    if (!in.has(keys::kDecoderBias)) {
      in.set(keys::kDecoderBias,
             decoder_->bias->Forward(nn::QueryBegins(*cache, before), context.sequence_length,
                                     cache->LongestAfterStep()));
    }
    bias = in.at(keys::kDecoderBias);
  }
  nn::AttentionMasks memory_masks;
  memory_masks.key_padding = KeyPadding(in.get(keys::kAttentionMask));
  const Tensor padding = KeyPadding(in.get(keys::kDecoderAttentionMask));
  in.set(keys::kHidden, block.Forward(in.at(keys::kHidden), {.key_padding = padding, .bias = bias},
                                      in.at(keys::kMemory), memory_masks, context, cache, layer));
  return in;
}

Bundle T5::RunHead(Bundle in, const RunOptions& options) const {
  nn::ForwardContext context = ContextOf(options, in.at(keys::kDecoderInputIds));
  Tensor h_BTC = decoder_->final_dropout->Forward(
      decoder_->final_layer_norm->Forward(in.at(keys::kHidden)), context);
  h_BTC = AtLogitPositions(h_BTC, in, build(), &context);
  Bundle out;
  const bool hidden_only = WantsHiddenOnly(in, options);
  if (options.all_hidden_states || hidden_only) {
    out.set(keys::kLastHiddenState, WholeSequence(h_BTC, build(), context));
  }
  if (options.keep_logits || hidden_only) {
    out.set(keys::kEncoderLastHiddenState, in.at(keys::kMemory));
  }
  if (hidden_only) return out;
  if (config_.scale_decoder_outputs) {
    h_BTC = Mul(h_BTC, 1.0 / std::sqrt(static_cast<double>(config_.d_model)));
  }
  const Tensor logits_BTV = lm_head_->Forward(h_BTC, context);
  if (options.keep_logits) {
    out.set(keys::kLogits, lm_head_->Gather(logits_BTV));
  }
  if (in.has(keys::kLabels) || in.has(keys::kTargets)) {
    const Tensor targets = in.has(keys::kTargets) ? in.at(keys::kTargets) : in.at(keys::kLabels);
    CrossEntropyOptions loss = LossOptionsOf(options);
    loss.overwrite_logits = !options.keep_logits;
    out.set(keys::kLoss, CrossEntropy(logits_BTV, targets, lm_head_->LossOptions(loss)));
  }
  return out;
}

}  // namespace tessera::models
