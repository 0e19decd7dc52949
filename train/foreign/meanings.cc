// SPDX-License-Identifier: Apache-2.0
#include "train/foreign/meanings.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/options.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

bool Speaks(const Dialect* dialect, const char* name) {
  return dialect != nullptr && dialect->name == name;
}

// Takes away a key that a source gave by `name`. What other sources say of the key counts instead.
void Drop(const std::string& name, const std::string& key, const std::string& reason,
          RunLayer* layer, const RunLayers& layers, RunConfig* config) {
  layer->given.keys->erase(key);
  layer->JudgeName(name, KeyFate::kNoEffect, reason);
  config->Unset(key);
  for (const RunLayer* other : layers.all()) {
    if (other->Has(key)) {
      SetRunConfigKey(config, key, (*other->given.keys)[key], key).IgnoreError();
    }
  }
}

// Hugging Face and Megatron-LM give the values of `adam_*` to Adam (Hugging Face the betas to Lion,
// too), whatever dump of arguments they come with.
void KeepAdamsValues(const Dialect* dialect, const RunLayers& layers, RunConfig* config) {
  const bool is_lion = config->optimizer == "lion";
  const bool has_betas = is_lion && !Speaks(dialect, "megatron");
  if (!is_lion && config->optimizer != "adafactor" && config->optimizer != "sgd") return;
  for (RunLayer* layer : {layers.file, layers.flags}) {
    for (const auto& [name, key] :
         {std::pair{"adam_epsilon", "eps"}, {"adam_beta1", "betas"}, {"adam_beta2", "betas"}}) {
      if (has_betas && std::string(key) == "betas") continue;
      if (layer->Says(name)) Drop(name, key, "the optimizer is no Adam", layer, layers, config);
    }
  }
}

// Here `adam_eps` is an option of Muon, for the parameters that it leaves to Adam. In Megatron-LM
// it is Adam's epsilon.
void TakeMegatronsEps(const RunLayers& layers, RunConfig* config) {
  if (config->optimizer == "muon") return;
  const bool is_adam = config->optimizer == "adam" || config->optimizer == "adamw";
  for (RunLayer* layer : {layers.file, layers.flags}) {
    if (!layer->Says("adam_eps")) continue;
    const Json value = (*layer->given.keys)["adam_eps"];
    Drop("adam_eps", "adam_eps", "the optimizer is no Adam", layer, layers, config);
    if (!is_adam) continue;
    layer->given.keys["eps"] = value;
    layer->JudgeName("adam_eps", KeyFate::kTranslated, "eps");
    SetRunConfigKey(config, "eps", value, "adam_eps").IgnoreError();
  }
}

// Parameters themselves are in half precision, beside masters in float32, with Megatron-LM and
// FlagAI, and with DeepSpeed, whose file takes Hugging Face's switches and Accelerate's precision
// where it says none itself.
void TakeHalvesForParameters(const Dialect* dialect, const RunLayers& layers,
                             bool has_deepspeed_file, RunConfig* config) {
  bool halves = has_deepspeed_file || Speaks(dialect, "megatron") || Speaks(dialect, "flagai");
  for (const KeyVerdict& verdict : layers.accelerate->given.verdicts) {
    const bool of_section = verdict.key.starts_with("deepspeed_config.") ||
                            verdict.key.starts_with("megatron_lm_config.");
    halves = halves || (of_section && verdict.fate == KeyFate::kTranslated);
  }
  if (!halves || config->autocast.empty() || config->IsSet("dtype")) return;
  for (const RunLayer* layer : layers.all()) {
    if (layer->Says("autocast")) return;  // by our own name it means what it says
  }
  const std::string half = config->autocast;
  bool took = false;
  for (RunLayer* layer : {layers.file, layers.accelerate, layers.flags}) {
    for (const char* name : {"bf16", "fp16", "mixed_precision"}) {
      if (!layer->Says(name) || !layer->Has("autocast")) continue;
      layer->JudgeName(name, KeyFate::kTranslated, "dtype");
      layer->given.keys["dtype"] = (*layer->given.keys)["autocast"];
      layer->given.keys->erase("autocast");
      took = true;
    }
  }
  if (!took) return;
  config->Unset("autocast");
  SetRunConfigKey(config, "dtype", half, "dtype").IgnoreError();
}

