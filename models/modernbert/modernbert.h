// SPDX-License-Identifier: Apache-2.0
// ModernBERT (Warner et al. 2024, "Smarter, Better, Faster, Longer: A Modern Bidirectional
// Encoder"): an encoder with rotary positions, gated feed-forward parts (GeGLU), norms before the
// parts, and layers that see all tokens between layers that see a token's neighbourhood alone.
//
//   words -> norm -> dropout
//     -> num_hidden_layers x [x += attn(norm(x)); x += mlp(norm(x))] -> norm -> head
//
// The first layer's attention has no norm: the embedding's has just been. Heads
// (ModernBertConfig::head), with what Run returns besides `loss`, named as in Hugging Face:
//   masked LM        dense, activation, norm, product with the word embedding, bias: `logits`
//   sequence         the first token's or the mean state, dense, activation, norm, classifier:
//                    `logits` [B, L]
//   tokens           the same of every token: `logits` [B, T, L]
//   none             nothing else
// and `last_hidden_state` [B, T, C], behind the last norm, with each, unless
// RunOptions::keep_logits is false and there are labels.
//
// Inputs: `input_ids` [B, T]; `position_ids` [B, T] (0, 1, ...); `attention_mask` [B, T]; `labels`
// (or `targets`): [B, T] for words and tokens, -100 ignored and nothing shifted; as
// models/classification.h says for sequences.
// Parameter names are Hugging Face's. Blocks: 0 embeddings, 1 ... the layers, then the head.
#ifndef TESSERA_MODELS_MODERNBERT_MODERNBERT_H_
#define TESSERA_MODELS_MODERNBERT_MODERNBERT_H_

#include <memory>
#include <vector>

#include "models/model.h"
#include "models/modernbert/config.h"
#include "nlohmann/json.hpp"

namespace tessera::models {

class ModernBert : public Model {
 public:
  ModernBert(const ModernBertConfig& config, nlohmann::json json, const nn::BuildContext& build);
  ~ModernBert() override;

  int num_blocks() const override { return static_cast<int>(config_.num_hidden_layers) + 2; }
  BlockKeys keys_of_block(int block) const override;
  std::vector<HiddenState> HiddenStatesOf(int block) const override;
  Bundle RunBlock(int block, Bundle in, const RunOptions& options) const override;
  const nlohmann::json& config() const override { return json_; }
  int64_t max_positions() const override { return config_.max_positions; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t hidden_size() const override { return config_.hidden_size; }
  const ModernBertConfig& modernbert_config() const { return config_; }

 private:
  class Encoder;         // under `model.`
  class PredictionHead;  // under `head`
  class Decoder;         // under `decoder`
  class Classifier;      // under `classifier`
  Bundle Embed(Bundle in, const RunOptions& options) const;
  Bundle RunHead(const Bundle& in, const RunOptions& options) const;
  void RunMaskedLm(const Tensor& h, const Bundle& in, const RunOptions& options, Bundle* out) const;
  void RunClassifier(const Tensor& h, const Tensor& whole, const Bundle& in,
                     const RunOptions& options, Bundle* out) const;
  bool reads_mean() const {
    return config_.head == ModernBertHead::kSequence && config_.classifier_pooling == "mean";
  }

  const ModernBertConfig config_;
  const nlohmann::json json_;
  std::unique_ptr<Encoder> encoder_;
  std::unique_ptr<PredictionHead> head_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Classifier> classifier_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_MODERNBERT_MODERNBERT_H_
