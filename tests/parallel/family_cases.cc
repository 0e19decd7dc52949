// SPDX-License-Identifier: Apache-2.0
#include "tests/parallel/family_cases.h"

#include <algorithm>

#include "core/batch_keys.h"
#include "models/bert/bert_keys.h"
#include "models/glm/glm_keys.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

using models::Bundle;
using nlohmann::json;

constexpr int64_t kRows = 3;
constexpr int64_t kTokens = 7;
constexpr int64_t kVocabulary = 53;

Tensor Ids(int64_t limit, uint64_t seed, uint64_t v) {
  return RandomIndices({kRows, kTokens}, limit, seed + 100 * v);
}
Tensor RowLabels(int64_t limit, uint64_t seed, uint64_t v) {
  return RandomIndices({kRows}, limit, seed + 100 * v);
}

// Variation v has 3 v mod 7 targets less.
Tensor SomeIgnored(const Tensor& labels, uint64_t v) {
  std::fill_n(labels.data<int64_t>(), 3 * v % 7, int64_t{-100});
  return labels;
}

// Padding on the right, on the left, and none.
Tensor Mask() {
  std::vector<int64_t> mask(kRows * kTokens, 1);
  mask[kTokens - 1] = mask[kTokens - 2] = mask[kTokens] = 0;
  return Tensor::FromVector(mask, {kRows, kTokens});
}

json BertConfig(const char* type, const char* architecture) {
  return {{"model_type", type},
          {"architectures", {architecture}},
          {"vocab_size", kVocabulary},
          {"hidden_size", 24},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"intermediate_size", 29},
          {"max_position_embeddings", 16},
          {"type_vocab_size", 2},
          {"hidden_dropout_prob", 0.2},
          {"initializer_range", 0.2},
          {"attention_probs_dropout_prob", 0.2},
          {"id2label", {{"0", "a"}, {"1", "b"}, {"2", "c"}}}};
}

// Three heads, so that two ranks hold different numbers of them.
json ModernBertConfig(const char* architecture) {
  return {{"model_type", "modernbert"}, {"architectures", {architecture}},
          {"vocab_size", kVocabulary},  {"hidden_size", 24},
          {"num_hidden_layers", 2},     {"num_attention_heads", 3},
          {"intermediate_size", 29},    {"max_position_embeddings", 16},
          {"local_attention", 4},       {"pad_token_id", 3},
          {"initializer_range", 0.2},   {"embedding_dropout", 0.2},
          {"attention_dropout", 0.2},   {"mlp_dropout", 0.2},
          {"classifier_dropout", 0.2},  {"classifier_pooling", "mean"},
          {"norm_bias", true},          {"mlp_bias", true},
          {"classifier_bias", true},    {"num_labels", 3}};
}

Bundle MaskedLmInputs(uint64_t v) {
  return {{keys::kInputIds, Ids(kVocabulary, 1, v)},
          {keys::kAttentionMask, Mask()},
          {keys::kLabels, SomeIgnored(Ids(kVocabulary, 2, v), v)}};
}

json VitConfig(const char* pooling) {
  return {{"model_type", "vit"},
          {"architectures", {"ViTForImageClassification"}},
          {"hidden_size", 24},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"intermediate_size", 29},
          {"hidden_dropout_prob", 0.2},
          {"attention_probs_dropout_prob", 0.2},
          {"initializer_range", 0.2},
          {"image_size", 8},
          {"patch_size", 4},
          {"num_channels", 3},
          {"pooling", pooling},
          {"num_labels", 3}};
}

// Larger than the configuration says: positions are interpolated.
Bundle ImageInputs(uint64_t v) {
  return {
      {keys::kPixelValues, CastCopy(RandomTensor({kRows, 3, 12, 8}, 5 + 100 * v), DType::kFloat32)},
      {keys::kLabels, RowLabels(3, 2, v)}};
}

json T5Config(const char* feed_forward, bool tied) {
  return {{"model_type", "t5"},
          {"vocab_size", kVocabulary},
          {"d_model", 24},
          {"d_kv", 5},
          {"d_ff", 29},
          {"num_layers", 2},
          {"num_decoder_layers", 2},
          {"num_heads", 4},
          {"relative_attention_num_buckets", 8},
          {"relative_attention_max_distance", 12},
          {"dropout_rate", 0.2},
          {"feed_forward_proj", feed_forward},
          {"tie_word_embeddings", tied},
          {"initializer_factor", 0.5}};
}