// FlagAI counts the layers' inputs that DeepSpeed keeps for recomputation by this name, and keeps
// every checkpoint.
void TakeFlagAisCheckpoints(const RunLayers& layers, RunConfig* config) {
  for (RunLayer* layer : {layers.file, layers.flags}) {
    if (!layer->Says("num_checkpoints")) continue;
    Drop("num_checkpoints", "num_checkpoints",
         "FlagAI's counts what is kept for recomputation; every checkpoint stays", layer, layers,
         config);
  }
}

// FlagAI's Trainer makes the batches, counts them and logs, whatever DeepSpeed's file says of
// these. Flags have won already.
void TakeFlagAisSteps(const RunLayers& layers, RunConfig* config) {
  for (const char* key : {"batch_size", "gradient_accumulation_steps", "log_interval"}) {
    if (!layers.file->Has(key) || !layers.deepspeed->Has(key) || layers.flags->Has(key)) continue;
    SetRunConfigKey(config, key, (*layers.file->given.keys)[key], key).IgnoreError();
    layers.deepspeed->Judge({key}, KeyFate::kNoEffect, Concat("FlagAI's Trainer has the ", key));
  }
}

// Megatron-LM writes event files when it is given a folder for them.
void TakeMegatronsEventFiles(const RunLayers& layers, RunConfig* config) {
  if (config->IsSet("report_to")) return;
  for (RunLayer* layer : {layers.file, layers.flags}) {
    for (const KeyVerdict& verdict : layer->given.verdicts) {
      if (verdict.key != "tensorboard_dir" || verdict.reason == kLeftToRun) continue;
      layer->given.keys["report_to"] = Json::array({"tensorboard"});
      SetRunConfigKey(config, "report_to", Json::array({"tensorboard"}), "report_to").IgnoreError();
      return layer->JudgeName("tensorboard_dir", KeyFate::kTranslated, "report_to");
    }
  }
}

// The decay begins where the steps of a constant rate end, and the rate stays at its floor behind
// it.
Status SolveStableSteps(const RunLayers& layers, RunConfig* config) {
  for (const RunLayer* layer : {layers.flags, layers.file}) {
    const std::optional<int64_t> stable = layer->Integer("num_stable_steps");
    if (!stable) continue;
    if (config->lr_schedule != "warmup_stable_decay") return OkStatus();
    for (const auto& [key, steps] : {std::pair{"warmup_steps", config->warmup_steps},
                                     {"lr_decay_steps", config->lr_decay_steps}}) {
      if (steps == std::floor(steps)) continue;
      return InvalidArgument("lr_scheduler_kwargs has num_stable_steps, beside which ", key,
                             " must be a number of steps, not the share ", steps);
    }
    const double end = config->warmup_steps + static_cast<double>(*stable) + config->lr_decay_steps;
    return SetRunConfigKey(config, "schedule_steps", static_cast<int64_t>(end), "num_stable_steps");
  }
  return OkStatus();
}

// TrainingArguments evaluates every logging_steps where eval_steps is not given.
void EvaluateAsLogged(const RunLayers& layers, RunConfig* config,
                      std::vector<KeyVerdict>* verdicts) {
  if (config->eval_strategy != "steps" || config->IsSet("eval_interval")) return;
  if (!config->IsSet("eval_strategy")) return;
  if (layers.file->Says("do_eval") || layers.flags->Says("do_eval")) return;  // at the end
  const double interval = config->log_interval;
  SetRunConfigKey(config, "eval_interval", interval, "eval_interval").IgnoreError();
  config->given.erase("eval_interval");  // nobody gave it
  verdicts->push_back({"eval_interval",
                       KeyFate::kDefault,
                       Concat(Printed(interval), ", as log_interval: so Hugging Face has it"),
                       {}});
}

