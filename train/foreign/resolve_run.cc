// SPDX-License-Identifier: Apache-2.0
#include "train/foreign/resolve_run.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/options.h"
#include "train/foreign/accelerate_config.h"
#include "train/foreign/deepspeed_config.h"
#include "train/foreign/dialect.h"
#include "train/foreign/meanings.h"
#include "train/foreign/run_keys.h"
#include "train/foreign/run_layer.h"
#include "train/foreign/yaml_file.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

StatusOr<Json> ReadKeys(const std::string& path) {
  if (path.ends_with(".py")) {
    return InvalidArgument(path,
                           ": is a Python file, which is not run; give its values as flags, or ",
                           "as JSON or YAML with the same names (docs/migration.md)");
  }
  if (path.ends_with(".toml")) {
    return InvalidArgument(path, ": is TOML, which is not read; give its values as flags, or as ",
                           "JSON or YAML with the names of docs/cli.md");
  }
  TESSERA_ASSIGN_OR_RETURN(Json json, ReadSettings(path));
  if (!json.is_object()) return InvalidArgument(path, ": a JSON object is needed");
  return json;
}

// `fsdp_config` may be the path of a file.
Status ReadFsdpFile(Json* keys) {
  if (!keys->is_object() || !keys->contains("fsdp_config")) return OkStatus();
  Json& settings = (*keys)["fsdp_config"];
  if (!settings.is_string()) return OkStatus();
  TESSERA_ASSIGN_OR_RETURN(settings, ReadKeys(settings.get<std::string>()));
  return OkStatus();
}

// What another system's file says of something that the run does not have (a section that is
// switched off, another optimizer than the flags') means nothing there either.
void DropWhatMeansNothing(const Json& flags, RunLayer* layer, RunConfig* config) {
  std::vector<std::pair<std::string, std::string>> dropped;
  for (const auto& [key, value] : layer->given.keys->items()) {
    if (flags.contains(key) || FindRunConfigKey(key) == nullptr) continue;
    const Status applies = config->Applies(key);
    if (!applies.ok()) dropped.emplace_back(key, Message(applies));
  }
  std::set<std::string> keys;
  for (const auto& [key, reason] : dropped) {
    config->Unset(key);
    keys.insert(key);
    layer->Judge(keys, KeyFate::kNoEffect, Concat("means nothing to this run: ", key, " ", reason));
  }
}

// A key of our own that means nothing to the run is refused.
void RefuseWhatMeansNothing(RunLayer* layer, const RunConfig& config) {
  for (const auto& [key, value] : layer->given.keys->items()) {
    const Option* option = FindRunConfigKey(key);
    if (option == nullptr || option->IsNeutral(config.Get(key))) continue;
    const Status applies = config.Applies(key);
    if (!applies.ok()) layer->Judge({key}, KeyFate::kRefused, Message(applies));
  }
}

StatusOr<RunLayer> AccelerateLayer(const std::string& path) {
  RunLayer layer = {path, {}};
  if (path.empty()) return layer;
  TESSERA_ASSIGN_OR_RETURN(const Json settings, ReadAccelerateSettings(path));
  AccelerateConfig config = JudgeAccelerate(settings, path);
  layer.given.keys = std::move(config.keys);
  layer.given.verdicts = std::move(config.verdicts);
  return layer;
}

// The ranks that see rows of their own.
int64_t DataRanks(int world_size, const RunConfig& config, int64_t cp) {
  return std::max<int64_t>(1, world_size / std::max<int64_t>(1, config.tp * config.pp * cp));
}

// DeepSpeed's file, or its content, that was named last.
StatusOr<RunLayer> DeepSpeedLayer(const Json& named, const RunConfig& config, int world_size,
                                  const RunBatch& batch) {
  RunLayer layer = {named.is_string() ? named.get<std::string>() : "deepspeed", {}};
  if (named.is_null()) return layer;
  Json json = named;
  if (named.is_string()) {
    TESSERA_ASSIGN_OR_RETURN(json, ReadKeys(layer.source));
  }
  int64_t cp = config.cp;
  const auto own = json.find("sequence_parallel_size");
  if (cp == 1 && own != json.end() && own->is_number_integer()) cp = own->get<int64_t>();
  layer.given = TranslateDeepSpeed(json, layer.source,
                                   static_cast<int>(DataRanks(world_size, config, cp)), batch);
  return layer;
}

