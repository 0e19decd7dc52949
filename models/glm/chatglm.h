// SPDX-License-Identifier: Apache-2.0
// ChatGLM-6B (THUDM/chatglm-6b, the first version; an architecture of GLM-130B's: Zeng et al. 2023,
// "GLM-130B: An Open Bilingual Pre-trained Model").
//
//   tokens -> num_layers x [n = norm(x); x = norm(alpha n + attn(n)); x = alpha x + mlp(x)] -> norm
//   -> head,   alpha = sqrt(2 num_layers)
//
// Queries and keys are rotated by two coordinates, half of each head by either (ops/rotary). There
// is no dropout. The head has a weight of its own (`lm_head.weight`) unless `tie_word_embeddings`
// is set. Parameter names are the Hub's.
//
// Inputs: `input_ids` [B, T]: a prompt, [gMASK] or [MASK], <sop> (`bos_token_id`), an answer;
// `attention_mask` [B, T] (0 is padding, on either side), [B] (lengths of the prefix), or [B, 1, T,
// T] as the original takes it: there 1 hides a key and 0 shows it; `position_ids` [B, 2, T];
// `labels` [B, T] (shifted by the model, -100 ignored). What is absent is derived from the ids as
// the original does: what is before <sop> is a prefix whose tokens see one another; the first
// coordinate counts up to <sop> and stays at the place of [gMASK] (else [MASK]) from there on; the
// second is 0 before <sop>, then 1, 2, ... Padding takes no part in the counting. Outputs:
// `logits`, `last_hidden_state`, `loss`.
//
// Blocks: 0 the embedding, then the layers, then the head.
#ifndef TESSERA_MODELS_GLM_CHATGLM_H_
#define TESSERA_MODELS_GLM_CHATGLM_H_

#include <memory>
#include <vector>

#include "models/glm/config.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "nn/embedding.h"

namespace tessera::models {

class ChatGlm : public Model {
 public:
  ChatGlm(const ChatGlmConfig& config, nlohmann::json json, const nn::BuildContext& build);
  ~ChatGlm() override;

  int num_blocks() const override { return static_cast<int>(config_.num_layers) + 2; }
  BlockKeys keys_of_block(int block) const override;
  Bundle RunBlock(int block, Bundle in, const RunOptions& options) const override;
  std::vector<HiddenState> HiddenStatesOf(int block) const override;
  const nlohmann::json& config() const override { return json_; }
  int64_t max_positions() const override { return config_.max_sequence_length; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t hidden_size() const override { return config_.hidden_size; }
  int num_cache_layers() const override { return static_cast<int>(config_.num_layers); }
  bool cuts_sequences() const override { return true; }
  Bundle CutSequences(Bundle rows, nn::ForwardContext* context) const override;
  std::shared_ptr<const TextFormat> text_format() const override { return text_format_; }
  const ChatGlmConfig& fields() const { return config_; }

 private:
  class Transformer;  // under `transformer`
  Bundle Embed(Bundle in, const RunOptions& options) const;
  Bundle RunLayer(int layer, Bundle in, const RunOptions& options) const;
  Bundle RunHead(Bundle in, const RunOptions& options) const;

  const ChatGlmConfig config_;
  const nlohmann::json json_;
  const std::shared_ptr<const TextFormat> text_format_;
  std::unique_ptr<Transformer> transformer_;
  std::unique_ptr<nn::VocabParallelHead> lm_head_;
};

// Writes `position_ids` and `prefix_length` where the bundle lacks them. InvalidArgument, naming
// the row, for a text without <sop> or [gMASK]/[MASK] whose positions or mask are wanted.
Status DeriveFromIds(const ChatGlmConfig& config, Bundle* in);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GLM_CHATGLM_H_
