// SPDX-License-Identifier: Apache-2.0
#include "train/foreign/run_keys.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/json_text.h"
#include "base/nearest_name.h"
#include "base/options.h"
#include "nlohmann/json.hpp"
#include "train/config/run_config.h"
#include "train/foreign/fsdp_keys.h"
#include "train/foreign/yaml_file.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

// --- Arguments that depend on each other ---------------------------------------------------------

// There each beta is a key of its own; one that is not given has the default there. What comes with
// an optimizer that was chosen is no more than a default.
void TranslateBetas(bool chosen, std::vector<double> usual, ForeignKeys& run) {
  const std::optional<double> first = run.Number("adam_beta1", 0);
  const std::optional<double> second = run.Number("adam_beta2", 0);
  if (!first && !second) {
    if (chosen && !run.keys().contains("betas")) run.defaults()["betas"] = usual;
    return;
  }
  if (run.keys().contains("betas")) {
    if (first) run.Fail("adam_beta1", "and 'betas' are one key (betas)");
    if (second) run.Fail("adam_beta2", "and 'betas' are one key (betas)");
    return;
  }
  run.Put("betas", Json{first.value_or(usual[0]), second.value_or(usual[1])});
}

void PutUnlessGiven(const std::string& key, const Json& value, ForeignKeys& run) {
  if (!run.keys().contains(key)) run.Put(key, value);
}

// Where Hugging Face's optimizer has other defaults than ours, they come with its name.
void TranslateOptim(ForeignKeys& run) {
  static const auto* adamw =
      new std::set<std::string>{"adamw_torch",      "adamw_torch_fused", "adamw_hf",
                                "adamw_apex_fused", "adamw_torch_xla",   "adamw_torch_npu_fused"};
  const std::optional<std::string> name = run.String("optim");
  if (!name) return TranslateBetas(false, {0.9, 0.999}, run);
  if (adamw->count(*name) > 0) {
    run.Put("optimizer", Json("adamw"));
    return TranslateBetas(true, {0.9, 0.999}, run);
  }
  run.Ignore("adam_epsilon", "the optimizer is no Adam");
  if (*name == "lion_32bit") {
    run.Put("optimizer", Json("lion"));
    return TranslateBetas(true, {0.9, 0.999}, run);
  }
  run.Ignore("adam_beta1", "the optimizer is no Adam");
  run.Ignore("adam_beta2", "the optimizer is no Adam");
  if (*name == "adafactor") {
    run.Put("optimizer", Json("adafactor"));
    PutUnlessGiven("scale_parameter", false, run);
  } else if (*name == "sgd") {
    run.Put("optimizer", Json("sgd"));
    PutUnlessGiven("momentum", 0.0, run);
  } else {
    run.Fail("optim", Concat("is '", *name, "', which is not here; use adamw_torch, ",
                             "adamw_torch_fused, adafactor, lion_32bit or sgd"));
  }
}

// What lr_scheduler_kwargs mean to a schedule of Hugging Face's, by their keys; "": a share of lr.
// num_stable_steps waits for the warm-up, which another source may give (meanings.h).
using KwargNames = std::map<std::string, std::string>;
const KwargNames& KwargsOf(const std::string& type) {
  static const auto* kwargs = new std::map<std::string, KwargNames>{
      {"cosine", {{"num_cycles", "lr_cycles"}}},
      {"cosine_with_restarts", {{"num_cycles", "lr_cycles"}}},
      {"polynomial", {{"lr_end", "min_lr"}, {"power", "lr_power"}}},
      {"cosine_with_min_lr",
       {{"num_cycles", "lr_cycles"}, {"min_lr", "min_lr"}, {"min_lr_rate", ""}}},
      {"cosine_warmup_with_min_lr",
       {{"num_cycles", "lr_cycles"}, {"min_lr", "min_lr"}, {"min_lr_rate", ""}}},
      {"warmup_stable_decay",
       {{"num_decay_steps", "lr_decay_steps"},
        {"num_stable_steps", "num_stable_steps"},
        {"warmup_type", "warmup_type"},
        {"decay_type", "lr_decay_type"},
        {"min_lr_ratio", ""},
        {"num_cycles", "lr_cycles"}}}};
  static const auto* none = new KwargNames;
  const auto found = kwargs->find(type);
  return found == kwargs->end() ? *none : found->second;
}