// The file that was given last counts.
RunBatch BatchOf(const RunLayer& file, const RunLayer& accelerate, const RunLayer& flags) {
  const auto of_files = [&](const char* key) {
    const std::optional<int64_t> later = accelerate.Integer(key);
    return later ? later : file.Integer(key);
  };
  return {.flag_micro = flags.Integer("batch_size"),
          .flag_steps = flags.Integer("gradient_accumulation_steps"),
          .file_micro = of_files("batch_size"),
          .file_steps = of_files("gradient_accumulation_steps")};
}

// Colossal-AI cuts the batch of a step into micro-batches: their number counts, or else their size.
Status CutBatch(const std::vector<const RunLayer*>& layers, RunConfig* config) {
  std::optional<int64_t> count, size;
  for (const RunLayer* layer : layers) {
    if (const auto given = layer->Integer("num_microbatches")) count = given;
    if (const auto given = layer->Integer("microbatch_size")) size = given;
  }
  if (!count && !size) return OkStatus();
  const int64_t divisor = count.value_or(size.value_or(1));
  if (config->batch_size % divisor != 0) {
    return InvalidArgument(count ? "num_microbatches" : "microbatch_size", " is ", divisor,
                           ", which does not divide the batch of ", config->batch_size,
                           " rows (batch_size)");
  }
  const int64_t parts = count ? *count : config->batch_size / *size;
  config->batch_size /= parts;
  config->gradient_accumulation_steps *= parts;
  config->given.insert({"batch_size", "gradient_accumulation_steps"});
  return OkStatus();
}

// Megatron-LM says the rows of a step over all ranks.
Status SolveGlobalBatch(const std::vector<const RunLayer*>& layers, int world_size,
                        RunConfig* config) {
  std::optional<int64_t> rows;
  for (const RunLayer* layer : layers) {
    if (const auto given = layer->Integer("global_batch_size")) rows = given;
  }
  if (!rows) return OkStatus();
  const int64_t ranks = DataRanks(world_size, *config, config->cp);
  const int64_t at_once = config->batch_size * ranks;
  if (*rows % at_once != 0) {
    return InvalidArgument("global_batch_size is ", *rows, ", which is no multiple of ",
                           "micro_batch_size * ranks, ", config->batch_size, " * ", ranks);
  }
  const int64_t steps = *rows / at_once;
  if (config->IsSet("gradient_accumulation_steps") &&
      config->gradient_accumulation_steps != steps) {
    return InvalidArgument("global_batch_size is ", *rows, ", which is ", steps,
                           " micro-batches of micro_batch_size * ranks, ", config->batch_size,
                           " * ", ranks, ", but gradient_accumulation_steps is ",
                           config->gradient_accumulation_steps);
  }
  config->gradient_accumulation_steps = steps;
  config->given.insert("gradient_accumulation_steps");
  return OkStatus();
}

// Later layers win. One process needs nobody to start it.
RunLaunch LaunchOf(const std::vector<RunLayer*>& layers, const RunConfig& config) {
  RunLaunch launch;
  for (const RunLayer* layer : layers) {
    launch.num_nodes = layer->Integer("num_nodes").value_or(launch.num_nodes);
    launch.num_gpus = layer->Integer("num_gpus").value_or(launch.num_gpus);
    const Json& keys = layer->given.keys;
    launch.hostfile = keys.value("hostfile", launch.hostfile);
    launch.not_call_launch = keys.value("not_call_launch", launch.not_call_launch);
  }
  const bool is_single = config.env_type == "single";
  if (!is_single && launch.ranks() > 1) return launch;
  for (RunLayer* layer : layers) {
    for (const char* key : {"num_nodes", "num_gpus", "hostfile", "not_call_launch"}) {
      layer->Judge({key}, KeyFate::kNoEffect,
                   is_single ? "env_type is one process" : "one process trains");
    }
  }
  return {};
}

// Whose defaults hold: as `dialect` says, or the names that were used.
StatusOr<const Dialect*> ChooseDialect(const std::vector<const Json*>& given,
                                       const RunConfig& config) {
  if (config.IsSet("dialect")) return FindDialect(config.dialect);
  return DialectOf(given, config);
}

