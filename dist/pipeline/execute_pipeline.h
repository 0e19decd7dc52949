// SPDX-License-Identifier: Apache-2.0
// One training step of a pipeline in one call, and pipelines of any modules.
//
//   // This rank's part of the sequence; every block takes and gives named tensors.
//   Chunk chunk = SequenceOf({{&embed, [&](const Bundle& in) { return Bundle{{"x", ...}}; }},
//                             {&mix, [&](const Bundle& in) { return Bundle{{"x", ...}, ...}; }}});
//   Stage stage({chunk}, pp);
//   PipelineExecutor executor(stage, {});
//   const auto criterion = [](const Bundle& outputs, const Bundle& inputs) {
//     return Mean(Square(Sub(outputs.at("y"), inputs.at("y"))));
//   };
//   PipelineOutput out =
//       ExecutePipeline(data, executor, criterion, &optimizer, {.micro_batches = 4});
//   out.loss;                        // the mean over the micro-batches, on every rank
//
// `data` is called once per micro-batch on every rank and returns the same bundles on all of them.
#ifndef TESSERA_DIST_PIPELINE_EXECUTE_PIPELINE_H_
#define TESSERA_DIST_PIPELINE_EXECUTE_PIPELINE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "dist/pipeline/executor.h"
#include "dist/pipeline/stage.h"
#include "models/model.h"
#include "optim/optimizer.h"

namespace tessera::dist {

struct PipelineBlock {
  nn::Module* module = nullptr;  // whose parameters train; nullptr: the block has none
  std::function<models::Bundle(const models::Bundle& in)> run;
  // What it takes and gives; absent: it is not checked whether its chunk gets what it needs.
  std::optional<models::BlockKeys> keys = std::nullopt;
};

// Blocks one after the other, with any number of tensors between them.
Chunk SequenceOf(std::vector<PipelineBlock> blocks);

using PipelineCriterion =
    std::function<Tensor(const models::Bundle& outputs, const models::Bundle& inputs)>;
using PipelineData = std::function<models::Bundle()>;

// How a step goes, and what of it comes back.
struct ExecutePipelineOptions {
  int micro_batches = 1;
  // Keys of random bits, for models (models::RunOptions).
  uint64_t seed = 0;
  uint64_t step = 0;
  bool return_outputs = false;
  bool forward_only = false;  // neither gradients nor an optimizer step
};

struct PipelineOutput {
  double loss = 0;                           // the criterion's mean over micro-batches
  std::vector<models::Bundle> outputs = {};  // of each micro-batch, on the last stage
};

// Runs all micro-batches through the pipeline, the criterion's gradients divided by their number;
// then joins tied weights, steps the optimizer and clears the gradients. Without an optimizer the
// gradients are left in the parameters.
// Collective over the pp group. Throws Error when the schedule does not fit `micro_batches`.
PipelineOutput ExecutePipeline(const PipelineData& data, PipelineExecutor& executor,
                               const PipelineCriterion& criterion, optim::Optimizer* optimizer,
                               const ExecutePipelineOptions& options);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_PIPELINE_EXECUTE_PIPELINE_H_
