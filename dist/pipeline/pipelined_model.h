// SPDX-License-Identifier: Apache-2.0
// The whole model as one rank of a pipeline sees it: evaluation and generation work unchanged.
//
//   PipelinedModel model(std::move(stage));
//   models::Generate(model, prompts, config);            // on every rank of the pp group
//   model.Run(batch, options).at(keys::kLoss);                // likewise, the same result
//   everywhere
//
// `Run` and `Encode` are collective over the pp group: every rank passes the same inputs, the
// blocks run stage by stage, and all outputs are broadcast from the last stage, so that every rank
// chooses the same next token. They never record a tape; training goes through the executor. A
// nn::KeyValueCache is each rank's own: it holds the layers of the rank's chunks. Parameters,
// StateDict, SetDropout and recomputation are those of this rank's chunks.
#ifndef TESSERA_DIST_PIPELINE_PIPELINED_MODEL_H_
#define TESSERA_DIST_PIPELINE_PIPELINED_MODEL_H_

#include <memory>
#include <utility>
#include <vector>

#include "dist/pipeline/bundle_channel.h"
#include "dist/pipeline/stage.h"
#include "models/model.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::dist {

class PipelinedModel : public models::Model, public models::EncoderDecoder {
 public:
  // The stage must have been built of models.
  explicit PipelinedModel(Stage stage);

  const Stage* stage() const override { return &stage_; }

  models::Bundle Run(const models::Bundle& inputs,
                     const models::RunOptions& options) const override;
  // Throws Error: blocks lie on several ranks.
  models::Bundle RunBlock(int block, models::Bundle in,
                          const models::RunOptions& options) const override;

  int num_blocks() const override { return first().num_blocks(); }
  models::BlockKeys keys_of_block(int block) const override { return first().keys_of_block(block); }
  const nlohmann::json& config() const override { return first().config(); }
  int64_t max_positions() const override { return first().max_positions(); }
  int64_t vocab_size() const override { return first().vocab_size(); }
  int64_t hidden_size() const override { return first().hidden_size(); }
  int num_cache_layers() const override { return first().num_cache_layers(); }
  int64_t length_kind(int64_t tokens) const override { return first().length_kind(tokens); }
  bool rereads_at_length_kind() const override { return first().rereads_at_length_kind(); }
  bool cuts_sequences() const override { return first().cuts_sequences(); }
  models::Bundle CutSequences(models::Bundle rows, nn::ForwardContext* context) const override {
    return first().CutSequences(std::move(rows), context);
  }
  models::PrefixSpan prefix(int adapter) const override { return first().prefix(adapter); }
  void set_prefix(int adapter, const models::PrefixSpan& span) override;
  std::shared_ptr<const models::TextFormat> text_format() const override {
    return first().text_format();
  }
  const models::EncoderDecoder* encoder_decoder() const override {
    return first().encoder_decoder() == nullptr ? nullptr : this;
  }
  int64_t decoder_start() const override { return first().encoder_decoder()->decoder_start(); }
  models::Bundle Encode(models::Bundle in, const models::RunOptions& options) const override;
  void set_checkpoint_activations(bool value) override;

 private:
  using Part = std::function<models::Bundle(const models::Model& chunk, const models::Bundle& in)>;
  models::Model& first() const { return *stage_.models().front(); }
  models::Bundle RunStages(const models::Bundle& inputs, const Part& part) const;

  Stage stage_;
  mutable BundleChannel channel_;  // messages of the pass that is under way
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_PIPELINE_PIPELINED_MODEL_H_
