// SPDX-License-Identifier: Apache-2.0
// GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners").
//
//   tokens + positions -> dropout -> n_layer x [x + attn(ln_1(x)); x + mlp(ln_2(x))] -> ln_f ->
//   head
//
// The head's weight is the token embedding (unless `tie_word_embeddings` is false). Residual
// projections begin with standard deviation initializer_range / sqrt(2 n_layer). Parameter names
// and layouts are Hugging Face's GPT2LMHeadModel. Blocks (models/model.h): 0 embedding, 1 ...
// n_layer the layers, n_layer + 1 the head.
#ifndef TESSERA_MODELS_GPT_GPT_H_
#define TESSERA_MODELS_GPT_GPT_H_

#include <memory>
#include <vector>

#include "models/gpt/config.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/norm.h"
#include "nn/transformer_block.h"

namespace tessera::models {

class Gpt : public Model {
 public:
  Gpt(const GptConfig& config, nlohmann::json json, const nn::BuildContext& build);
  ~Gpt() override;

  int num_blocks() const override { return static_cast<int>(config_.n_layer) + 2; }
  BlockKeys keys_of_block(int block) const override;
  Bundle RunBlock(int block, Bundle in, const RunOptions& options) const override;
  std::vector<HiddenState> HiddenStatesOf(int block) const override;
  const nlohmann::json& config() const override { return json_; }
  int64_t max_positions() const override { return config_.n_positions; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t hidden_size() const override { return config_.n_embd; }
  int num_cache_layers() const override { return static_cast<int>(config_.n_layer); }
  bool cuts_sequences() const override { return true; }
  Bundle CutSequences(Bundle rows, nn::ForwardContext* context) const override;

 private:
  // The part under `transformer.`; lm_head is beside it.
  class Transformer;
  Bundle Embed(Bundle in, const RunOptions& options) const;

  const GptConfig config_;
  const nlohmann::json json_;
  std::unique_ptr<Transformer> transformer_;
  std::unique_ptr<nn::VocabParallelHead> lm_head_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GPT_GPT_H_