void TranslateScheduleKwargs(const std::string& type, const Json& kwargs, ForeignKeys& run) {
  if (type == "constant" || type == "constant_with_warmup" || type == "inverse_sqrt") {
    return run.Ignore("lr_scheduler_kwargs", Concat("transformers passes none to ", type));
  }
  const KwargNames& known = KwargsOf(type);
  if (!kwargs.is_object()) return run.Fail("lr_scheduler_kwargs", "must be an object");
  for (const auto& [key, value] : kwargs.items()) {
    const auto found = known.find(key);
    if (key == "warmup_lr_rate") {
      return run.Fail("lr_scheduler_kwargs", Concat("has '", key, "', which is not here"));
    }
    if (found == known.end()) {
      return run.Fail("lr_scheduler_kwargs", Concat("has '", key, "', which ", type, " does not"));
    }
    if (value.is_null()) continue;
    const bool counts = value.is_number_integer() && value.get<int64_t>() >= 0;
    if (key == "num_stable_steps" && !counts) {
      return run.Fail("lr_scheduler_kwargs", Concat("must have a number of steps as ", key));
    }
    if (found->second.empty()) {
      if (!value.is_number()) {
        return run.Fail("lr_scheduler_kwargs", Concat("must have a number as ", key));
      }
      run.shares_of_lr()["min_lr"] = value;
      // The warm-up of this one begins there, too.
      if (key == "min_lr_ratio") run.shares_of_lr()["warmup_min_lr"] = value;
    } else if (found->second == "min_lr") {
      PutUnlessGiven("min_lr", value, run);
    } else {
      run.Put(found->second, value);
    }
  }
  const bool has_floor = kwargs.contains("min_lr") || kwargs.contains("min_lr_rate");
  if (type.find("_with_min_lr") != std::string::npos && !has_floor) {
    run.Fail("lr_scheduler_kwargs", Concat("must have min_lr or min_lr_rate beside ", type));
  }
  if (type == "warmup_stable_decay" && !kwargs.contains("decay_type")) {
    run.Put("lr_decay_type", Json("cosine"));
  }
  if (type == "warmup_stable_decay" && !kwargs.contains("num_decay_steps")) {
    run.Fail("lr_scheduler_kwargs", Concat("must have num_decay_steps beside ", type));
  }
}

// Hugging Face's schedules end at 0, and their first step is step 0.
void TranslateSchedule(ForeignKeys& run) {
  static const auto* ours =
      new std::map<std::string, std::string>{{"linear", "linear"},
                                             {"cosine", "cosine"},
                                             {"cosine_with_restarts", "cosine_with_restarts"},
                                             {"polynomial", "polynomial"},
                                             {"constant", "constant"},
                                             {"constant_with_warmup", "constant"},
                                             {"inverse_sqrt", "inverse_sqrt"},
                                             {"cosine_with_min_lr", "cosine"},
                                             {"cosine_warmup_with_min_lr", "cosine"},
                                             {"warmup_stable_decay", "warmup_stable_decay"}};
  const std::optional<std::string> type = run.String("lr_scheduler_type");
  const Json* kwargs = run.Find("lr_scheduler_kwargs");
  if (!type) {
    if (kwargs == nullptr) return;
    if (kwargs->empty()) return run.Ignore("lr_scheduler_kwargs", "has no keys");
    return run.Fail("lr_scheduler_kwargs", "belongs to an lr_scheduler_type");
  }
  const auto found = ours->find(*type);
  if (found == ours->end()) {
    std::vector<std::string> names;
    for (const auto& [theirs, mine] : *ours) names.push_back(theirs);
    return run.Fail("lr_scheduler_type",
                    Concat("is '", *type, "', which is not here; use ", OneOf(names)));
  }
  run.Put("lr_schedule", Json(found->second));
  // That one counts as we do: the first step is step 1.
  run.Put("schedule_offset", Json(*type == "cosine_warmup_with_min_lr" ? 0 : -1));
  if (*type == "constant") {
    for (const char* key : {"warmup_steps", "warmup_ratio"}) {
      run.Ignore(key, "lr_scheduler_type constant has no warm-up (constant_with_warmup has)");
    }
    run.Put("warmup_steps", Json(0));  // whatever a file says
  }
  if (kwargs != nullptr && kwargs->empty()) {
    run.Ignore("lr_scheduler_kwargs", "has no keys");
    kwargs = nullptr;
  }
  const bool needs_kwargs =
      type->find("_with_min_lr") != std::string::npos || *type == "warmup_stable_decay";
  if (kwargs != nullptr || needs_kwargs) {
    TranslateScheduleKwargs(*type, kwargs == nullptr ? Json::object() : *kwargs, run);
  }
  if (found->second != "constant" && !run.shares_of_lr().contains("min_lr")) {
    run.defaults()["min_lr"] = *type == "polynomial" ? 1e-7 : 0.0;
  }
}

