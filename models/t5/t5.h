// SPDX-License-Identifier: Apache-2.0
// T5 (Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
// Transformer"), v1.0 and v1.1: an encoder and a decoder of pre-norm blocks.
//
//   encoder  tokens -> dropout -> num_layers x [x + attn(norm(x)); x + ff(norm(x))] -> norm,
//   dropout decoder  tokens -> dropout -> num_decoder_layers x [x + attn(norm(x)); x +
//   cross(norm(x), encoder);
//            x + ff(norm(x))] -> norm, dropout -> head
//
// Norms are RMS without bias, linear layers have no bias, scores are not scaled, and positions
// enter as a bias per head and distance (nn/relative_position.h) that the first layer of each side
// holds for all of its layers. In v1.0 the head is the shared embedding, and its input is scaled by
// d_model^-0.5; mT5 is v1.1 with another vocabulary. Parameter names are Hugging Face's
// T5ForConditionalGeneration.
//
// Inputs: `input_ids` [B, S], `attention_mask` [B, S]; `decoder_input_ids` [B, T] (absent: `labels`
// shifted right behind decoder_start_token_id, -100 as padding), `decoder_attention_mask` [B, T];
// `labels` [B, T], aligned with the logits, -100 ignored. Outputs: `logits`, `loss`,
// `encoder_last_hidden_state`; of all hidden states, the encoder's are `encoder_hidden_states.0`
// ..., the decoder's `hidden_states.0` ..., the last of each side behind its final norm.
//
// T5EncoderModel, the encoder alone, takes `input_ids` and `attention_mask` and gives
// `last_hidden_state`; its hidden states are `hidden_states.0` ... Its last block is the encoder's
// norm.
//
// Blocks: 0 the encoder's embedding, then its layers, then the bridge (the encoder's norm and the
// decoder's embedding), the decoder's layers, and the head. A bias is computed where a stage first
// needs it, not sent; the stages of a side hold replicas of its table.
#ifndef TESSERA_MODELS_T5_T5_H_
#define TESSERA_MODELS_T5_T5_H_

#include <memory>

#include "models/model.h"
#include "models/t5/config.h"
#include "nlohmann/json.hpp"
#include "nn/embedding.h"

namespace tessera::models {

class T5 : public Model, public EncoderDecoder {
 public:
  T5(const T5Config& config, nlohmann::json json, const nn::BuildContext& build);
  ~T5() override;

  int num_blocks() const override;
  BlockKeys keys_of_block(int block) const override;
  Bundle RunBlock(int block, Bundle in, const RunOptions& options) const override;
  std::vector<HiddenState> HiddenStatesOf(int block) const override;
  const nlohmann::json& config() const override { return json_; }
  int64_t max_positions() const override { return 0; }  // distances have no end
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t hidden_size() const override { return config_.d_model; }
  int num_cache_layers() const override {
    return config_.encoder_only ? 0 : static_cast<int>(config_.num_decoder_layers);
  }
  bool cuts_sequences() const override { return !config_.encoder_only; }
  Bundle CutSequences(Bundle rows, nn::ForwardContext* context) const override;
  Bundle Encode(Bundle in, const RunOptions& options) const override;
  int64_t decoder_start() const override { return config_.decoder_start_token_id; }
  const EncoderDecoder* encoder_decoder() const override {
    return config_.encoder_only ? nullptr : this;
  }

 private:
  class Stack;  // under `encoder` or `decoder`
  int bridge() const { return static_cast<int>(config_.num_layers) + 1; }
  int head() const { return num_blocks() - 1; }  // of the encoder alone, the bridge
  Bundle EmbedSource(Bundle in, const RunOptions& options) const;
  Tensor EncodedOf(const Bundle& in, const nn::ForwardContext& context) const;
  Bundle FinishEncoder(Bundle in, const RunOptions& options) const;
  Bundle EmbedTarget(Bundle in, const RunOptions& options) const;
  Bundle RunEncoderLayer(int layer, Bundle in, const RunOptions& options) const;
  Bundle RunDecoderLayer(int layer, Bundle in, const RunOptions& options) const;
  Bundle RunHead(Bundle in, const RunOptions& options) const;
  Tensor EmbedTokens(nn::VocabParallelEmbedding& table, const Tensor& ids,
                     const nn::ForwardContext& context) const;

  const T5Config config_;
  const nlohmann::json json_;
  // The encoder's tokens are looked up in `shared` itself, the decoder's and the head are tied to
  // it.
  std::unique_ptr<nn::VocabParallelEmbedding> shared_;
  std::unique_ptr<nn::VocabParallelEmbedding> decoder_tokens_;
  std::unique_ptr<Stack> encoder_;
  std::unique_ptr<Stack> decoder_;
  std::unique_ptr<nn::VocabParallelHead> lm_head_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_T5_T5_H_