// A target of another length than the source.
Bundle SourceTargetInputs(uint64_t v) {
  return {{keys::kInputIds, Ids(kVocabulary, 1, v)},
          {keys::kAttentionMask, Mask()},
          {keys::kLabels, SomeIgnored(RandomIndices({kRows, 5}, kVocabulary, 2 + 100 * v), v)}};
}

json GlmConfig(double initializer_range) {
  return {{"model_type", "glm"},
          {"vocab_size", kVocabulary},
          {"hidden_size", 24},
          {"num_layers", 2},
          {"num_attention_heads", 4},
          {"max_sequence_length", 16},
          {"embedding_dropout_prob", 0.2},
          {"attention_dropout_prob", 0.2},
          {"output_dropout_prob", 0.2},
          {"initializer_range", initializer_range},
          {"sop_token_id", 50},
          {"eop_token_id", 51},
          {"mask_token_id", 48},
          {"gmask_token_id", 49}};
}

Tensor TwoCoordinates(uint64_t v) { return RandomIndices({kRows, 2, kTokens}, 16, 6 + 100 * v); }

// Prefixes of several lengths, none and all.
Bundle BlankInputs(uint64_t v) {
  return {{keys::kInputIds, Ids(kVocabulary, 1, v)},
          {keys::kPositionIds, TwoCoordinates(v)},
          {keys::kAttentionMask, Tensor::FromVector<int64_t>({4, 0, kTokens}, {kRows})},
          {keys::kLabels, SomeIgnored(Ids(kVocabulary, 2, v), v)}};
}

// Everybody sees himself, and others at random; candidates of two tokens, of one and none.
Bundle ClozeInputs(uint64_t v) {
  const Tensor mask = RandomIndices({kRows, 1, kTokens, kTokens}, 2, 7 + 100 * v);
  for (int64_t i = 0; i < kRows * kTokens; ++i) {
    mask.data<int64_t>()[i * kTokens + i % kTokens] = 1;
  }
  const Tensor choices = RandomIndices({kRows, 3, 2}, kVocabulary, 8 + 100 * v);
  for (const int at : {3, 9, 16, 17}) choices.data<int64_t>()[at] = -100;
  return {{keys::kInputIds, Ids(kVocabulary, 1, v)},
          {keys::kPositionIds, TwoCoordinates(v)},
          {keys::kAttentionMask, mask},
          {keys::kChoiceIds, choices},
          {keys::kChoiceIndices, RandomIndices({kRows, 3, 2}, kTokens, 9 + 100 * v)},
          {keys::kLabels, RowLabels(2, 2, v)}};
}

json ChatGlmConfig(bool tied) {
  return {{"model_type", "chatglm"},     {"vocab_size", kVocabulary},
          {"hidden_size", 32},           {"num_layers", 2},
          {"num_attention_heads", 4},    {"inner_hidden_size", 29},
          {"max_sequence_length", 16},   {"initializer_range", 0.2},
          {"bos_token_id", 50},          {"eos_token_id", 51},
          {"mask_token_id", 48},         {"gmask_token_id", 49},
          {"tie_word_embeddings", tied}, {"pad_token_id", 3}};
}

// Three heads, so that two ranks hold different numbers of them, and key/value heads that are fewer
// than those ranks; or four heads in two groups.
json LlamaConfig(const char* type, int64_t heads, int64_t groups) {
  return {{"model_type", type},
          {"vocab_size", kVocabulary},
          {"hidden_size", 24},
          {"num_hidden_layers", 2},
          {"num_attention_heads", heads},
          {"num_key_value_heads", groups},
          {"head_dim", 6},
          {"intermediate_size", 29},
          {"max_position_embeddings", 16},
          {"initializer_range", 0.2},
          {"attention_dropout", 0.2},
          {"tie_word_embeddings", groups == 2},
          {"use_sliding_window", true},
          {"sliding_window", 4},
          {"max_window_layers", 1}};
}

// Without a target for padding, nor for the token behind padding on the left, whose query sees no
// key, and without the tokens of padding (0 or 3), whose embeddings are zeros: norms of zeros
// multiply gradients by 1 / sqrt(eps), which float16 does not hold.
Bundle SeeingLmInputs(uint64_t v) {
  Bundle inputs = MaskedLmInputs(v);
  const Tensor ids = inputs.at(keys::kInputIds);
  std::replace_if(
      ids.data<int64_t>(), ids.data<int64_t>() + ids.numel(),
      [](int64_t id) { return id == 0 || id == 3; }, 1);
  const Tensor labels = inputs.at(keys::kLabels).ContiguousCopy();
  for (const int64_t i : {kTokens - 2, kTokens - 1, kTokens, kTokens + 1}) {
    labels.data<int64_t>()[i] = -100;
  }
  inputs.set(keys::kLabels, labels);
  return inputs;
}

