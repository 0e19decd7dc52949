// SPDX-License-Identifier: Apache-2.0
#include "train/foreign/dialect.h"

#include <algorithm>

#include "base/options.h"
#include "train/foreign/run_keys.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

// Of Adam, whose decay rates are the same in all of these systems, and whose epsilon is ours.
std::vector<std::pair<std::string, Json>> WithAdam(
    const char* optimizer, const std::vector<std::pair<std::string, Json>>& rest) {
  std::vector<std::pair<std::string, Json>> defaults = {{"optimizer", optimizer},
                                                        {"betas", {0.9, 0.999}}};
  defaults.insert(defaults.end(), rest.begin(), rest.end());
  return defaults;
}

// What single dialects are known by. FlagAI's values of env_type are its own.
bool Speaks(const std::string& dialect, const Json& given) {
  const auto is_given = [&](const char* key) {
    return given.contains(key) && !IsLeftToRun(given.at(key));
  };
  if (dialect == "hugging-face") return is_given("output_dir");
  if (dialect == "colossal-ai") return is_given("BATCH_SIZE") && is_given("NUM_EPOCHS");
  if (dialect == "megatron") return is_given("micro_batch_size") && is_given("train_iters");
  if (dialect != "flagai" || !is_given("env_type")) return false;
  for (const char* type : {"pytorch", "pytorchDDP", "deepspeed", "deepspeed+mpu"}) {
    if (given.at("env_type") == type) return true;
  }
  return false;
}

}  // namespace

// The sources are those of each system: transformers' TrainingArguments; DeepSpeed's config-json
// page and its engine; Colossal-AI's HybridAdam, plugins and launch; FlagAI's EnvArgs, and the
// AnnealingLR that its EnvTrainer makes; Megatron-LM's arguments.py and its
// OptimizerParamScheduler. Its default split is 969, 30, 1, of which 31 of 1000 are held out.
const std::vector<Dialect>& Dialects() {
  static const auto* dialects =
      new std::vector<Dialect>{{"hugging-face", "Hugging Face",
                                WithAdam("adamw", {{"lr", 5e-5},
                                                   {"weight_decay", 0},
                                                   {"lr_schedule", "linear"},
                                                   {"schedule_offset", -1},
                                                   {"min_lr", 0},
                                                   {"max_grad_norm", 1},
                                                   {"epochs", 3},
                                                   {"batch_size", 8},
                                                   {"loss_average", "trainer"},
                                                   {"join_epochs", false},
                                                   {"seed", 42},
                                                   {"val_fraction", 0},
                                                   {"eval_strategy", "no"},
                                                   {"log_interval", 500},
                                                   {"save_interval", 500},
                                                   {"num_checkpoints", 0},
                                                   {"growth_interval", 2000},
                                                   {"hysteresis", 1}})},
                               {"deepspeed", "DeepSpeed",
                                WithAdam("adamw", {{"lr", 1e-3},
                                                   {"weight_decay", 0},
                                                   {"lr_schedule", "constant"},
                                                   {"max_grad_norm", 0},
                                                   {"batch_size", 1},
                                                   {"loss_average", "micro_batches"},
                                                   {"val_fraction", 0},
                                                   {"log_interval", 10}})},
                               {"colossal-ai", "Colossal-AI",
                                WithAdam("adamw", {{"lr", 1e-3},
                                                   {"weight_decay", 0},
                                                   {"lr_schedule", "constant"},
                                                   {"schedule_counting", "colossal-ai"},
                                                   {"min_lr", 0},
                                                   {"max_grad_norm", 0},
                                                   {"loss_average", "micro_batches"},
                                                   {"join_epochs", false},
                                                   {"seed", 1024},
                                                   {"val_fraction", 0}})},
                               {"flagai", "FlagAI",
                                WithAdam("adam", {{"lr", 1e-5},
                                                  {"weight_decay", 1e-5},
                                                  {"lr_schedule", "linear"},
                                                  {"schedule_counting", "flagai"},
                                                  {"warmup_steps", 0.1},
                                                  {"max_grad_norm", 1},
                                                  {"epochs", 1},
                                                  {"batch_size", 1},
                                                  {"loss_average", "micro_batches"},
                                                  {"join_epochs", false},
                                                  {"seed", 1234},
                                                  {"val_fraction", 0},
                                                  {"log_interval", 100},
                                                  {"eval_interval", 1000},
                                                  {"save_interval", 1000},
                                                  {"num_checkpoints", 0},
                                                  {"lora_alpha", 16},
                                                  {"lora_dropout", 0.05},
                                                  {"initial_scale", 4294967296.0}})},
                               {"megatron", "Megatron-LM",
                                WithAdam("adamw", {{"weight_decay", 0.01},
                                                   {"lr_schedule", "linear"},
                                                   {"schedule_offset", -1},
                                                   {"min_lr", 0},
                                                   {"max_grad_norm", 1},
                                                   {"loss_average", "micro_batches"},
                                                   {"seed", 1234},
                                                   {"val_fraction", 0.031},
                                                   {"log_interval", 100},
                                                   {"eval_interval", 1000},
                                                   {"eval_batches", 100},
                                                   {"num_checkpoints", 0},
                                                   {"initial_scale", 4294967296.0}})}};
  return *dialects;
}