// The batch of a step is cut into micro-batches (ResolveRun and the booster do it, who know the
// batch).
void TranslateMicroBatches(ForeignKeys& run) {
  for (const char* key : {"num_microbatches", "microbatch_size"}) {
    if (const std::optional<int64_t> value = run.Integer(key, 1)) run.Put(key, Json(*value));
  }
}

// Colossal-AI's configuration files: a `zero` shards all, or what its `level` says, in half
// precision.
void TranslateColossalSections(ForeignKeys& run) {
  const std::optional<int64_t> level = run.Integer("zero.level", 1);
  if (run.Find("zero") != nullptr || level) {
    run.Put("zero", Json(level.value_or(3)));
    PutUnlessGiven("dtype", "float16", run);
  }
  const std::optional<std::string> optimizer = run.String("optimizer.type");
  if (optimizer == "SGD" || optimizer == "FusedSGD") run.defaults()["momentum"] = 0.0;
  const Json* fp16 = run.Find("fp16");
  if (fp16 != nullptr && fp16->is_object() && !run.Has("fp16.mode")) {
    run.Fail("fp16", "must have a mode");
  }
}

// LLaMA-Factory's alpha is twice its rank where it is not given.
void TranslateLlamaFactory(ForeignKeys& run) {
  const auto rank = run.keys().find("lora_r");
  if (!run.Has("lora_rank") || rank == run.keys().end()) return;
  run.defaults()["lora_alpha"] = 2 * rank->get<double>();
}

// Megatron-LM's batch of all ranks (ResolveRun knows how many there are).
void TranslateGlobalBatch(ForeignKeys& run) {
  if (const auto rows = run.Integer("global_batch_size", 1)) {
    run.Put("global_batch_size", Json(*rows));
  }
}

// do_eval alone means one evaluation at the end. eval_steps belongs to eval_strategy.
void TranslateDoEval(ForeignKeys& run) {
  const std::optional<bool> evaluates = run.Bool("do_eval");
  if (!evaluates) return;
  if (run.keys().contains("eval_strategy")) {
    return run.Ignore("do_eval", "eval_strategy says when to evaluate");
  }
  run.Ignore("eval_steps", "do_eval alone evaluates at the end");
  run.Put("eval_strategy", Json(*evaluates ? "steps" : "no"));
}