// Of types whose padding is a token of their large vocabularies, with heads that turn in part.
json LaterConfig(const char* type, int64_t heads, int64_t groups,
                 const json& changes = json::object()) {
  json config = LlamaConfig(type, heads, groups);
  config["pad_token_id"] = 3;
  config["head_dim"] = 8;
  config.update(changes);
  return config;
}

json ChatGlm2Config() {
  return {{"model_type", "chatglm"},
          {"padded_vocab_size", kVocabulary},
          {"hidden_size", 24},
          {"num_layers", 2},
          {"num_attention_heads", 3},
          {"kv_channels", 8},
          {"multi_query_attention", true},
          {"multi_query_group_num", 1},
          {"ffn_hidden_size", 29},
          {"seq_length", 16},
          {"initializer_range", 0.2},
          {"add_qkv_bias", true},
          {"attention_dropout", 0.2},
          {"hidden_dropout", 0.2}};
}

json Gemma2Config() {
  json config = LlamaConfig("gemma2", 3, 1);
  config["query_pre_attn_scalar"] = 5;
  config["attn_logit_softcapping"] = 1.5;
  config["final_logit_softcapping"] = 4.0;
  return config;
}

json Gemma3Config() {
  json config = LlamaConfig("gemma3_text", 3, 1);
  config["query_pre_attn_scalar"] = 5;
  config["sliding_window_pattern"] = 2;
  return config;
}

// A prompt, [gMASK] or [MASK], <sop> and an answer in every row, padded as Mask() says.
Bundle ChatInputs(uint64_t v) {
  const Tensor ids = Ids(48, 1, v);
  for (int64_t b = 0; b < kRows; ++b) {
    int64_t* row = ids.data<int64_t>() + b * kTokens;
    row[1 + b % 2] = b == 2 ? 48 : 49;
    row[3] = 50;
  }
  return {{keys::kInputIds, ids},
          {keys::kAttentionMask, Mask()},
          {keys::kLabels, SomeIgnored(Ids(kVocabulary, 2, v), v)}};
}

}  // namespace

