// SPDX-License-Identifier: Apache-2.0
// Steps of a trainer, and what it keeps on disk.
#include <cmath>
#include <cstring>
#include <utility>

#include "autograd/autograd.h"
#include "core/execution_context.h"
#include "dist/checkpoint/checkpoint.h"
#include "models/hub/save_model.h"
#include "models/input_check.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "runtime/border.h"
#include "runtime/handles.h"
#include "runtime/tensors.h"
#include "runtime/trainer.h"

namespace tessera::runtime {
namespace {

using nlohmann::json;

using Uncancelled = ExecutionModeScope<&ExecutionContext::cancelled>;

// A call that a trainer runs: no other may, and it is not released meanwhile.
class TrainCall {
 public:
  static StatusOr<TrainCall> Begin(tsr_trainer* trainer) {
    TESSERA_ASSIGN_OR_RETURN(Pin pin, Pin::Alone(trainer, HandleKind::kTrainer));
    return TrainCall(*trainer, std::move(pin));
  }

 private:
  TrainCall(const tsr_trainer& trainer, Pin pin)
      : pin_(std::move(pin)), scope_(std::make_unique<ExecutionScope>(ContextOf(trainer))) {}

  static ExecutionContext ContextOf(const tsr_trainer& trainer) {
    ExecutionContext context;
    context.threads = trainer.threads.get();
    context.cpu_allocator = trainer.memory.get();
    context.cancelled = &trainer.cancelled;
    return context;
  }

  Pin pin_;
  std::unique_ptr<ExecutionScope> scope_;
};

Status CheckWhole(const tsr_trainer& trainer) {
  if (!trainer.half_updated) return OkStatus();
  return Failure(StatusCode::kFailedPrecondition,
                 "an update, or the loading of a checkpoint, was broken off: the parameters are of "
                 "two kinds until a checkpoint is loaded");
}

StatusOr<Bundle> BatchOf(const char* source, const tsr_trainer& trainer, const tsr_named_tensor* in,
                         size_t n) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Bundle::Entry> tensors, TensorsOf(source, in, n));
  return models::InputsFromNamed(source, *trainer.model, tensors);
}

Status NoLoss(const char* source) {
  return InvalidArgument(source, ": no 'labels' among the tensors, or a model that has no loss");
}

models::RunOptions OptionsOf(const tsr_trainer& trainer, bool training) {
  models::RunOptions options;
  options.keep_logits = false;
  options.label_smoothing = trainer.label_smoothing;
  options.context.training = training;
  if (!training) return options;
  options.context.seed = trainer.seed;
  options.context.step = trainer.updates + 1;
  options.context.micro_batch = static_cast<uint64_t>(trainer.accumulated);
  return options;
}

// Drops what there is of the update to come.
void Abandon(tsr_trainer* trainer) {
  const Uncancelled scope(nullptr);
  trainer->accumulated = 0;
  trainer->half_updated = true;
  trainer->engine->AbandonStep();
  trainer->half_updated = false;
}

StatusOr<double> RunBatch(const Bundle& batch, tsr_trainer* trainer) {
  train::Engine& engine = *trainer->engine;
  if (trainer->accumulated == 0) {
    engine.BeginStep(trainer->accumulation_steps, trainer->learning_rate);
  }
  const Bundle outputs =
      engine.RunForward(trainer->accumulated, batch, OptionsOf(*trainer, /*training=*/true));
  const Tensor* const loss = outputs.FindNamed(keys::kLoss.name());
  if (loss == nullptr || !loss->defined()) return NoLoss("tsr_train_step");
  engine.RunBackward(*loss, 1.0 / static_cast<double>(trainer->accumulation_steps));
  return loss->Detach().Item();
}

Status Update(tsr_trainer* trainer) {
  const Uncancelled scope(nullptr);
  trainer->half_updated = true;
  const train::StepResult done = trainer->engine->FinishStep();
  trainer->half_updated = false;
  trainer->accumulated = 0;
  trainer->grad_norm = done.grad_norm;
  ++trainer->updates;
  if (done.updated) return OkStatus();
  ++trainer->skipped;
  if (trainer->scales_loss) return OkStatus();
  return Failure(StatusCode::kAborted, "the gradients of update ", trainer->updates,
                 " are not finite; it was left out");
}