// "full_shard auto_wrap offload", or true beside an fsdp_config.
void TranslateFsdpArguments(ForeignKeys& run) {
  const Json* value = run.Find("fsdp");
  std::string words = value == nullptr ? "" : value->is_string() ? value->get<std::string>() : "";
  if (value != nullptr && value->is_array()) {
    for (const Json& word : *value) words += word.is_string() ? word.get<std::string>() + " " : "";
  }
  const bool on = value != nullptr && (*value == true || !words.empty());
  if (!on) {
    run.Ignore("fsdp", "it is off");
    for (const char* key : {"fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap"}) {
      run.Ignore(key, "fsdp is off");
    }
    return run.IgnoreSection("fsdp_config", "fsdp is off");
  }
  std::string strategy;
  bool offload = false, others = false;
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find_first_of(" ,", at), words.size());
    const std::string word = words.substr(at, end - at);
    at = end + 1;
    others = others || (!word.empty() && word != "offload");
    if (word == "offload") {
      offload = true;
    } else if (word == "full_shard" || word == "shard_grad_op" || word == "no_shard" ||
               word == "hybrid_shard" || word == "hybrid_shard_zero2") {
      if (!strategy.empty() && strategy != word) {
        return run.Fail("fsdp", Concat("has ", strategy, " and ", word, "; give one of them"));
      }
      strategy = word;
    } else if (!word.empty() && word != "auto_wrap" && word != "true" && word != "True") {
      return run.Fail("fsdp", Concat("has '", word, "'; it may have full_shard, shard_grad_op or ",
                                     "no_shard, auto_wrap and offload"));
    }
  }
  if (offload && !others) {
    return run.Fail("fsdp", "is 'offload' alone; give it with full_shard or shard_grad_op");
  }
  if (strategy.rfind("hybrid", 0) == 0) {
    return run.Fail("fsdp",
                    Concat("is ", strategy, ": shards are not replicated over groups of ranks"));
  }
  TranslateFsdp("fsdp_config", strategy.empty() ? "FULL_SHARD" : strategy, run);
  const bool cuts = run.keys().value("zero", Json(0)) != 0;
  if (offload && cuts) run.Put("cpu_offload", Json(true));
  if (offload && run.keys()["zero"] == 3) run.Put("offload_parameters", Json(true));
  const bool whole = run.keys()["zero"] != 3;
  if (const auto least = run.Integer("fsdp_min_num_params", 0)) {
    if (whole || *least == 0) {
      run.Ignore("fsdp_min_num_params", "nothing is wrapped by size");
    } else {
      run.Put("auto_wrap_min_params", Json(*least));
    }
  }
  if (const auto name = run.String("fsdp_transformer_layer_cls_to_wrap")) {
    const StatusOr<std::string> ours = WrapClass(*name);
    if (whole) {
      run.Ignore("fsdp_transformer_layer_cls_to_wrap", "parameters are whole on every rank");
    } else if (ours.ok()) {
      run.Put("auto_wrap_classes", Json(*ours));
    } else {
      run.Fail("fsdp_transformer_layer_cls_to_wrap", Message(ours.status()));
    }
  }
}

// What is no key of a run, but of what it begins with.
void TranslateBeginning(ForeignKeys& run) {
  for (const char* key : {"deepspeed", "deepspeed_config"}) {
    if (const Json* file = run.Find(key)) run.Put("deepspeed", *file);
  }
  const Json* resume = run.Find("resume_from_checkpoint");
  if (resume != nullptr && *resume == false) {
    run.Ignore("resume_from_checkpoint", "the run begins afresh");
  } else if (resume != nullptr) {
    run.Put("resume",
            *resume == true || *resume == "True" || *resume == "true" ? Json("") : *resume);
  }
  for (const char* key : {"load_dir", "load"}) {
    if (const auto folder = run.String(key)) run.Put("resume", Json(*folder));
  }
}

Translation Translate(ForeignKeys run) {
  TranslateOptim(run);
  TranslateSchedule(run);
  TranslateMicroBatches(run);
  TranslateColossalSections(run);
  TranslateDoEval(run);
  TranslateFlagAi(run);
  TranslateTrl(run);
  TranslateLlamaFactory(run);
  TranslateGlobalBatch(run);
  TranslateFsdpArguments(run);
  TranslateBeginning(run);
  return std::move(run).Finish();
}

// Megatron-LM's `split` is a list of shares, ours the name of a split.
bool IsListOfShares(const std::string& key, const Json& value) {
  return key == "split" && (value.is_array() || (value.is_string() && Shares(value).ok()));
}

bool IsSectionName(const std::string& key) {
  const ForeignTable& keys = RunKeys();
  return std::any_of(keys.begin(), keys.end(), [&](const ForeignKey& foreign) {
    return foreign.name.starts_with(key + ".");
  });
}

// Of two names that say how long the warm-up is, the one that counts where the other is there, too,
// with what a verdict says of the other. Of transformers' and FlagAI's pairs a share counts where
// the number is 0, its default; FlagAI's number counts otherwise.
std::map<std::string, std::string> OutdoneWarmups(const Json& given) {
  const auto has = [&](const char* key) {
    return given.contains(key) && !IsLeftToRun(given.at(key));
  };
  std::map<std::string, std::string> outdone;
  for (const auto& [share, steps] : {std::pair{"warmup_ratio", "warmup_steps"},
                                     {"warm_up", "warm_up_iters"},
                                     {"warmup", "warm_up_iters"}}) {
    if (!has(share) || !has(steps)) continue;
    if (Plain(given.at(steps)) == 0) {
      outdone[steps] = Concat(share, " says how long");
    } else if (std::string(steps) == "warm_up_iters") {
      outdone[share] = Concat(steps, " says how long");
    }
  }
  return outdone;
}

