// SPDX-License-Identifier: Apache-2.0
#include "train/engine/step_runner.h"

#include "autograd/autocast.h"
#include "autograd/autograd.h"
#include "autograd/tape_watcher.h"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"

namespace tessera::train {

void EnterPass(const models::RunOptions& options, bool backward, int64_t chunk) {
  TapeWatcher* const watcher = TapeWatcher::Current();
  if (watcher == nullptr) return;
  watcher->Enter({.micro_batch = static_cast<int64_t>(options.context.micro_batch),
                  .backward = backward,
                  .chunk = chunk});
}

Tensor StepWork::ShareOf(const Tensor& loss, const Tensor& share) const {
  const Tensor part = Mul(loss, Cast(share, loss.dtype()));
  return scaler != nullptr ? scaler->ScaleLoss(part) : part;
}

// With neither clipping nor loss scaling nothing but the gradients goes into the update.
void StepWork::BeginGradients(int64_t micro_batches) const {
  const bool known = max_grad_norm == 0 && scaler == nullptr;
  store.BeginStep(micro_batches, known ? std::optional(optim::StepInputs{}) : std::nullopt);
}

models::Bundle StepWork::RunForward(const models::Bundle& batch,
                                    const models::RunOptions& options) const {
  const PhaseClock::Scope phase(&clock, Phase::kForward);
  const SavedTensorScope kept(activations);
  const AutocastScope autocast(products);
  const nn::RunningStatistics::Scope found(statistics);
  models::RunOptions own = options;
  return Forward(model, parts, model.ShareOfSequences(batch, &own), own);
}

void StepWork::RunBackward(const Tensor& loss, const Tensor& share) const {
  const PhaseClock::Scope phase(&clock, Phase::kBackward);
  Backward(ShareOf(loss, share));
}

optim::ClipResult StepWork::Clip() const {
  optim::ClipOptions clip;
  if (max_grad_norm > 0) clip.max_norm = max_grad_norm;
  if (scaler != nullptr) {
    clip.loss_scale = scaler->scale();
    clip.found_inf = scaler->found_inf();
  }
  return store.Clip(clip);
}

Tensor StepWork::UpdateParameters() const {
  {
    const PhaseClock::Scope phase(&clock, Phase::kReduce);
    store.FinishGradients();
  }
  const PhaseClock::Scope phase(&clock, Phase::kOptimizer);
  const optim::ClipResult clipped = Clip();
  store.Step(scaler != nullptr ? scaler->Inputs(clipped.factor)
                               : optim::StepInputs{.clip_factor = clipped.factor});
  if (statistics != nullptr) {
    statistics->Apply(data_parallel, scaler != nullptr ? scaler->found_inf() : Tensor());
  }
  if (scaler != nullptr) scaler->Update();
  return clipped.norm;
}

}  // namespace tessera::train
