// SPDX-License-Identifier: Apache-2.0
// Steps of a trainer, and what it keeps on disk.
#include <cmath>
#include <cstring>
#include <optional>
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
  if (!trainer.loop->broken()) return OkStatus();
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

StatusOr<double> RunBatch(const Bundle& batch, tsr_trainer* trainer) {
  train::StepLoop& loop = *trainer->loop;
  const Bundle outputs = loop.Forward(batch, trainer->learning_rate);
  const Tensor* const loss = outputs.FindNamed(keys::kLoss.name());
  if (loss == nullptr || !loss->defined()) {
    loop.Abandon();
    return NoLoss("tsr_train_step");
  }
  loop.Backward(*loss);
  return loss->Detach().Item();
}

Status Step(tsr_trainer* trainer, const tsr_named_tensor* in, size_t n, double* loss) {
  TESSERA_ASSIGN_OR_RETURN(const TrainCall call, TrainCall::Begin(trainer));
  TESSERA_RETURN_IF_ERROR(CheckGiven(loss, "loss"));
  TESSERA_RETURN_IF_ERROR(CheckWhole(*trainer));
  TESSERA_ASSIGN_OR_RETURN(const Bundle batch, BatchOf("tsr_train_step", *trainer, in, n));
  train::StepLoop& loop = *trainer->loop;
  TESSERA_ASSIGN_OR_RETURN(const double mean,
                           loop.OrAbandon([&] { return RunBatch(batch, trainer); }));
  const std::optional<train::StepResult> done = loop.EndMicroBatch();
  if (done) loop.Count(*done);
  if (done && !done->updated && !trainer->scales_loss) {
    return Failure(StatusCode::kAborted, "the gradients of update ", loop.steps(),
                   " are not finite; it was left out");
  }
  *loss = mean;
  return OkStatus();
}

Status Evaluate(tsr_trainer* trainer, const tsr_named_tensor* in, size_t n, double* loss) {
  TESSERA_ASSIGN_OR_RETURN(const TrainCall call, TrainCall::Begin(trainer));
  TESSERA_RETURN_IF_ERROR(CheckGiven(loss, "loss"));
  TESSERA_RETURN_IF_ERROR(CheckWhole(*trainer));
  constexpr char kSource[] = "tsr_train_evaluate";
  TESSERA_ASSIGN_OR_RETURN(const Bundle batch, BatchOf(kSource, *trainer, in, n));
  const NoGrad no_grad;
  models::RunOptions options = trainer->loop->OptionsOf(0, /*training=*/false);
  options.keep_logits = false;
  const Bundle outputs = trainer->engine->Forward(batch, options);
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
                               .updates = static_cast<uint64_t>(trainer->loop->steps()),
                               .skipped = static_cast<uint64_t>(trainer->loop->skipped()),
                               .accumulated = trainer->loop->backward_passes(),
                               .learning_rate = trainer->learning_rate,
                               .grad_norm = trainer->loop->grad_norm(),
                               .parameters = trainer->parameters,
                               .config = trainer->config.c_str()};
  std::memcpy(out, &info, size);
  return OkStatus();
}

Status Save(tsr_trainer* trainer, const char* folder) {
  TESSERA_ASSIGN_OR_RETURN(const TrainCall call, TrainCall::Begin(trainer));
  TESSERA_RETURN_IF_ERROR(CheckPath(folder, "folder"));
  TESSERA_RETURN_IF_ERROR(CheckWhole(*trainer));
  const NoGrad no_grad;
  if (trainer->adapter_config) {
    return models::SaveAdapter(*trainer->model, *trainer->adapter_config, trainer->adapter, folder);
  }
  return models::SaveModel(
      *trainer->model, folder, trainer->tokenizer.get(),
      {.generation_config = trainer->generation_config, .files = trainer->files});
}

Status SaveCheckpoint(tsr_trainer* trainer, const char* directory) {
  TESSERA_ASSIGN_OR_RETURN(const TrainCall call, TrainCall::Begin(trainer));
  TESSERA_RETURN_IF_ERROR(CheckPath(directory, "directory"));
  TESSERA_RETURN_IF_ERROR(CheckWhole(*trainer));
  const train::StepLoop& loop = *trainer->loop;
  if (loop.backward_passes() > 0) {
    return Failure(StatusCode::kFailedPrecondition, loop.backward_passes(), " of ",
                   loop.micro_batches(), " batches of an update are done: a checkpoint is ",
                   "written between updates");
  }
  // Member by member: a list of them loses some where memory ends (GCC 12).
  json state;
  state["updates"] = static_cast<uint64_t>(loop.steps());
  state["skipped"] = static_cast<uint64_t>(loop.skipped());
  state["seed"] = trainer->loop->options().seed;
  state["learning_rate"] = trainer->learning_rate;
  return dist::SaveCheckpoint(directory, loop.steps(), trainer->engine->Tensors(), state);
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
  TESSERA_RETURN_IF_ERROR(CheckPath(directory, "directory"));
  TESSERA_ASSIGN_OR_RETURN(const dist::Checkpoint checkpoint, dist::Checkpoint::Open(directory));
  TESSERA_ASSIGN_OR_RETURN(const auto updates, StateOf<uint64_t>(checkpoint, "updates"));
  TESSERA_ASSIGN_OR_RETURN(const auto skipped, StateOf<uint64_t>(checkpoint, "skipped"));
  TESSERA_ASSIGN_OR_RETURN(const auto seed, StateOf<uint64_t>(checkpoint, "seed"));
  TESSERA_ASSIGN_OR_RETURN(const auto rate, StateOf<double>(checkpoint, "learning_rate"));
  train::StepLoop& loop = *trainer->loop;
  loop.Abandon();
  const std::vector<dist::CheckpointTensor> tensors = trainer->engine->Tensors();
  loop.set_broken(true);
  TESSERA_RETURN_IF_ERROR(checkpoint.Load(tensors));
  trainer->engine->Loaded();
  loop.set_broken(false);
  loop.Restore(static_cast<int64_t>(updates), static_cast<int64_t>(skipped));
  loop.options().seed = seed;
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
