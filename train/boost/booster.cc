// SPDX-License-Identifier: Apache-2.0
#include "train/boost/booster.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/view/view.h"
#include "train/foreign/run_keys.h"
#include "train/ranks/agreement.h"

namespace tessera::train {

struct ScheduleState {
  optim::Schedule schedule;
  int64_t steps = 0;
};

// --- The parts -----------------------------------------------------------------------------------

void BoostedOptimizer::Step() {
  TESSERA_CHECK(engine_->backward_passes() == engine_->micro_batches(), "optimizer", "Step after ",
                engine_->backward_passes(), " of ", engine_->micro_batches(), " backward passes");
  engine_->Step();
}

void BoostedOptimizer::ZeroGrad() {
  if (engine_->backward_passes() == 0) return;
  TESSERA_CHECK(!engine_->has_forward_pass(), "optimizer",
                "ZeroGrad between the passes of micro-batch ", engine_->backward_passes() + 1,
                " of ", engine_->micro_batches());
  engine_->AbandonStep();
}

void BoostedSchedule::Step() { ++state_->steps; }
double BoostedSchedule::learning_rate() const { return state_->schedule.At(state_->steps + 1); }
int64_t BoostedSchedule::steps() const { return state_->steps; }

// --- Boost ---------------------------------------------------------------------------------------

Booster::Booster(Plugin plugin, BoosterOptions options)
    : plugin_(std::move(plugin)), options_(std::move(options)) {}

// A pipeline's micro-batches are a step's; without stages they are ExecutePipeline's alone.
StatusOr<RunConfig> Booster::ConfigOf(const OptimizerChoice& optimizer) {
  RunConfig config;
  TESSERA_RETURN_IF_ERROR(plugin_.ApplyTo(&config));
  num_microbatches_ = config.accumulation_steps();
  if (config.pp == 1) config.Unset("gradient_accumulation_steps");
  TESSERA_RETURN_IF_ERROR(ApplyRunConfigJson(options_.run, "booster", &config));
  if (config.pp > 1) num_microbatches_ = config.accumulation_steps();
  nlohmann::json keys = optimizer.options;
  keys["optimizer"] = optimizer.name;
  keys["lr"] = optimizer.lr;
  keys["weight_decay"] = optimizer.weight_decay;
  TESSERA_RETURN_IF_ERROR(ApplyRunConfigJson(keys, "optimizer", &config));
  return config;
}

StatusOr<Boosted> Booster::Boost(const ModelSource& model, const OptimizerChoice& optimizer,
                                 const Criterion& criterion, const LoaderChoice& loader,
                                 const std::optional<optim::ScheduleConfig>& schedule) {
  TESSERA_ASSIGN_OR_RETURN(const RunConfig config, ConfigOf(optimizer));
  InitializeOptions options = {.world = options_.world, .device = options_.device};
  TESSERA_ASSIGN_OR_RETURN(
      optim::Schedule rates,
      optim::MakeSchedule(schedule.value_or(optim::ScheduleConfig{.lr = optimizer.lr})));
  const auto state = std::make_shared<ScheduleState>(ScheduleState{std::move(rates)});
  options.learning_rate = [state](int64_t) { return state->schedule.At(state->steps + 1); };
  // ExecutePipeline's passes are given theirs; a single pass leaves the loss to its caller.
  const auto given = std::make_shared<Criterion>();
  options.criterion = [given](const models::Bundle& outputs, const models::Bundle& batch) {
    return *given ? (*given)(outputs, batch) : outputs.get(keys::kLoss);
  };
  TESSERA_ASSIGN_OR_RETURN(auto made, Initialize(model, config, options));
  const std::shared_ptr<ConfiguredEngine> engine = std::move(made);
  mesh_ = engine->mesh();
  if (config.IsSet("batch_size")) microbatch_size_ = config.batch_size;
  std::unique_ptr<BatchLoader> batches;
  if (loader.dataset != nullptr) {
    const int64_t micro_batches = config.pp > 1 ? 1 : config.accumulation_steps();
    batches =
        std::make_unique<BatchLoader>(*loader.dataset,
                                      data::SamplerOptions{.num_samples = loader.dataset->size(),
                                                           .batch_size = loader.batch_size,
                                                           .micro_batches = micro_batches,
                                                           .seed = loader.seed,
                                                           .shuffle = loader.shuffle},
                                      mesh_, loader.first_step);
  }
  const Criterion loss =
      criterion != nullptr ? criterion : [](const models::Bundle& outputs, const models::Bundle&) {
        return outputs.at(keys::kLoss);
      };
  return Boosted{BoostedModel(engine, given), BoostedOptimizer(engine), loss, std::move(batches),
                 BoostedSchedule(state)};
}

// --- Training ------------------------------------------------------------------------------------

void Booster::Backward(const Tensor& loss, BoostedOptimizer& optimizer) const {
  ConfiguredEngine& engine = optimizer.engine();
  engine.Backward(loss);
  if (!engine.IsGradientAccumulationBoundary()) engine.Step();  // on to the next micro-batch
}

StatusOr<std::vector<models::Bundle>> Booster::Cut(const data::Batch& batch) const {
  int64_t rows = 0;
  for (const auto& [name, tensor] : batch.tensors.entries()) {
    if (!tensor.defined()) continue;
    const int64_t mine = tensor.ndim() == 0 ? 0 : tensor.size(0);
    if (rows == 0) rows = mine;
    if (mine == rows) continue;
    return InvalidArgument("execute_pipeline: '", name, "' has ", mine, " rows, others have ",
                           rows);
  }
  const int64_t size = microbatch_size_.value_or(std::max<int64_t>(1, rows / num_microbatches_));
  const bool fits = microbatch_size_ ? rows % size == 0 : size * num_microbatches_ == rows;
  if (rows == 0 || !fits) {
    return InvalidArgument("execute_pipeline: a batch of ", rows, " rows does not divide into ",
                           microbatch_size_ ? Concat("micro-batches of ", size, " rows")
                                            : Concat(num_microbatches_, " micro-batches"));
  }
  std::vector<models::Bundle> parts;
  for (int64_t begin = 0; begin < rows; begin += size) {
    models::Bundle& part = parts.emplace_back();
    for (const auto& [name, tensor] : batch.tensors.entries()) {
      if (tensor.defined()) part.SetNamed(name, Slice(tensor, 0, begin, size).ContiguousCopy());
    }
  }
  return parts;
}

StatusOr<dist::PipelineOutput> Booster::ExecutePipeline(
    const NextBatch& next, BoostedModel& model, const Criterion& criterion,
    BoostedOptimizer& optimizer, const ExecutePipelineReturns& returns) const {
  TESSERA_CHECK(&model.engine() == &optimizer.engine(), "execute_pipeline",
                "the optimizer is another model's");
  const StatusOr<data::Batch> batch = next();
  const StatusOr<std::vector<models::Bundle>> parts =
      batch.ok() ? Cut(*batch) : StatusOr<std::vector<models::Bundle>>(batch.status());
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, parts.status()));
  // For these passes alone.
  const std::unique_ptr<Criterion, void (*)(Criterion*)> given(
      model.pass_criterion_.get(), [](Criterion* slot) { *slot = nullptr; });
  *given = criterion;
  dist::PipelineOutput result;
  const std::vector<double> losses =
      model.engine().RunPasses(*parts, returns.outputs ? &result.outputs : nullptr);
  for (const double loss : losses) result.loss += loss / static_cast<double>(losses.size());
  return result;
}