const Dialect* FindDialect(const std::string& name) {
  const std::vector<Dialect>& all = Dialects();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Dialect& d) { return d.name == name; });
  return found == all.end() ? nullptr : &*found;
}

StatusOr<const Dialect*> DialectOf(const std::vector<const Json*>& given, const RunConfig& config) {
  const Dialect* spoken = nullptr;
  for (const Dialect& dialect : Dialects()) {
    const bool speaks = std::any_of(given.begin(), given.end(), [&](const Json* keys) {
      return keys->is_object() && Speaks(dialect.name, *keys);
    });
    if (!speaks) continue;
    if (spoken == nullptr) {
      spoken = &dialect;
      continue;
    }
    for (const auto& [key, value] : spoken->defaults) {
      if (config.IsSet(key)) continue;
      for (const auto& [other_key, other] : dialect.defaults) {
        if (other_key != key || other == value) continue;
        return InvalidArgument("both ", spoken->system, "'s and ", dialect.system,
                               "'s names are used, whose defaults of ", key, " differ (",
                               Printed(value), ", ", Printed(other), "); say --dialect ",
                               spoken->name, " or --dialect ", dialect.name);
      }
    }
  }
  return spoken;
}

void ApplyDialect(const Dialect& dialect, RunConfig* config, std::vector<KeyVerdict>* verdicts) {
  for (const auto& [key, value] : dialect.defaults) {
    Json wanted = value;
    // Adam's; other optimizers have values of their own.
    if (key == "betas" && config->optimizer != "adam" && config->optimizer != "adamw") {
      if (dialect.name != "megatron" || config->optimizer != "lion") continue;
      wanted = {0.95, 0.98};
    }
    if (config->IsSet(key) || !config->Applies(key).ok()) continue;
    if (key == "epochs" && config->max_steps) continue;
    // These are the defaults of PyTorch's scaler, which goes with autocast. Half-precision
    // parameters have DeepSpeed's.
    const bool scales = key == "growth_interval" || key == "hysteresis";
    if (scales && config->autocast != "float16") continue;
    const Json usual = FindRunConfigKey(key)->default_value();
    SetRunConfigKey(config, key, wanted, key).IgnoreError();
    config->given.erase(key);  // nobody gave it
    if (wanted != usual) {
      verdicts->push_back({key,
                           KeyFate::kDefault,
                           Concat(Printed(wanted), ", as ", dialect.system, " has it"),
                           {}});
    }
  }
  config->dialect = dialect.name;
  // What Megatron-LM calls adam decouples weight decay.
  if (dialect.name == "megatron" && config->optimizer == "adam") config->optimizer = "adamw";
}

std::string SystemOf(const std::string& name) {
  if (const Option* option = FindRunConfigKey(name)) {
    for (const OptionAlias& alias : option->notes.aliases) {
      if (alias.name == name) return alias.system;
    }
    return "";
  }
  for (const ForeignSystem* system : ForeignSystems()) {
    for (const ForeignKey& key : system->keys) {
      if (key.name == name) return system->name;
    }
  }
  return "";
}

}  // namespace tessera::train
