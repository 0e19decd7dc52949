// SPDX-License-Identifier: Apache-2.0
// GLM (Du et al. 2022, "GLM: General Language Model Pretraining with Autoregressive Blank
// Infilling"): a text with blanks, then what fills them, word by word.
//
//   tokens + positions + block positions -> dropout -> num_layers x [x + attn(norm(x));
//   x + mlp(norm(x))] -> norm -> head
//
// The head is the embedding of tokens. Parameter names are those of the Hub's folders
// (THUDM/glm-large-chinese, ...), which may carry a prefix `glm.`.
//
// Inputs: `input_ids` [B, T]; `position_ids` [B, 2, T], the place in the text (of what fills a
// blank: the blank's) and the place within the blank (0 in the text), or [B, T], the first alone
// (absent: 0, 1, ... and 0); `attention_mask` as models/glm/prefix_mask.h says; `labels` [B, T],
// aligned with the logits, -100 ignored. Outputs: `logits` [B, T, V], `last_hidden_state`, `loss`.
//
// As a cloze (models/glm/cloze.h), with `choice_ids` and `choice_indices` [B, N, L] and `labels`
// [B]: `logits` [B, N], the candidates' scores, `lm_logits` [B, T, V] and `loss`, the cross-entropy
// of the scores.
//
// Blocks: 0 the embeddings, then the layers, then the head.
#ifndef TESSERA_MODELS_GLM_GLM_H_
#define TESSERA_MODELS_GLM_GLM_H_

#include <memory>
#include <vector>

#include "models/glm/config.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "nn/embedding.h"

namespace tessera::models {

class Glm : public Model {
 public:
  Glm(const GlmConfig& config, nlohmann::json json, const nn::BuildContext& build);
  ~Glm() override;

  int num_blocks() const override { return static_cast<int>(config_.num_layers) + 2; }
  BlockKeys keys_of_block(int block) const override;
  Bundle RunBlock(int block, Bundle in, const RunOptions& options) const override;
  const nlohmann::json& config() const override { return json_; }
  int64_t max_positions() const override { return config_.max_sequence_length; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t hidden_size() const override { return config_.hidden_size; }
  int num_cache_layers() const override { return static_cast<int>(config_.num_layers); }
  bool cuts_sequences() const override { return true; }
  Bundle CutSequences(Bundle rows, nn::ForwardContext* context) const override;
  std::shared_ptr<const TextFormat> text_format() const override { return text_format_; }
  const GlmConfig& fields() const { return config_; }

 private:
  class Stack;  // under `transformer`
  Bundle Embed(Bundle in, const RunOptions& options) const;
  Bundle RunHead(Bundle in, const RunOptions& options) const;
  Bundle ScoreChoices(const Tensor& h, const Bundle& in, const RunOptions& options) const;

  const GlmConfig config_;
  const nlohmann::json json_;
  const std::shared_ptr<const TextFormat> text_format_;
  std::unique_ptr<nn::VocabParallelEmbedding> word_embeddings_;
  std::unique_ptr<Stack> transformer_;
  std::unique_ptr<nn::VocabParallelHead> lm_head_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GLM_GLM_H_
