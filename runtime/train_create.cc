// SPDX-License-Identifier: Apache-2.0
// How a trainer is made: model, tokenizer, optimizer.
#include <cmath>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "base/nearest_name.h"
#include "core/execution_context.h"
#include "models/family.h"
#include "models/hub/adapter.h"
#include "models/hub/load_model.h"
#include "models/open/describe_model.h"
#include "models/open/model_folder.h"
#include "optim/optimizer_kind.h"
#include "runtime/border.h"
#include "runtime/family.h"
#include "runtime/handles.h"
#include "runtime/process.h"
#include "runtime/tensors.h"
#include "runtime/trainer.h"

namespace tessera::runtime {
namespace {

using nlohmann::json;

constexpr char kOptions[] = "tsr_train_options";
constexpr double kLearningRate = 3e-4;  // the command's

Status CheckNotNegative(double value, const char* name) {
  if (std::isfinite(value) && value >= 0) return OkStatus();
  return InvalidArgument(kOptions, ": ", name, " is ", value, "; it is >= 0");
}

Status CheckOptions(const tsr_train_options& options) {
  TESSERA_RETURN_IF_ERROR(CheckNotNegative(options.learning_rate, "learning_rate"));
  TESSERA_RETURN_IF_ERROR(CheckNotNegative(options.weight_decay, "weight_decay"));
  TESSERA_RETURN_IF_ERROR(CheckNotNegative(options.max_grad_norm, "max_grad_norm"));
  if (!(options.label_smoothing >= 0 && options.label_smoothing < 1)) {
    return InvalidArgument(kOptions, ": label_smoothing is ", options.label_smoothing,
                           "; it is in [0, 1)");
  }
  if (options.accumulation_steps < 0) {
    return InvalidArgument(kOptions, ": accumulation_steps is ", options.accumulation_steps,
                           "; it is >= 1, or 0 for 1");
  }
  if (options.threads < 0 || options.threads > kMostThreads) {
    return InvalidArgument(kOptions, ": threads is ", options.threads,
                           "; it is 0 (the process's) to ", kMostThreads);
  }
  if (options.memory_limit > static_cast<uint64_t>(INT64_MAX)) {
    return InvalidArgument(kOptions, ": memory_limit is ", options.memory_limit);
  }
  return CheckFlag(options.new_head, "tsr_train_options: new_head");
}

// An empty object where there is no text.
StatusOr<json> ObjectOf(const char* text, const std::string& source) {
  if (text == nullptr) return json(json::object());
  TESSERA_ASSIGN_OR_RETURN(json value, ParseJson(text, source, {.unique_keys = true}));
  if (!value.is_object()) return InvalidArgument(source, ": not a JSON object");
  return value;
}

StatusOr<std::shared_ptr<const optim::UpdateRule>> RuleOf(const tsr_train_options& options) {
  const char* const name = options.optimizer == nullptr ? "adamw" : options.optimizer;
  TESSERA_ASSIGN_OR_RETURN(const optim::OptimizerKind* const kind, optim::FindOptimizerKind(name));
  const std::string source = Concat(kOptions, ": optimizer_options");
  TESSERA_ASSIGN_OR_RETURN(const json given, ObjectOf(options.optimizer_options, source));
  return kind->Configure(given, source);
}

// Files of a folder that a model trained from it still needs.
Status KeepFiles(const std::string& folder, tsr_trainer* trainer) {
  constexpr char kPictures[] = "preprocessor_config.json";
  if (PathExists(JoinPath(folder, kPictures))) {
    TESSERA_ASSIGN_OR_RETURN(std::string text, ReadFile(JoinPath(folder, kPictures)));
    trainer->files.emplace_back(kPictures, std::move(text));
  }
  const std::string generation = JoinPath(folder, "generation_config.json");
  if (PathExists(generation)) {
    TESSERA_ASSIGN_OR_RETURN(trainer->generation_config, ReadJsonFile(generation));
  }
  return OkStatus();
}

// Begins the adapter that is asked for; `base` is what it names as its model.
Status AttachInto(tsr_trainer* trainer, const std::string& base, const char* adapter) {
  const std::string source = Concat(kOptions, ": adapter");
  TESSERA_ASSIGN_OR_RETURN(json keys, ObjectOf(adapter, source));
  if (!keys.contains("peft_type")) keys["peft_type"] = "LORA";
  TESSERA_ASSIGN_OR_RETURN(models::AdapterConfig config,
                           models::AdapterConfig::FromJson(keys, source));
  if (config.prefix) {
    return InvalidArgument(source, ": a prefix is for `tessera train`; here are LoRA, rsLoRA and ",
                           "DoRA");
  }
  // The file of an adapter may have keys of other programs; here each is asked for.
  std::vector<std::string> known;
  const nlohmann::ordered_json whole = config.ToJson(/*fan_in_fan_out=*/false);
  for (const auto& [key, value] : whole.items()) known.push_back(key);
  for (const auto& [key, value] : keys.items()) {
    if (whole.contains(key)) continue;
    return InvalidArgument(source, ": there is no '", key, "'", DidYouMean(key, known));
  }
  config.base_model_name_or_path = base;
  auto attached = models::AttachAdapter(*trainer->model, config);
  if (!attached.ok()) {
    return Failure(attached.status().code(), source, ": ", Message(attached.status()));
  }
  trainer->adapter = *std::move(attached);
  trainer->adapter_config = std::move(config);
  models::TrainOnly(*trainer->model, trainer->adapter);
  return OkStatus();
}

// A key that the configuration does not have may be one of the family's that its file leaves out:
// that is warned of, but what is written like a key that is there is a mistake.
Status CheckChanges(const json& changes, const json& config, const std::string& folder) {
  std::vector<std::string> known = {"architectures", "num_labels", "id2label", "label2id",
                                    "problem_type"};
  for (const auto& [key, value] : config.items()) known.push_back(key);
  for (const auto& [key, value] : changes.items()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::string line = Concat(kOptions, ": config_changes: the configuration of ", folder,
                                    " has no key '", key, "'");
    if (const std::string near = DidYouMean(key, known); !near.empty()) {
      return InvalidArgument(line, near);
    }
    LogWarning(line);
  }
  return OkStatus();
}

Status LoadInto(tsr_trainer* trainer, const std::string& model, const tsr_train_options& options) {
  TESSERA_ASSIGN_OR_RETURN(const std::string folder,
                           models::ModelFolderAt(model, &trainer->mounted));
  TESSERA_ASSIGN_OR_RETURN(models::DescribedModel described, models::DescribeModel(folder));
  TESSERA_RETURN_IF_ERROR(RefuseRegistered(described.config, "tsr_train_create", "do not train"));
  TESSERA_RETURN_IF_ERROR(
      described.FindTokenizer({.want = models::TokenizerChoice::Want::kIfThere,
                               .spec = options.tokenizer == nullptr ? "" : options.tokenizer}));
  TESSERA_ASSIGN_OR_RETURN(const json asked,
                           ObjectOf(options.config_changes, Concat(kOptions, ": config_changes")));
  TESSERA_RETURN_IF_ERROR(CheckChanges(asked, described.config, described.folder));
  described.Change(asked);
  trainer->tokenizer = std::move(described.tokenizer);
  models::LoadOptions load;
  TESSERA_ASSIGN_OR_RETURN(load.build.dtype, ComputeDType(options.dtype));
  load.build.seed = options.seed;
  load.config_changes = described.changes;
  load.ignore_mismatched_sizes = options.new_head != 0;
  load.warn = LogWarning;
  load.map_weights = options.adapter != nullptr;  // what does not train need not be copied
  TESSERA_ASSIGN_OR_RETURN(trainer->model, models::LoadModel(described.folder, load));
  TESSERA_RETURN_IF_ERROR(
      options.adapter == nullptr
          ? models::CheckWeightsTrain(*trainer->model, model, "tsr_train_options: adapter")
          : AttachInto(trainer, model, options.adapter));
  if (described.preset == nullptr) TESSERA_RETURN_IF_ERROR(KeepFiles(described.folder, trainer));
  for (const nn::Parameter* parameter : trainer->model->Parameters()) {
    if (parameter->tied_to == nullptr) trainer->parameters += parameter->tensor.numel();
  }
  trainer->config = trainer->model->config().dump(-1, ' ', false, json::error_handler_t::replace);
  return OkStatus();
}

Status MakeEngine(tsr_trainer* trainer, const tsr_train_options& options) {
  train::EngineOptions engine;
  TESSERA_ASSIGN_OR_RETURN(engine.rule, RuleOf(options));
  TESSERA_ASSIGN_OR_RETURN(engine.products, ComputeDType(options.products));
  engine.weight_decay = options.weight_decay;
  engine.max_grad_norm = options.max_grad_norm;
  engine.skip_non_finite = true;
  engine.store.frozen_in_checkpoints = !trainer->adapter_config;  // the model's file has the rest
  trainer->scales_loss =
      engine.products == DType::kFloat16 || trainer->model->build().dtype == DType::kFloat16;
  if (trainer->scales_loss) engine.loss_scaling = optim::GradScalerOptions();
  trainer->engine = std::make_unique<train::Engine>(*trainer->model, dist::Mesh(), engine);
  trainer->engine->Start();
  trainer->loop.emplace(
      trainer->engine.get(),
      train::StepLoopOptions{
          .micro_batches = options.accumulation_steps == 0 ? 1 : options.accumulation_steps,
          .seed = options.seed,
          .label_smoothing = options.label_smoothing});
  return OkStatus();
}

Status Create(const char* model, const tsr_train_options* given, tsr_trainer** out) {
  TESSERA_RETURN_IF_ERROR(CheckPath(model, "model"));
  TESSERA_RETURN_IF_ERROR(CheckGiven(out, "out"));
  TESSERA_ASSIGN_OR_RETURN(const tsr_train_options options, OptionsOf(given, kOptions));
  TESSERA_RETURN_IF_ERROR(CheckOptions(options));
  const Lent making(&options, HandleKind::kMaking);
  auto trainer = std::make_unique<tsr_trainer>();
  if (options.threads > 0) trainer->threads = std::make_unique<ThreadPool>(options.threads);
  if (options.memory_limit > 0) {
    trainer->memory = Allocator::MakeCpu("memory of the trainer");
    trainer->memory->SetLimit(static_cast<int64_t>(options.memory_limit));
  }
  trainer->learning_rate = options.learning_rate == 0 ? kLearningRate : options.learning_rate;
  ExecutionContext context;
  context.threads = trainer->threads.get();
  context.cpu_allocator = trainer->memory.get();
  const ExecutionScope scope(context);
  TESSERA_RETURN_IF_ERROR(LoadInto(trainer.get(), model, options));
  TESSERA_RETURN_IF_ERROR(MakeEngine(trainer.get(), options));
  AddHandle(trainer.get(), HandleKind::kTrainer, &trainer->cancelled);
  *out = trainer.release();
  return OkStatus();
}

}  // namespace
}  // namespace tessera::runtime

tsr_status* tsr_train_create(const char* model, const tsr_train_options* options,
                             tsr_trainer** out) {
  return tessera::runtime::AtBorder([&] { return tessera::runtime::Create(model, options, out); });
}
