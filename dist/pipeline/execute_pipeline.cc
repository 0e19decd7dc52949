// SPDX-License-Identifier: Apache-2.0
#include "dist/pipeline/execute_pipeline.h"

#include <utility>

#include "base/error.h"
#include "ops/elementwise/elementwise.h"

namespace tessera::dist {

Chunk SequenceOf(std::vector<PipelineBlock> blocks) {
  Chunk chunk;
  std::vector<models::BlockKeys> keys;
  for (const PipelineBlock& block : blocks) {
    if (block.module != nullptr) chunk.modules.push_back(block.module);
    if (block.keys) keys.push_back(*block.keys);
  }
  if (keys.size() == blocks.size()) chunk.keys = models::InSequence(keys);
  chunk.run = [blocks = std::move(blocks)](const models::Bundle& in, const models::RunOptions&) {
    models::Bundle bundle = in;
    for (const PipelineBlock& block : blocks) bundle = block.run(bundle);
    return bundle;
  };
  return chunk;
}

PipelineOutput ExecutePipeline(const PipelineData& data, PipelineExecutor& executor,
                               const PipelineCriterion& criterion, optim::Optimizer* optimizer,
                               const ExecutePipelineOptions& options) {
  TESSERA_CHECK(options.micro_batches >= 1, "execute_pipeline", options.micro_batches,
                " micro-batches");
  std::vector<models::Bundle> batches;
  for (int m = 0; m < options.micro_batches; ++m) batches.push_back(data());
  StepOptions step;
  step.run_options = [&](int m) {
    models::RunOptions run;
    run.context = {.training = !options.forward_only,
                   .seed = options.seed,
                   .step = options.step,
                   .micro_batch = static_cast<uint64_t>(m)};
    return run;
  };
  step.scale_loss = [&](const Tensor& loss, int) {
    return Mul(loss, 1.0 / static_cast<double>(options.micro_batches));
  };
  step.criterion = criterion;
  step.keep_outputs = options.return_outputs;
  StepResult result =
      options.forward_only ? executor.Evaluate(batches, step) : executor.Run(batches, step);
  PipelineOutput output;
  for (const double loss : executor.ShareLosses(result.losses)) {
    output.loss += loss / static_cast<double>(options.micro_batches);
  }
  output.outputs = std::move(result.outputs);
  if (options.forward_only) return output;
  executor.stage().JoinTiedGradients();
  if (optimizer != nullptr) {
    optimizer->Step();
    executor.stage().ZeroGrad();
  }
  return output;
}

}  // namespace tessera::dist