const std::vector<FamilyCase>& FamilyCases() {
  static const auto* const cases = new std::vector<FamilyCase>{
      {"gpt2",
       {{"model_type", "gpt2"},
        {"vocab_size", kVocabulary},
        {"n_positions", 16},
        {"n_embd", 24},
        {"n_layer", 2},
        {"n_head", 4},
        {"resid_pdrop", 0.2},
        {"embd_pdrop", 0.2},
        {"attn_pdrop", 0.2},
        {"initializer_range", 0.2}},
       MaskedLmInputs},
      {"bert_masked_lm", BertConfig("bert", "BertForMaskedLM"), MaskedLmInputs},
      {"bert_pretraining", BertConfig("bert", "BertForPreTraining"),
       [](uint64_t v) {
         Bundle in = MaskedLmInputs(v);
         in.set(keys::kTokenTypeIds, Ids(2, 3, v));
         in.set(keys::kNextSentenceLabel, RowLabels(2, 4, v));
         return in;
       }},
      {"bert_sequence", BertConfig("bert", "BertForSequenceClassification"),
       [](uint64_t v) {
         return Bundle{{keys::kInputIds, Ids(kVocabulary, 1, v)},
                       {keys::kLabels, RowLabels(3, 2, v)}};
       }},
      {"bert_tokens", BertConfig("bert", "BertForTokenClassification"),
       [](uint64_t v) {
         return Bundle{{keys::kInputIds, Ids(kVocabulary, 1, v)}, {keys::kLabels, Ids(3, 2, v)}};
       }},
      {"roberta_masked_lm", BertConfig("roberta", "RobertaForMaskedLM"), MaskedLmInputs},
      {"xlm_roberta_masked_lm", BertConfig("xlm-roberta", "XLMRobertaForMaskedLM"), MaskedLmInputs},
      {"roberta_sequence", BertConfig("roberta", "RobertaForSequenceClassification"),
       [](uint64_t v) {
         return Bundle{{keys::kInputIds, Ids(kVocabulary, 1, v)},
                       {keys::kLabels, RowLabels(3, 2, v)}};
       }},
      {"modernbert_masked_lm", ModernBertConfig("ModernBertForMaskedLM"), MaskedLmInputs},
      {"modernbert_sequence", ModernBertConfig("ModernBertForSequenceClassification"),
       [](uint64_t v) {
         return Bundle{{keys::kInputIds, Ids(kVocabulary, 1, v)},
                       {keys::kAttentionMask, Mask()},
                       {keys::kLabels, RowLabels(3, 2, v)}};
       }},
      {"modernbert_tokens", ModernBertConfig("ModernBertForTokenClassification"),
       [](uint64_t v) {
         return Bundle{{keys::kInputIds, Ids(kVocabulary, 1, v)}, {keys::kLabels, Ids(3, 2, v)}};
       }},
      {"vit_cls", VitConfig("cls"), ImageInputs},
      {"vit_mean", VitConfig("mean"), ImageInputs},
      {"t5", T5Config("relu", true), SourceTargetInputs},
      {"t5_v1_1", T5Config("gated-gelu", false), SourceTargetInputs},
      {"glm", GlmConfig(0.2), BlankInputs},
      // Scores near one another: a loss far below them would have their rounding.
      {"glm_cloze", GlmConfig(0.05), ClozeInputs},
      {"llama", LlamaConfig("llama", 3, 1), MaskedLmInputs},
      {"mistral", LlamaConfig("mistral", 4, 2), MaskedLmInputs},
      {"qwen2", LlamaConfig("qwen2", 4, 2), MaskedLmInputs},
      {"qwen3", LlamaConfig("qwen3", 3, 1), MaskedLmInputs},
      {"gemma3", Gemma3Config(), SeeingLmInputs},
      {"gemma2", Gemma2Config(), SeeingLmInputs},
      {"olmo2", LaterConfig("olmo2", 3, 1), SeeingLmInputs},
      {"olmo2_groups", LaterConfig("olmo2", 4, 2), SeeingLmInputs},
      {"smollm3", LaterConfig("smollm3", 4, 2, {{"no_rope_layer_interval", 2}}), MaskedLmInputs},
      {"smollm3_biases",
       LaterConfig("smollm3", 3, 1,
                   {{"no_rope_layers", {1, 1}}, {"attention_bias", true}, {"mlp_bias", true}}),
       MaskedLmInputs},
      {"phi3", LaterConfig("phi3", 3, 1, {{"partial_rotary_factor", 0.5}, {"resid_pdrop", 0.2}}),
       MaskedLmInputs},
      {"glm_rotary", LaterConfig("glm", 3, 1), SeeingLmInputs},
      {"glm4", LaterConfig("glm4", 4, 2), SeeingLmInputs},
      {"chatglm2", ChatGlm2Config(), MaskedLmInputs},
      {"mixtral",
       LaterConfig("mixtral", 3, 1,
                   {{"num_local_experts", 4},
                    {"num_experts_per_tok", 2},
                    {"output_router_logits", true},
                    {"router_aux_loss_coef", 0.1},
                    {"router_jitter_noise", 0.1},
                    {"router_z_loss_coef", 0.01}}),
       MaskedLmInputs},
      {"qwen2_moe",
       LaterConfig("qwen2_moe", 4, 2,
                   {{"num_experts", 5},
                    {"num_experts_per_tok", 3},
                    {"moe_intermediate_size", 13},
                    {"shared_expert_intermediate_size", 17},
                    {"use_sliding_window", false},
                    {"mlp_only_layers", {0}},
                    {"output_router_logits", true},
                    {"router_aux_loss_coef", 0.1}}),
       MaskedLmInputs},
      {"qwen3_moe",
       LaterConfig("qwen3_moe", 3, 1,
                   {{"num_experts", 3},
                    {"num_experts_per_tok", 2},
                    {"moe_intermediate_size", 13},
                    {"norm_topk_prob", true}}),
       MaskedLmInputs},
      {"glm4_moe",
       LaterConfig("glm4_moe", 4, 2,
                   {{"n_routed_experts", 6},
                    {"num_experts_per_tok", 2},
                    {"moe_intermediate_size", 13},
                    {"routed_scaling_factor", 1.5},
                    {"n_group", 3},
                    {"topk_group", 2},
                    {"use_qk_norm", true}}),
       MaskedLmInputs},
      {"chatglm", ChatGlmConfig(false), ChatInputs},
      {"chatglm_tied", ChatGlmConfig(true), ChatInputs},
  };
  return *cases;
}

}  // namespace tessera