// "defaults: Hugging Face's", or, of a run in our own words, that other systems' names change none.
void NoteDialect(const Dialect* dialect, const std::vector<RunLayer*>& layers, ResolvedRun* run) {
  if (dialect != nullptr) {
    run->notes.push_back(Concat("defaults: ", dialect->system, "'s"));
    return;
  }
  if (run->config.IsSet("dialect")) return;
  std::map<std::string, std::string> names;  // by system
  for (const RunLayer* layer : layers) {
    for (const KeyVerdict& verdict : layer->given.verdicts) {
      const std::string system = SystemOf(verdict.key);
      if (system.empty() || verdict.fate != KeyFate::kTranslated) continue;
      std::string& list = names[system];
      list += (list.empty() ? "" : ", ") + verdict.key;
    }
  }
  for (const auto& [system, list] : names) {
    for (const Dialect& known : Dialects()) {
      if (known.system != system) continue;
      run->notes.push_back(Concat("defaults: Tessera's, beside ", system, "'s ", list,
                                  "; --dialect ", known.name, " takes ", system, "'s"));
    }
  }
}

// By which name a layer gave a key of the run.
std::string NameIn(const RunLayer& layer, const std::string& key) {
  for (const KeyVerdict& verdict : layer.given.verdicts) {
    const bool is = verdict.fate == KeyFate::kHonoured     ? verdict.key == key
                    : verdict.fate == KeyFate::kTranslated ? verdict.reason == key
                                                           : false;
    if (is) return verdict.key;
  }
  return "";
}

// Transformers' Trainer refuses a DeepSpeed file that contradicts its arguments: "ds.json:
// 'gradient_clipping' is 0.5, and 'max_grad_norm' of the flags is 1, which counts".
void NoteContradictions(const RunLayer& deepspeed, const std::vector<RunLayer*>& others,
                        const RunLayer& flags, ResolvedRun* run) {
  for (const auto& [key, value] : deepspeed.given.keys->items()) {
    const std::string theirs = NameIn(deepspeed, key);
    for (const RunLayer* layer : others) {
      const bool of_flags = layer == &flags;
      if (theirs.empty() || !layer->Has(key) || (*layer->given.keys)[key] == value) continue;
      if (!of_flags && flags.Has(key)) continue;  // they have the last word
      const std::string name = NameIn(*layer, key);
      if (name.empty()) continue;
      const std::string says = Concat("'", name, "' of ", of_flags ? "the flags" : layer->source,
                                      " is ", Printed((*layer->given.keys)[key]));
      const std::string ds = Concat(deepspeed.source, ": '", theirs, "' is ", Printed(value));
      run->notes.push_back(of_flags ? Concat(ds, ", and ", says, ", which counts")
                                    : Concat(ds, ", which counts, and ", says));
    }
  }
}

// DeepSpeed's half-precision parameters are what trains, also where the same is asked of autocast.
void PreferDeepSpeedsDType(const RunLayer& deepspeed, std::vector<RunLayer*> others,
                           RunConfig* config) {
  if (!deepspeed.given.keys->contains("dtype") || config->autocast.empty()) return;
  if (config->autocast != config->dtype) return;
  config->Unset("autocast");
  for (RunLayer* layer : others) {
    layer->Judge({"autocast"}, KeyFate::kNoEffect, "DeepSpeed's file has the precision");
    layer->given.keys->erase("autocast");
  }
}

// As the scripts of P-tuning v2 and ChatGLM have it.
void PreferPrefix(RunConfig* config) {
  if (!config->IsSet("pre_seq_len") || config->IsSet("adapter")) return;
  SetRunConfigKey(config, "adapter", "prefix", "adapter").IgnoreError();
}

}  // namespace