// Keys of our own, by their own names: their declarations check them, and no table translates them.
// The rest of `given` is left in *foreign.
Translation TakeOwnKeys(const Json& given, const ForeignKeys::Namer& name_of, Json* foreign) {
  Translation own;
  const std::map<std::string, std::string> outdone = OutdoneWarmups(given);
  for (const auto& [key, given_value] : given.items()) {
    if (const auto other = outdone.find(key); other != outdone.end()) {
      own.verdicts.push_back({key, KeyFate::kNoEffect, other->second, {}});
      continue;
    }
    const Option* const option = FindRunConfigKey(key);
    // Hugging Face has these names too, with values of its own, and Colossal-AI has sections.
    const bool is_section = given_value.is_object() && IsSectionName(key);
    if (option == nullptr || is_section || option->key != key || key == "max_steps" ||
        key == "report_to" || IsListOfShares(key, given_value)) {
      (*foreign)[key] = given_value;
      continue;
    }
    if (IsLeftToRun(given_value)) {
      own.verdicts.push_back({key, KeyFate::kNoEffect, kLeftToRun, {}});
      continue;
    }
    const Json plain = PlainAs(option->kind, given_value);
    const std::string where = name_of(key);
    const StatusOr<Json> value = option->Convert(plain, where);
    if (!value.ok()) {
      const std::string message = Message(value.status());
      const std::string reason = message.substr(std::min(where.size() + 1, message.size()));
      own.verdicts.push_back({key, KeyFate::kRefused, reason, value.status()});
    } else {
      own.keys[key] = value->is_null() ? plain : *value;  // null: a text that means the default
      own.verdicts.push_back({key, KeyFate::kHonoured, kOwnKey, {}});
    }
  }
  return own;
}

// PEFT's and TRL's files have lists of modules, which are texts here: ["q_proj", "v_proj"].
// LLaMA-Factory says "all" of all linear layers.
void JoinNamesOfModules(Json* given) {
  for (auto& [key, value] : given->items()) {
    if (key == "lora_target" && value == "all") value = "all-linear";
    const Option* const option = FindRunConfigKey(key);
    const bool names =
        option != nullptr && (option->key == "target_modules" || option->key == "exclude_modules" ||
                              option->key == "modules_to_save");
    const auto is_name = [](const Json& one) { return one.is_string(); };
    if (!names || !value.is_array() || !std::all_of(value.begin(), value.end(), is_name)) continue;
    std::string joined;
    for (const Json& one : value) joined += (joined.empty() ? "" : ",") + one.get<std::string>();
    value = joined;
  }
}

Translation TranslateRun(Json given, const ForeignKeys::Namer& name_of) {
  JoinNamesOfModules(&given);
  Json foreign = Json::object();
  const Translation own = TakeOwnKeys(given, name_of, &foreign);
  Translation run = Translate(ForeignKeys(foreign, name_of, RunKeys(), &own));
  // Verdicts in the order of the file; those on keys that are not there stay behind.
  std::map<std::string, size_t> places;
  for (const auto& [key, value] : given.items()) places.emplace(key, places.size());
  const auto place_of = [&](const KeyVerdict& verdict) {
    const auto found = places.find(verdict.key.substr(0, verdict.key.find('.')));
    return found == places.end() ? places.size() : found->second;
  };
  std::stable_sort(
      run.verdicts.begin(), run.verdicts.end(),
      [&](const KeyVerdict& a, const KeyVerdict& b) { return place_of(a) < place_of(b); });
  return run;
}

}  // namespace

Json Truth(const Json& value) {
  if (value == 0 || value == 1) return value == 1;
  return value.is_string() ? Option::FromText(Option::Kind::kBool, value.get<std::string>())
                           : value;
}

bool IsTrue(const Json& value) { return Truth(value) == true; }

ForeignKey WhereTrue(std::string name, std::string ours, Json keys) {
  return Switch(Becomes(std::move(name), std::move(ours),
                        [keys = std::move(keys)](const Json& value) -> StatusOr<Json> {
                          const Json truth = Truth(value);
                          if (!truth.is_boolean()) {
                            return InvalidArgument("must be true or false, not ", Printed(value));
                          }
                          return truth == true ? keys : Json();
                        }));
}

