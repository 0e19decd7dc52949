// SPDX-License-Identifier: Apache-2.0
// A step's work on the GPU, recorded once as a CUDA graph and replayed: the host then launches one
// graph instead of thousands of kernels.
//
//   CapturedStep captured(std::move(plain), device, &log);
//   const StepOutputs out = captured.Run(inputs);
//   captured.ReleaseMemory();           // before an evaluation, say
//
// The first steps run as they are, which makes whatever is made at first use. A step whose batches
// have the shapes of the one before is recorded, and replayed from then on for batches of these
// shapes; others run as they are, and give its memory back. What a model does must not depend on
// anything else that changes from step to step: whoever changes it (hooks, frozen parameters) drops
// the recorded step. Where the device refuses (a model that reads from the device,
// noise made on the host) this is said in one line, and steps run as they are from then on. The
// results are the same, bit for bit.
#ifndef TESSERA_TRAIN_ENGINE_CAPTURED_STEP_H_
#define TESSERA_TRAIN_ENGINE_CAPTURED_STEP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "core/device.h"
#include "train/engine/step_runner.h"

namespace tessera::train {

class CapturedStep final : public StepRunner {
 public:
  // `runner` is one of which steps can be captured.
  // `say` is given a line where steps begin to be captured, or it turns out that they cannot be.
  CapturedStep(std::unique_ptr<StepRunner> runner, const Device& device,
               std::function<void(const std::string&)> say);
  ~CapturedStep() override;

  StepOutputs Run(const StepInputs& inputs) override;
  std::vector<Tensor> RunPasses(const StepInputs& inputs) override {
    return runner_->RunPasses(inputs);
  }
  const char* WhyNotCaptured(int64_t micro_batches) const override {
    return runner_->WhyNotCaptured(micro_batches);
  }
  void Undo() override { runner_->Undo(); }
  void ReleaseMemory() override;
  bool replays() const { return recorded_ != nullptr; }

 private:
  struct Recorded;
  bool Record(const StepInputs& inputs);
  void GiveUp(const Error& error);

  const std::unique_ptr<StepRunner> runner_;
  const Device device_;
  const std::function<void(const std::string&)> say_;
  bool given_up_ = false;
  bool told_ = false;
  int64_t failures_ = 0;  // for want of memory
  int64_t alike_ = 0;     // steps in a row with the shapes of `last_`
  std::string last_shapes_;
  std::unique_ptr<Recorded> recorded_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_ENGINE_CAPTURED_STEP_H_
