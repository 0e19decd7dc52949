// SPDX-License-Identifier: Apache-2.0
// BERT (Devlin et al. 2018, "BERT: Pre-training of Deep Bidirectional Transformers") and RoBERTa
// (Liu et al. 2019): encoders of post-norm blocks.
//
//   words + token types + positions -> norm -> dropout
//     -> num_hidden_layers x [x = norm(x + attn(x)); x = norm(x + mlp(x))] -> head
//
// Heads (BertConfig::head), with what Run returns besides `loss`, named as in Hugging Face:
//   masked LM        dense, activation, norm, product with the word embedding, bias: `logits`
//   pre-training     the same and, from the pooler, is-next: `prediction_logits`,
//                    `seq_relationship_logits`; the loss is the sum of both
//   sequence         BERT from the pooler, RoBERTa from its own dense layer: `logits` [B, L]
//   tokens           `logits` [B, T, L]
//   none             `pooler_output` [B, C]
// and `last_hidden_state` [B, T, C] with each, unless RunOptions::keep_logits is false.
//
// Inputs: `input_ids` [B, T]; `token_type_ids` [B, T] (0); `position_ids` [B, T] (BERT: 0, 1, ...;
// RoBERTa: counted over what is no padding, from pad_token_id + 1); `attention_mask` [B, T];
// `labels` (or `targets`): [B, T] for words and tokens, -100 ignored and nothing shifted; as
// models/classification.h says for sequences; `next_sentence_label` [B].
// Parameter names are Hugging Face's. Blocks: 0 embeddings, 1 ... the layers, then the head.
#ifndef TESSERA_MODELS_BERT_BERT_H_
#define TESSERA_MODELS_BERT_BERT_H_

#include <memory>
#include <string>

#include "models/bert/config.h"
#include "models/model.h"
#include "nlohmann/json.hpp"

namespace tessera::models {

class Bert : public Model {
 public:
  Bert(const BertConfig& config, nlohmann::json json, const nn::BuildContext& build);
  ~Bert() override;

  int num_blocks() const override { return static_cast<int>(config_.num_hidden_layers) + 2; }
  BlockKeys keys_of_block(int block) const override;
  Bundle RunBlock(int block, Bundle in, const RunOptions& options) const override;
  const nlohmann::json& config() const override { return json_; }
  int64_t max_positions() const override { return config_.max_tokens(); }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t hidden_size() const override { return config_.hidden_size; }
  const BertConfig& bert_config() const { return config_; }

 private:
  class Encoder;       // under `bert.` or `roberta.`
  class MaskedLmHead;  // under `cls.predictions` or `lm_head`
  class Classifier;    // under `classifier`
  Bundle Embed(Bundle in, const RunOptions& options) const;
  Bundle RunHead(const Bundle& in, const RunOptions& options) const;
  void RunMaskedLm(const Bundle& in, const RunOptions& options, Bundle* out) const;
  void RunNextSentence(const Tensor& pooled, const Bundle& in, const RunOptions& options,
                       Bundle* out) const;
  void RunClassifier(const Tensor& whole, const Tensor& pooled, const Bundle& in,
                     const RunOptions& options, Bundle* out) const;

  const BertConfig config_;
  const nlohmann::json json_;
  std::unique_ptr<Encoder> encoder_;
  std::unique_ptr<MaskedLmHead> masked_lm_;
  std::unique_ptr<nn::Module> seq_relationship_;
  std::unique_ptr<Classifier> classifier_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_BERT_BERT_H_
