// SPDX-License-Identifier: Apache-2.0
#include "dist/pipeline/pipelined_model.h"

#include <string>
#include <utility>

#include "autograd/autograd.h"
#include "base/error.h"

namespace tessera::dist {
namespace {

const nn::BuildContext& ContextOf(const Stage& stage) {
  TESSERA_CHECK(!stage.models().empty(), "pipeline", "the stage was not built of models");
  return stage.models().front()->build();
}

// As a model of all blocks.
nn::BuildContext WholeContext(const Stage& stage) {
  nn::BuildContext whole = ContextOf(stage);
  whole.first_block = 0;
  whole.end_block = -1;
  whole.on_parameter = nullptr;
  whole.around_loading = nullptr;
  return whole;
}

}  // namespace

PipelinedModel::PipelinedModel(Stage stage)
    : Model(nn::Scope::Root(WholeContext(stage))),
      stage_(std::move(stage)),
      channel_(stage_.group(), stage_.device()) {
  for (const auto& model : stage_.models()) Adopt(*model);
  set_inputs(first().inputs());
}

models::Bundle PipelinedModel::RunBlock(int block, models::Bundle,
                                        const models::RunOptions&) const {
  throw Error("pipeline", Concat("block ", block, " cannot run by itself: blocks lie on ",
                                 stage_.stages(), " ranks"));
}

void PipelinedModel::set_prefix(int adapter, const models::PrefixSpan& span) {
  for (const auto& model : stage_.models()) model->set_prefix(adapter, span);
}

void PipelinedModel::set_checkpoint_activations(bool value) {
  Model::set_checkpoint_activations(value);
  for (const auto& model : stage_.models()) model->set_checkpoint_activations(value);
}

// One bundle through all chunks, then back to all ranks.
models::Bundle PipelinedModel::RunStages(const models::Bundle& inputs, const Part& part) const {
  const NoGrad no_grad;
  const int stages = stage_.stages();
  const int chunks = stages * static_cast<int>(stage_.models().size());
  models::Bundle bundle = inputs;
  for (int chunk = stage_.rank(); chunk < chunks; chunk += stages) {
    if (chunk > 0 && stages > 1) {
      const BundleChannel::Address from = {(chunk - 1) % stages, chunk, chunk};
      bundle = channel_.Receive(&inputs, from).bundle;
    }
    bundle = part(*stage_.models()[static_cast<size_t>(chunk / stages)], bundle);
    if (chunk + 1 < chunks && stages > 1) {
      channel_.Send(bundle, &inputs, {(chunk + 1) % stages, chunk + 1, chunk + 1});
    }
  }
  channel_.Flush();
  return channel_.Broadcast(bundle, stages - 1);
}

models::Bundle PipelinedModel::Run(const models::Bundle& inputs,
                                   const models::RunOptions& options) const {
  return RunStages(inputs, [&](const models::Model& chunk, const models::Bundle& in) {
    return chunk.Run(in, options);
  });
}

models::Bundle PipelinedModel::Encode(models::Bundle in, const models::RunOptions& options) const {
  return RunStages(in, [&](const models::Model& chunk, const models::Bundle& bundle) {
    return chunk.encoder_decoder()->Encode(bundle, options);
  });
}

}  // namespace tessera::dist