Status Step(tsr_trainer* trainer, const tsr_named_tensor* in, size_t n, double* loss) {
  TESSERA_ASSIGN_OR_RETURN(const TrainCall call, TrainCall::Begin(trainer));
  TESSERA_RETURN_IF_ERROR(CheckGiven(loss, "loss"));
  TESSERA_RETURN_IF_ERROR(CheckWhole(*trainer));
  TESSERA_ASSIGN_OR_RETURN(const Bundle batch, BatchOf("tsr_train_step", *trainer, in, n));
  try {
    const StatusOr<double> mean = RunBatch(batch, trainer);
    if (!mean.ok()) {
      Abandon(trainer);
      return mean.status();
    }
    *loss = *mean;
  } catch (...) {
    Abandon(trainer);
    throw;
  }
  ++trainer->accumulated;
  return trainer->accumulated < trainer->accumulation_steps ? OkStatus() : Update(trainer);
}

Status Evaluate(tsr_trainer* trainer, const tsr_named_tensor* in, size_t n, double* loss) {
  TESSERA_ASSIGN_OR_RETURN(const TrainCall call, TrainCall::Begin(trainer));
  TESSERA_RETURN_IF_ERROR(CheckGiven(loss, "loss"));
  TESSERA_RETURN_IF_ERROR(CheckWhole(*trainer));
  constexpr char kSource[] = "tsr_train_evaluate";
  TESSERA_ASSIGN_OR_RETURN(const Bundle batch, BatchOf(kSource, *trainer, in, n));
  const NoGrad no_grad;
  const Bundle outputs = trainer->engine->Forward(batch, OptionsOf(*trainer, /*training=*/false));
  const Tensor* const mean = outputs.FindNamed(keys::kLoss.name());
  if (mean == nullptr || !mean->defined()) return NoLoss(kSource);
  *loss = mean->Item();
  return OkStatus();
}

Status SetLearningRate(tsr_trainer* trainer, double learning_rate) {
  TESSERA_ASSIGN_OR_RETURN(const TrainCall call, TrainCall::Begin(trainer));
  if (!std::isfinite(learning_rate) || learning_rate < 0) {
    return InvalidArgument("learning_rate is ", learning_rate, "; it is >= 0");
  }
  trainer->learning_rate = learning_rate;
  return OkStatus();
}

Status DescribeTo(tsr_trainer* trainer, tsr_train_info* out) {
  TESSERA_ASSIGN_OR_RETURN(const TrainCall call, TrainCall::Begin(trainer));
  TESSERA_RETURN_IF_ERROR(CheckGiven(out, "info"));
  size_t size = 0;
  std::memcpy(&size, out, sizeof(size));
  if (size < sizeof(size) || size > sizeof(tsr_train_info)) {
    return InvalidArgument("tsr_train_info: size is ", size, "; set it to sizeof(tsr_train_info)");
  }
  const tsr_train_info info = {.size = size,
                               .updates = trainer->updates,
                               .skipped = trainer->skipped,
                               .accumulated = trainer->accumulated,
                               .learning_rate = trainer->learning_rate,
                               .grad_norm = trainer->grad_norm,
                               .parameters = trainer->parameters,
                               .config = trainer->config.c_str()};
  std::memcpy(out, &info, size);
  return OkStatus();
}

Status Save(tsr_trainer* trainer, const char* folder) {
  TESSERA_ASSIGN_OR_RETURN(const TrainCall call, TrainCall::Begin(trainer));
  TESSERA_RETURN_IF_ERROR(CheckGiven(folder, "folder"));
  TESSERA_RETURN_IF_ERROR(CheckWhole(*trainer));
  const NoGrad no_grad;
  return models::SaveModel(
      *trainer->model, folder, trainer->tokenizer.get(),
      {.generation_config = trainer->generation_config, .files = trainer->files});
}

Status SaveCheckpoint(tsr_trainer* trainer, const char* directory) {
  TESSERA_ASSIGN_OR_RETURN(const TrainCall call, TrainCall::Begin(trainer));
  TESSERA_RETURN_IF_ERROR(CheckGiven(directory, "directory"));
  TESSERA_RETURN_IF_ERROR(CheckWhole(*trainer));
  if (trainer->accumulated > 0) {
    return Failure(StatusCode::kFailedPrecondition, trainer->accumulated, " of ",
                   trainer->accumulation_steps, " batches of an update are done: a checkpoint is ",
                   "written between updates");
  }
  // Member by member: a list of them loses some where memory ends (GCC 12).
  json state;
  state["updates"] = trainer->updates;
  state["skipped"] = trainer->skipped;
  state["seed"] = trainer->seed;
  state["learning_rate"] = trainer->learning_rate;
  return dist::SaveCheckpoint(directory, static_cast<int64_t>(trainer->updates),
                              trainer->engine->Tensors(), state);
}

