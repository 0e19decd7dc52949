// SPDX-License-Identifier: Apache-2.0
#include "train/engine/step_loop.h"

#include "autograd/autograd.h"
#include "core/execution_context.h"

namespace tessera::train {
namespace {

constexpr char kEngine[] = "engine";

// What undoes or ends a step is not cancelled with it.
using Uncancelled = ExecutionModeScope<&ExecutionContext::cancelled>;

}  // namespace

StepLoop::StepLoop(Engine* engine, const StepLoopOptions& options)
    : engine_(*engine), options_(options), micro_batches_(options.micro_batches) {}

models::RunOptions StepLoop::OptionsOf(int64_t micro_batch, bool training, int64_t number) const {
  models::RunOptions options;
  options.context.training = training;
  options.label_smoothing = options_.label_smoothing;
  options.keep_logits = !training;
  if (!training) return options;
  options.context.seed = options_.seed;
  options.context.step = static_cast<uint64_t>(number);
  options.context.micro_batch = static_cast<uint64_t>(options_.rank * micro_batches_ + micro_batch);
  options.context.neftune_noise_alpha = options_.neftune_noise_alpha;
  options.class_weights = options_.class_weights;
  return options;
}

models::Bundle StepLoop::Forward(const models::Bundle& batch, double learning_rate,
                                 bool keep_logits) {
  TESSERA_CHECK(awaits_ == Awaits::kForward, kEngine, "the micro-batch before has had no ",
                awaits_ == Awaits::kBackward ? "Backward(loss)" : "Step()",
                "; AbandonStep() drops its step");
  return OrAbandon([&] {
    if (micro_batch_ == 0) engine_.BeginStep(micro_batches_, learning_rate);
    models::RunOptions options = OptionsOf(micro_batch_, /*training=*/true);
    options.keep_logits = keep_logits;
    models::Bundle outputs = engine_.RunForward(micro_batch_, batch, options);
    awaits_ = Awaits::kBackward;
    return outputs;
  });
}

void StepLoop::Backward(const Tensor& loss) {
  TESSERA_CHECK(awaits_ != Awaits::kForward, kEngine,
                "Backward without a forward pass: engine(batch) comes first");
  TESSERA_CHECK(awaits_ == Awaits::kBackward, kEngine,
                "Backward was called for this micro-batch already: Step() comes next");
  TESSERA_CHECK(loss.defined() && loss.numel() == 1 && RequiresGrad(loss), kEngine,
                "Backward needs a loss of one element that is on the tape");
  const auto count = static_cast<double>(micro_batches_ * options_.ranks);
  OrAbandon([&] { engine_.RunBackward(loss, 1.0 / count); });
  awaits_ = Awaits::kStep;
}

std::optional<StepResult> StepLoop::EndMicroBatch() {
  TESSERA_CHECK(awaits_ == Awaits::kStep, kEngine, "Step without ",
                awaits_ == Awaits::kForward ? "a forward and a backward pass: engine(batch) and "
                                              "Backward(loss) come first"
                                            : "a backward pass: Backward(loss) comes first");
  awaits_ = Awaits::kForward;
  if (!at_last_micro_batch()) {
    ++micro_batch_;
    return std::nullopt;
  }
  const Uncancelled scope(nullptr);
  broken_ = true;
  const StepResult done = OrAbandon([&] { return engine_.FinishStep(); });
  broken_ = false;
  micro_batch_ = 0;
  micro_batches_ = options_.micro_batches;
  return done;
}

std::vector<double> StepLoop::RunPasses(const std::vector<models::Bundle>& batches,
                                        double learning_rate,
                                        std::vector<models::Bundle>* outputs) {
  CheckBetweenSteps("RunPasses");
  TESSERA_CHECK(!batches.empty(), kEngine, "a step of no micro-batches");
  std::vector<double> losses = OrAbandon([&] {
    micro_batches_ = std::ssize(batches);
    engine_.BeginStep(micro_batches_, learning_rate);
    return engine_.RunPasses({.batches = batches,
                              .targets = static_cast<double>(micro_batches_ * options_.ranks),
                              .learning_rate = learning_rate,
                              .number = static_cast<uint64_t>(steps_ + 1),
                              .options =
                                  [&](int64_t m) {
                                    models::RunOptions options = OptionsOf(m, /*training=*/true);
                                    options.keep_logits = outputs != nullptr;
                                    return options;
                                  },
                              .outputs = outputs});
  });
  micro_batch_ = micro_batches_ - 1;
  awaits_ = Awaits::kStep;
  return losses;
}

void StepLoop::Abandon() {
  const Uncancelled scope(nullptr);
  awaits_ = Awaits::kForward;
  micro_batch_ = 0;
  micro_batches_ = options_.micro_batches;
  const bool was_broken = broken_;
  broken_ = true;
  engine_.AbandonStep();
  broken_ = was_broken;
}

EngineStep StepLoop::EngineStepOf(const std::vector<models::Bundle>& batches, const WholeStep& step,
                                  int64_t number) const {
  return {.batches = batches,
          .filled = step.filled,
          .targets = step.targets,
          .divisors = step.divisors,
          .learning_rate = step.learning_rate,
          .number = static_cast<uint64_t>(number),
          .options = [this, &step, number](int64_t m) {
            models::RunOptions options = OptionsOf(m, /*training=*/true, number);
            options.loss_reduction = step.reduction;
            if (!step.loss_targets.empty()) {
              options.loss_targets = step.loss_targets[static_cast<size_t>(m)];
            }
            return options;
          }};
}

StepResult StepLoop::Step(const std::vector<models::Bundle>& batches, const WholeStep& step) {
  return engine_.Step(EngineStepOf(batches, step, steps_ + 1));
}

std::optional<BadNumber> StepLoop::FindBadNumber(const std::vector<models::Bundle>& batches,
                                                 const WholeStep& step, Bundle* tensors) {
  return engine_.FindBadNumber(EngineStepOf(batches, step, steps_), tensors);
}

StepGradients StepLoop::Gradients(const std::vector<models::Bundle>& batches,
                                  const WholeStep& step) {
  return engine_.Gradients(EngineStepOf(batches, step, steps_ + 1));
}

void StepLoop::Count(const StepResult& done, bool counts) {
  applied_ = done.updated;
  grad_norm_ = done.grad_norm;
  if (!counts) return;
  ++steps_;
  skipped_ += done.updated ? 0 : 1;
}

void StepLoop::Restore(int64_t steps, int64_t skipped) {
  steps_ = steps;
  skipped_ = skipped;
  applied_ = false;
}

void StepLoop::CheckBetweenSteps(const char* what) const {
  TESSERA_CHECK(awaits_ == Awaits::kForward && micro_batch_ == 0, kEngine, what,
                " in the midst of a step, which is at micro-batch ", micro_batch_ + 1, " of ",
                micro_batches_, ": Step() or AbandonStep() ends it");
}

}  // namespace tessera::train
