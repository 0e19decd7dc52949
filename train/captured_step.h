// A step's work on the GPU, recorded once as a CUDA graph and replayed: the host then launches one
// graph instead of thousands of kernels.
//
//   CapturedStep captured(device, &log);
//   const StepOutputs out = captured.Run(inputs, step, [&](const StepInputs& in) {...});
//   captured.Drop();                    // gives its memory back: before an evaluation, say
//
// The first steps run as they are, which makes whatever is made at first use. A step whose batches
// have the shapes of the one before is recorded, and replayed from then on for batches of these
// shapes; others run as they are, and give its memory back. What a model does must not depend on
// anything else that changes from step to step: whoever changes it (hooks, frozen parameters) drops
// the recorded step. Where the device refuses (a model that reads from the device,
// noise made on the host) this is said in one line, and steps run as they are from then on. The
// results are the same, bit for bit.
#ifndef TESSERA_TRAIN_CAPTURED_STEP_H_
#define TESSERA_TRAIN_CAPTURED_STEP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/device_graph.h"
#include "core/noise_key_table.h"
#include "core/tensor.h"
#include "models/model.h"
#include "train/run_log.h"

namespace tessera::train {

// What a step is given, beside the parameters and the learning rate: its micro-batches, wherever
// they are, and one over the number of targets (0-d float64, on the device).
struct StepInputs {
  std::vector<models::Bundle> batches;
  Tensor share;
};
// What the host reads afterwards: the loss of every micro-batch, and the norm of the gradients.
struct StepOutputs {
  std::vector<Tensor> losses;
  Tensor grad_norm;
};

class CapturedStep {
 public:
  using Work = std::function<StepOutputs(const StepInputs&)>;
  // Undoes what an interrupted `work` left behind.
  using Undo = std::function<void()>;

  CapturedStep(const Device& device, const RunLog* log);
  ~CapturedStep();
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  // `work` for step number `step`. The outputs hold until the next call.
  StepOutputs Run(const StepInputs& inputs, uint64_t step, const Work& work, const Undo& undo);
  void Drop();
  bool replays() const { return recorded_ != nullptr; }

 private:
  struct Recorded;
  bool Record(const StepInputs& inputs, const Work& work, const Undo& undo);

  const Device device_;
  const RunLog* const log_;
  bool given_up_ = false;
  bool told_ = false;
  int64_t failures_ = 0;  // for want of memory
  int64_t alike_ = 0;     // steps in a row with the shapes of `last_`
  std::string last_shapes_;
  std::unique_ptr<Recorded> recorded_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CAPTURED_STEP_H_
