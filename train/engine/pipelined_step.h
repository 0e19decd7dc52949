// SPDX-License-Identifier: Apache-2.0
// A step of a model in stages, run by the pipeline's executor. Collective over the stages.
#ifndef TESSERA_TRAIN_ENGINE_PIPELINED_STEP_H_
#define TESSERA_TRAIN_ENGINE_PIPELINED_STEP_H_

#include <map>
#include <string>
#include <vector>

#include "dist/pipeline/executor.h"
#include "train/engine/step_runner.h"

namespace tessera::train {

class PipelinedStep final : public StepRunner {
 public:
  // Throws Error for parts that a pipeline has no place for.
  PipelinedStep(const StepWork& work, const dist::Stage& stage,
                const dist::ExecutorOptions& options);

  // The losses are the last stage's, on every rank.
  StepOutputs Run(const StepInputs& inputs) override;
  std::vector<Tensor> RunPasses(const StepInputs& inputs) override;
  const char* WhyNotCaptured(int64_t) const override { return "a pipeline"; }
  void Undo() override { work_.store.AbandonStep(); }

 private:
  StepOutputs RunStages(const StepInputs& inputs);
  void ShareNumbers(const std::vector<double>& losses,
                    const std::vector<std::map<std::string, Tensor>>& auxiliaries,
                    int64_t micro_batches, StepOutputs* outputs);

  const StepWork work_;
  dist::PipelineExecutor executor_;
  std::vector<std::string> auxiliary_names_;  // the last stage's, on every rank
  double auxiliary_hash_ = 0;                 // of them
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_ENGINE_PIPELINED_STEP_H_