// What a checkpoint's index says under `key`.
template <typename T>
StatusOr<T> StateOf(const dist::Checkpoint& checkpoint, const char* key) {
  const json& state = checkpoint.trainer();
  const auto found = state.is_object() ? state.find(key) : state.end();
  const bool fits =
      state.is_object() && found != state.end() &&
      (std::is_floating_point_v<T> ? found->is_number() : found->is_number_unsigned());
  if (fits) return found->get<T>();
  return InvalidArgument(checkpoint.directory(), ": no checkpoint of tsr_train_save_checkpoint: '",
                         key, "' is missing");
}

Status LoadCheckpoint(tsr_trainer* trainer, const char* directory) {
  TESSERA_ASSIGN_OR_RETURN(const TrainCall call, TrainCall::Begin(trainer));
  TESSERA_RETURN_IF_ERROR(CheckGiven(directory, "directory"));
  TESSERA_ASSIGN_OR_RETURN(const dist::Checkpoint checkpoint, dist::Checkpoint::Open(directory));
  TESSERA_ASSIGN_OR_RETURN(const auto updates, StateOf<uint64_t>(checkpoint, "updates"));
  TESSERA_ASSIGN_OR_RETURN(const auto skipped, StateOf<uint64_t>(checkpoint, "skipped"));
  TESSERA_ASSIGN_OR_RETURN(const auto seed, StateOf<uint64_t>(checkpoint, "seed"));
  TESSERA_ASSIGN_OR_RETURN(const auto rate, StateOf<double>(checkpoint, "learning_rate"));
  Abandon(trainer);
  const std::vector<dist::CheckpointTensor> tensors = trainer->engine->Tensors();
  trainer->half_updated = true;
  TESSERA_RETURN_IF_ERROR(checkpoint.Load(tensors));
  trainer->engine->Loaded();
  trainer->half_updated = false;
  trainer->updates = updates;
  trainer->skipped = skipped;
  trainer->seed = seed;
  trainer->learning_rate = rate;
  return OkStatus();
}

Status Release(tsr_trainer* trainer) {
  if (trainer == nullptr) return OkStatus();
  TESSERA_RETURN_IF_ERROR(RemoveHandle(trainer, HandleKind::kTrainer));
  delete trainer;
  return OkStatus();
}

}  // namespace
}  // namespace tessera::runtime

using tessera::runtime::AtBorder;

tsr_status* tsr_train_step(tsr_trainer* trainer, const tsr_named_tensor* in, size_t n,
                           double* loss) {
  return AtBorder([&] { return tessera::runtime::Step(trainer, in, n, loss); });
}

tsr_status* tsr_train_evaluate(tsr_trainer* trainer, const tsr_named_tensor* in, size_t n,
                               double* loss) {
  return AtBorder([&] { return tessera::runtime::Evaluate(trainer, in, n, loss); });
}

tsr_status* tsr_train_set_learning_rate(tsr_trainer* trainer, double learning_rate) {
  return AtBorder([&] { return tessera::runtime::SetLearningRate(trainer, learning_rate); });
}

tsr_status* tsr_train_cancel(tsr_trainer* trainer) {
  return AtBorder([&] {
    return tessera::runtime::CancelHandle(trainer, tessera::runtime::HandleKind::kTrainer);
  });
}

tsr_status* tsr_train_describe(tsr_trainer* trainer, tsr_train_info* info) {
  return AtBorder([&] { return tessera::runtime::DescribeTo(trainer, info); });
}

tsr_status* tsr_train_save(tsr_trainer* trainer, const char* folder) {
  return AtBorder([&] { return tessera::runtime::Save(trainer, folder); });
}

tsr_status* tsr_train_save_checkpoint(tsr_trainer* trainer, const char* directory) {
  return AtBorder([&] { return tessera::runtime::SaveCheckpoint(trainer, directory); });
}

tsr_status* tsr_train_load_checkpoint(tsr_trainer* trainer, const char* directory) {
  return AtBorder([&] { return tessera::runtime::LoadCheckpoint(trainer, directory); });
}

tsr_status* tsr_train_release(tsr_trainer* trainer) {
  return AtBorder([&] { return tessera::runtime::Release(trainer); });
}
