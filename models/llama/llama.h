// SPDX-License-Identifier: Apache-2.0
// Llama 1, 2 and 3 (Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models";
// Grattafiori et al. 2024, "The Llama 3 Herd of Models"), Mistral (Jiang et al. 2023, "Mistral
// 7B"), Qwen2 (Yang et al. 2024, "Qwen2 Technical Report") and Qwen3 (Yang et al. 2025, "Qwen3
// Technical Report") and Gemma 3 (Gemma Team 2025, "Gemma 3 Technical Report"): one architecture,
// told apart by its configuration.
//
//   tokens -> num_hidden_layers x [x + attn(norm(x)); x + mlp(norm(x))] -> norm -> head
//
// Norms are RMS norms, mlp is down(silu(gate(h)) * up(h)), queries and keys are rotated by their
// positions, and key/value heads may be fewer than query heads. Gemma's embeddings are multiplied
// by sqrt(hidden_size), mlp is down(gelu(gate(h)) * up(h)), and what attn and mlp give is normed
// once more before it is added. The head's weight is the token embedding where
// `tie_word_embeddings` is set. Parameter names are those of transformers' LlamaForCausalLM and its
// like. Blocks: 0 the embedding, then the layers, then the head.
#ifndef TESSERA_MODELS_LLAMA_LLAMA_H_
#define TESSERA_MODELS_LLAMA_LLAMA_H_

#include <memory>
#include <vector>

#include "models/llama/config.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "nn/embedding.h"

namespace tessera::models {

class Llama : public Model {
 public:
  Llama(const LlamaConfig& config, nlohmann::json json, const nn::BuildContext& build);
  ~Llama() override;

  int num_blocks() const override { return static_cast<int>(config_.num_hidden_layers) + 2; }
  BlockKeys keys_of_block(int block) const override;
  Bundle RunBlock(int block, Bundle in, const RunOptions& options) const override;
  std::vector<HiddenState> HiddenStatesOf(int block) const override;
  const nlohmann::json& config() const override { return json_; }
  int64_t max_positions() const override { return config_.max_positions; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t hidden_size() const override { return config_.hidden_size; }
  int num_cache_layers() const override { return static_cast<int>(config_.num_hidden_layers); }
  bool cuts_sequences() const override { return true; }
  Bundle CutSequences(Bundle rows, nn::ForwardContext* context) const override;
  int64_t length_kind(int64_t tokens) const override {
    return nn::RotaryLengthKind(config_.rotary, tokens);
  }
  bool rereads_at_length_kind() const override { return config_.rereads_at_length_kind; }

 private:
  class Decoder;  // under `model`; lm_head is beside it
  Bundle Embed(Bundle in, const RunOptions& options) const;
  Bundle RunLayer(int layer, Bundle in, const RunOptions& options) const;

  const LlamaConfig config_;
  const nlohmann::json json_;
  std::unique_ptr<Decoder> model_;
  std::unique_ptr<nn::VocabParallelHead> lm_head_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_LLAMA_LLAMA_H_