ForeignKey WarmupShare(std::string name) {
  return Becomes(std::move(name), "warmup_steps", [](const Json& value) -> StatusOr<Json> {
    const Json share = Plain(value);
    if (!share.is_number() || share.get<double>() < 0 || share.get<double>() >= 1) {
      return InvalidArgument("must be a share of all steps, at least 0 and below 1, not ",
                             Printed(value));
    }
    return share.get<double>() == 0 ? Json() : Json{{"warmup_steps", share}};
  });
}

std::vector<const ForeignSystem*> ForeignSystems() {
  return {&HuggingFace(), &Trl(), &FlagAi(), &ColossalAi(), &MegatronLm(), &OtherSystems()};
}

const ForeignTable& RunKeys() {
  static const auto* table = [] {
    auto* keys = new ForeignTable;
    std::set<std::string> seen;
    const auto add = [&](ForeignKey key) {
      if (seen.insert(key.name).second) keys->push_back(std::move(key));
    };
    const auto add_aliases = [&](const OptionTable& table) {
      for (const Option& option : table.options()) {
        for (const OptionAlias& alias : option.notes.aliases) {
          ForeignKey key = Renamed(alias.name, option.key);
          key.is_switch = option.kind == Option::Kind::kBool;
          add(std::move(key));
        }
      }
    };
    add_aliases(RunConfig::Table());
    for (const OptionPart& part : OptionParts()) add_aliases(*part.table);
    for (const ForeignSystem* system : ForeignSystems()) {
      for (const ForeignKey& key : system->keys) add(key);
    }
    return keys;
  }();
  return *table;
}

Translation TranslateRunKeys(const Json& given, const std::string& source) {
  if (!given.is_object()) return ForeignKeys(given, source, RunKeys()).Finish();
  return TranslateRun(
      given, [&source](const std::string& key) { return Concat(source, ": '", key, "'"); });
}

Translation TranslateRunFlags(const Json& given) {
  const auto name_of = [](const std::string& key) {
    std::string flag = "--" + key;
    if (FindRunConfigKey(key) != nullptr) std::replace(flag.begin(), flag.end(), '_', '-');
    return flag;
  };
  return TranslateRun(given, name_of);
}

Status ApplyRunConfigJson(const Json& json, const std::string& source, RunConfig* config) {
  const Translation given = TranslateRunKeys(json, source);
  TESSERA_RETURN_IF_ERROR(given.status());
  // To an engine that is given micro-batches these are their number and their size.
  static const auto* cut = new std::map<std::string, std::string>{
      {"num_microbatches", "gradient_accumulation_steps"}, {"microbatch_size", "batch_size"}};
  for (const auto& [name, value] : given.keys->items()) {
    const auto found = cut->find(name);
    const std::string& key = found == cut->end() ? name : found->second;
    if (FindRunConfigKey(key) == nullptr) {
      return InvalidArgument(source, ": '", key, "' is no key of a run's configuration, but of ",
                             "what it begins with");
    }
    if (key == "dialect" && value != "tessera") {
      return InvalidArgument(source, ": 'dialect' is ", Printed(value),
                             ", which a whole run takes; give the keys that `tessera explain ",
                             "--dialect` lists");
    }
    TESSERA_RETURN_IF_ERROR(SetRunConfigKey(config, key, value, Concat(source, ": '", key, "'")));
  }
  ApplyDefaults(given.defaults, config);
  return ApplySharesOfLr(given.shares_of_lr, source, config);
}

void ApplyDefaults(const Json& defaults, RunConfig* config) {
  for (const auto& [key, value] : defaults.items()) {
    if (config->IsSet(key)) continue;
    if (key == "max_steps" && config->IsSet("epochs")) continue;
    SetRunConfigKey(config, key, value, key).IgnoreError();
  }
}

Status ApplySharesOfLr(const Json& shares, const std::string& source, RunConfig* config) {
  for (const auto& [key, share] : shares.items()) {
    if (config->given.count(key) > 0) continue;
    TESSERA_RETURN_IF_ERROR(SetRunConfigKey(config, key, share.get<double>() * config->lr,
                                            Concat(source, ": '", key, "'")));
  }
  return OkStatus();
}

Status ReadRunConfig(const std::string& path, RunConfig* config) {
  TESSERA_ASSIGN_OR_RETURN(const Json json, ReadSettings(path));
  return ApplyRunConfigJson(json, path, config);
}

}  // namespace tessera::train