// --- Files ---------------------------------------------------------------------------------------

Status Booster::SaveModel(BoostedModel& model, const std::string& folder,
                          const data::Tokenizer* tokenizer) const {
  return model.engine().SaveModel(folder, tokenizer);
}

Status Booster::LoadModel(BoostedModel& model, const std::string& folder) const {
  return model.engine().LoadModel(folder);
}

Status Booster::SaveOptimizer(BoostedOptimizer& optimizer, const std::string& directory) const {
  return optimizer.engine().SaveOptimizer(directory);
}

Status Booster::LoadOptimizer(BoostedOptimizer& optimizer, const std::string& directory) const {
  return optimizer.engine().LoadOptimizer(directory);
}

Status Booster::SaveLrScheduler(const BoostedSchedule& schedule, const std::string& path) const {
  const nlohmann::json state = {{"steps", schedule.steps()}};
  return Agree(mesh_, mesh_.world()->rank() == 0 ? WriteFileAtomically(path, state.dump() + "\n")
                                                 : OkStatus());
}

Status Booster::LoadLrScheduler(BoostedSchedule& schedule, const std::string& path) const {
  const auto read = [&]() -> StatusOr<int64_t> {
    TESSERA_ASSIGN_OR_RETURN(const auto state, ReadJsonFile(path));
    if (!state.is_object() || !state.contains("steps") || !state["steps"].is_number_unsigned()) {
      return InvalidArgument(path, ": no 'steps' of a schedule");
    }
    return state["steps"].get<int64_t>();
  };
  const StatusOr<int64_t> steps = read();
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, steps.status()));
  schedule.state_->steps = *steps;
  return OkStatus();
}

}  // namespace tessera::train