StatusOr<ResolvedRun> ResolveRun(const RunSources& sources) {
  Json config_keys = Json::object(), flag_keys = sources.flags;
  if (!sources.config.empty()) {
    TESSERA_ASSIGN_OR_RETURN(config_keys, ReadKeys(sources.config));
  }
  TESSERA_RETURN_IF_ERROR(ReadFsdpFile(&config_keys));
  TESSERA_RETURN_IF_ERROR(ReadFsdpFile(&flag_keys));
  RunLayer flags = {"flags", TranslateRunFlags(flag_keys)};
  std::vector<KeyVerdict> taken_back = TakeBack(flags.given, &config_keys);
  RunLayer file = {sources.config, TranslateRunKeys(config_keys, sources.config)};
  std::move(taken_back.begin(), taken_back.end(), std::back_inserter(file.given.verdicts));
  JoinBetas(file, &flags);
  TESSERA_ASSIGN_OR_RETURN(RunLayer accelerate, AccelerateLayer(sources.accelerate));

  ResolvedRun run;
  Json named;
  for (RunLayer* layer : {&file, &accelerate, &flags}) {
    layer->ApplyTo(&run.config);
    if (layer->given.keys->contains("deepspeed")) named = layer->given.keys["deepspeed"];
    if (layer->given.keys->contains("resume") && layer->given.keys["resume"].is_string()) {
      run.resume = layer->given.keys["resume"].get<std::string>();
    }
  }
  if (!sources.deepspeed.empty()) named = sources.deepspeed;
  run.launch = LaunchOf({&file, &flags}, run.config);
  const bool starts_ranks = sources.world_size == 1 && !run.launch.not_call_launch;
  const int world_size = starts_ranks ? static_cast<int>(run.launch.ranks()) : sources.world_size;
  TESSERA_ASSIGN_OR_RETURN(RunLayer deepspeed, DeepSpeedLayer(named, run.config, world_size,
                                                              BatchOf(file, accelerate, flags)));
  deepspeed.ApplyTo(&run.config);
  flags.ApplyTo(&run.config);
  TESSERA_ASSIGN_OR_RETURN(const Dialect* const dialect,
                           ChooseDialect({&config_keys, &flag_keys}, run.config));
  NoteDialect(dialect, {&file, &flags}, &run);
  if (dialect != nullptr && dialect->name == "hugging-face") {
    // The Trainer makes the schedule, and counts the steps.
    deepspeed.given.defaults->erase("lr_schedule");
    deepspeed.given.defaults->erase("max_steps");
  }
  if (dialect != nullptr && dialect->name == "flagai" && !named.is_null()) {
    // Its Trainer makes a schedule and a scaler of its own only without DeepSpeed.
    Json& defaults = *deepspeed.given.defaults;
    defaults["warmup_steps"] = 0;
    defaults["schedule_counting"] = "tessera";
    const bool scales = run.config.dtype == "float16" || run.config.autocast == "float16";
    if (scales) defaults["initial_scale"] = 65536;
  }
  for (const RunLayer* layer : {&flags, &deepspeed, &file}) {
    ApplyDefaults(layer->given.defaults, &run.config);
  }
  const RunLayers layers = {&file, &accelerate, &deepspeed, &flags};
  if (dialect != nullptr && dialect->name == "hugging-face") {
    NoteContradictions(deepspeed, {&file, &accelerate, &flags}, flags, &run);
  }
  FindMeanings(dialect, layers, !named.is_null(), &run.config);
  if (dialect != nullptr) ApplyDialect(*dialect, &run.config, &run.verdicts);
  for (const RunLayer* layer : {&flags, &file}) {
    TESSERA_RETURN_IF_ERROR(ApplySharesOfLr(layer->given.shares_of_lr, layer->source, &run.config));
  }
  TESSERA_RETURN_IF_ERROR(CutBatch({&file, &accelerate, &flags}, &run.config));
  TESSERA_RETURN_IF_ERROR(SolveGlobalBatch({&file, &flags}, world_size, &run.config));
  TESSERA_RETURN_IF_ERROR(CheckMeanings(dialect, layers, &run.config, &run.verdicts));
  PreferDeepSpeedsDType(deepspeed, {&file, &accelerate, &flags}, &run.config);
  PreferPrefix(&run.config);
  DropWhatMeansNothing(flags.given.keys, &deepspeed, &run.config);
  DropWhatMeansNothing(flags.given.keys, &accelerate, &run.config);
  RefuseWhatMeansNothing(&file, run.config);
  RefuseWhatMeansNothing(&flags, run.config);
  std::vector<KeyVerdict> verdicts;
  for (RunLayer* layer : {&file, &accelerate, &deepspeed, &flags}) {
    std::move(layer->given.verdicts.begin(), layer->given.verdicts.end(),
              std::back_inserter(verdicts));
  }
  // A dialect's defaults come behind what was given.
  std::move(run.verdicts.begin(), run.verdicts.end(), std::back_inserter(verdicts));
  run.verdicts = std::move(verdicts);
  return run;
}

}  // namespace tessera::train
