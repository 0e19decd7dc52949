// SPDX-License-Identifier: Apache-2.0
// A step run as it is, micro-batch by micro-batch.
#ifndef TESSERA_TRAIN_ENGINE_PLAIN_STEP_H_
#define TESSERA_TRAIN_ENGINE_PLAIN_STEP_H_

#include "train/engine/step_runner.h"

namespace tessera::train {

class PlainStep final : public StepRunner {
 public:
  explicit PlainStep(const StepWork& work) : work_(work) {}

  // Nothing is read from the device in between.
  StepOutputs Run(const StepInputs& inputs) override;
  std::vector<Tensor> RunPasses(const StepInputs& inputs) override;
  const char* WhyNotCaptured(int64_t micro_batches) const override;
  void Undo() override;

 private:
  StepOutputs RunMicroBatches(const StepInputs& inputs) const;
  void RunMicroBatch(const StepInputs& inputs, size_t m, StepOutputs* results) const;
  Tensor RunTrainingStep(const models::Bundle& batch, const models::RunOptions& options,
                         const Tensor& share) const;

  const StepWork work_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_ENGINE_PLAIN_STEP_H_