// What Megatron-LM's schedules are beside ours (its OptimizerParamScheduler).
Status CheckMegatronsSchedule(RunConfig* config) {
  const std::optional<int64_t> end =
      config->schedule_steps ? config->schedule_steps : config->max_steps;
  if (config->warmup_steps > 0 && config->warmup_steps < 1 && end) {
    // lr_warmup_fraction is one of the schedule's steps. Its warm-up may end within a step, ours at
    // the nearest one; any warm-up at all takes the first step at the least rate.
    const double steps = config->warmup_steps * static_cast<double>(*end);
    config->warmup_steps = std::max(1.0, std::round(steps));
  }
  if (config->lr_schedule == "inverse_sqrt") {
    if (config->warmup_steps == 0) {
      return InvalidArgument(
          "lr_decay_style is inverse-square-root, which without a warm-up falls ",
          "with the samples that were seen; give lr_warmup_iters");
    }
    if (config->schedule_steps) {
      return InvalidArgument("lr_decay_iters is ", *config->schedule_steps, ", where ",
                             "inverse-square-root would fall to min_lr; here it has no end");
    }
  }
  if (config->lr_schedule == "warmup_stable_decay" && !config->IsSet("lr_decay_type")) {
    return InvalidArgument(
        "lr_decay_style is WSD, which falls exponentially unless ",
        "lr_wsd_decay_style says more; that is not here: give linear, cosine or ", "minus_sqrt");
  }
  return OkStatus();
}

}  // namespace

std::vector<KeyVerdict> TakeBack(const Translation& flags, Json* file_keys) {
  std::vector<KeyVerdict> taken;
  for (const KeyVerdict& verdict : flags.verdicts) {
    if (verdict.fate != KeyFate::kNoEffect || verdict.reason != kHoldsAnyway) continue;
    if (!file_keys->is_object() || file_keys->erase(verdict.key) == 0) continue;
    taken.push_back({verdict.key, KeyFate::kNoEffect, "a flag takes it back", {}});
  }
  return taken;
}

void JoinBetas(const RunLayer& file, RunLayer* flags) {
  if (!file.Has("betas") || !flags->Has("betas")) return;
  const bool first = flags->Says("adam_beta1"), second = flags->Says("adam_beta2");
  if (first == second) return;  // both, or a pair
  const Json& before = (*file.given.keys)["betas"];
  const size_t other = first ? 1 : 0;
  if (before.is_array() && before.size() == 2) flags->given.keys["betas"][other] = before[other];
}

void FindMeanings(const Dialect* dialect, const RunLayers& layers, bool has_deepspeed_file,
                  RunConfig* config) {
  KeepAdamsValues(dialect, layers, config);
  TakeHalvesForParameters(dialect, layers, has_deepspeed_file, config);
  if (Speaks(dialect, "flagai")) {
    TakeFlagAisCheckpoints(layers, config);
    TakeFlagAisSteps(layers, config);
  }
  if (!Speaks(dialect, "megatron")) return;
  TakeMegatronsEps(layers, config);
  TakeMegatronsEventFiles(layers, config);
}

Status CheckMeanings(const Dialect* dialect, const RunLayers& layers, RunConfig* config,
                     std::vector<KeyVerdict>* verdicts) {
  for (const RunLayer* layer : layers.all()) {
    if (!layer->given.status().ok()) return OkStatus();  // says more of a key than its lack
  }
  TESSERA_RETURN_IF_ERROR(SolveStableSteps(layers, config));
  if (Speaks(dialect, "hugging-face")) EvaluateAsLogged(layers, config, verdicts);
  if (!Speaks(dialect, "megatron")) return OkStatus();
  // No batches of an evaluation are no evaluation.
  if (config->IsSet("eval_batches") && config->eval_batches == 0) {
    TESSERA_RETURN_IF_ERROR(SetRunConfigKey(config, "eval_strategy", "no", "eval_iters"));
  }
  return CheckMegatronsSchedule(config);
}

}  // namespace tessera::train
