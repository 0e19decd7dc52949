// SPDX-License-Identifier: Apache-2.0
#include "train/foreign/accelerate_config.h"

#include <optional>
#include <set>
#include <utility>

#include "train/foreign/fsdp_keys.h"
#include "train/foreign/yaml_file.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

// The section that a flag's name belongs to; "": none.
std::string SectionOf(const std::string& flag) {
  static constexpr std::pair<const char*, const char*> kPrefixes[] = {
      {"fsdp_", "fsdp_config"},
      {"megatron_lm_", "megatron_lm_config"},
      {"parallelism_config_", "parallelism_config"},
      {"dynamo_", "dynamo_config"},
      {"fp8_", "fp8_config"},
      {"mpirun_", "mpirun_config"}};
  for (const auto& [prefix, section] : kPrefixes) {
    if (flag != section && flag.rfind(prefix, 0) == 0) return section;
  }
  for (const ForeignKey& key : AccelerateKeys()) {
    if (key.name == "deepspeed_config." + flag) return "deepspeed_config";
  }
  return "";
}

// Flags that are kinds of the file.
constexpr std::pair<const char*, const char*> kKinds[] = {{"use_fsdp", "FSDP"},
                                                          {"use_deepspeed", "DEEPSPEED"},
                                                          {"use_megatron_lm", "MEGATRON_LM"},
                                                          {"multi_gpu", "MULTI_GPU"},
                                                          {"tpu", "XLA"}};

// What is set without a section goes where the file has it, and wins.
Json LaidOutLikeTheFile(const Json& settings) {
  Json file = settings;
  for (const auto& [name, value] : settings.items()) {
    const std::string section = SectionOf(name);
    if (section.empty()) continue;
    file.erase(name);
    if (!file[section].is_object()) file[section] = Json::object();
    file[section][name] = value;
  }
  for (const auto& [flag, kind] : kKinds) {
    if (!settings.contains(flag)) continue;
    const Json& value = settings[flag];
    file.erase(flag);
    if (value == true || value == "true" || value == "True") file["distributed_type"] = kind;
  }
  if (settings.contains("cpu")) {
    file.erase("cpu");
    file["use_cpu"] = settings["cpu"];
  }
  file.erase("use_parallelism_config");  // says that its section is there
  return file;
}

void TranslateDeepSpeedSection(ForeignKeys& file) {
  const std::string section = "deepspeed_config.";
  if (const std::optional<std::string> path = file.String(section + "deepspeed_config_file")) {
    if (*path == "none") {
      file.Ignore(section + "deepspeed_config_file", "there is none");
    } else {
      file.Put("deepspeed", Json(*path));
    }
  }
  const std::optional<int64_t> stage = file.Integer(section + "zero_stage", 0);
  if (stage && *stage > 3) file.Fail(section + "zero_stage", "must be 0, 1, 2 or 3");
  const bool from_file = file.keys().contains("deepspeed");
  if (!from_file || stage) file.Put("zero", Json(stage.value_or(2)));
  const std::pair<const char*, const char*> kPlaces[] = {
      {"offload_optimizer_device", "cpu_offload"}, {"offload_param_device", "offload_parameters"}};
  for (const auto& [theirs, ours] : kPlaces) {
    const std::optional<std::string> device = file.String(section + theirs);
    if (!device || *device == "none") {
      file.Ignore(section + theirs, "nothing is off-loaded");
    } else if (*device != "cpu") {
      file.Fail(section + theirs, Concat("is '", *device, "'; use cpu or none"));
    } else if (std::string_view(ours) == "offload_parameters" && stage != 3) {
      file.Ignore(section + theirs, "parameters are off-loaded at stage 3 only");
    } else if (stage.value_or(2) > 0) {
      file.Put(ours, Json(true));
    } else {
      file.Ignore(section + theirs, "nothing is sharded");
    }
  }
}

// DeepSpeed and Megatron-LM have parameters in half precision, all else casts what products take.
void TranslatePrecision(const std::string& kind, ForeignKeys& file) {
  const Json* value = file.Find("mixed_precision");
  if (value == nullptr || *value == "no" || *value == false) return;
  const bool halves = kind == "DEEPSPEED" || kind == "MEGATRON_LM";
  if (*value == "bf16" || *value == "fp16") {
    file.Put(halves ? "dtype" : "autocast", Json(*value == "bf16" ? "bfloat16" : "float16"));
  } else {
    file.Fail("mixed_precision",
              Concat("is ", Printed(*value), ", which is not here; use no, fp16 or bf16"));
  }
}

// What shares a run out over ranks, and sections of another kind, which Accelerate passes over.
void TranslateKind(ForeignKeys& file) {
  const Json* value = file.Find("distributed_type");
  std::string kind = "NO";
  if (value != nullptr && value->is_string()) kind = value->get<std::string>();
  const std::pair<const char*, const char*> kSections[] = {{"FSDP", "fsdp_config"},
                                                           {"DEEPSPEED", "deepspeed_config"},
                                                           {"MEGATRON_LM", "megatron_lm_config"}};
  for (const auto& [of, section] : kSections) {
    if (kind == of) continue;
    file.IgnoreSection(section, Concat("distributed_type is ", kind));
  }
  TranslatePrecision(kind, file);
  if (kind == "FSDP") {
    TranslateFsdp("fsdp_config", "FULL_SHARD", file);
  } else if (kind == "DEEPSPEED") {
    TranslateDeepSpeedSection(file);
  } else if (kind == "NO" || kind == "MULTI_CPU" || kind == "MULTI_GPU" || kind == "no") {
    file.Put("zero", Json(0));
  } else if (kind != "MEGATRON_LM") {
    file.Fail("distributed_type",
              Concat("is ", kind, ", which is not here; use NO, MULTI_CPU, MULTI_GPU, FSDP, ",
                     "DEEPSPEED or MEGATRON_LM"));
  }
  const std::string replicas = "parallelism_config.parallelism_config_dp_replicate_size";
  const std::string shards = "parallelism_config.parallelism_config_dp_shard_size";
  const int64_t replicate = file.Integer(replicas, 1).value_or(1);
  const int64_t shard = file.Integer(shards, 1).value_or(1);
  if (replicate > 1 && shard > 1) {
    file.Fail(replicas, "and dp_shard_size are both above 1: shards are not replicated");
  }
  for (const std::string& key : {replicas, shards}) {
    file.Ignore(key, "the ranks that tp leaves are data parallel");
  }
}

void ReadLaunch(ForeignKeys& file, AccelerateConfig* config) {
  // -1: as many as the machine has.
  config->num_processes = std::max<int64_t>(1, file.Integer("num_processes", -1).value_or(1));
  config->num_machines = file.Integer("num_machines", 1).value_or(1);
  config->machine_rank = file.Integer("machine_rank", 0).value_or(0);
  config->main_process_ip = file.String("main_process_ip").value_or("");
  config->main_process_port = file.Integer("main_process_port", 0).value_or(0);
  config->use_cpu = file.Bool("use_cpu").value_or(false);
  if (const Json* ids = file.Find("gpu_ids")) {
    config->gpu_ids = ids->is_string() ? ids->get<std::string>() : Printed(*ids);
  }
  config->hostfile = file.String("mpirun_config.mpirun_hostfile").value_or("");
  if (const auto hosts = file.String("deepspeed_config.deepspeed_hostfile")) {
    config->hostfile = *hosts;
  }
  if (config->use_cpu) file.Put("device", Json("cpu"));
}

}  // namespace

AccelerateConfig JudgeAccelerate(const Json& settings, const std::string& source) {
  AccelerateConfig config;
  const Json laid_out = settings.is_object() ? LaidOutLikeTheFile(settings) : settings;
  ForeignKeys file(laid_out, source, AccelerateKeys());
  TranslateKind(file);
  ReadLaunch(file, &config);
  Translation done = std::move(file).Finish();
  config.keys = std::move(done.keys);
  config.verdicts = std::move(done.verdicts);
  return config;
}

StatusOr<AccelerateConfig> TranslateAccelerate(const Json& settings, const std::string& source) {
  AccelerateConfig config = JudgeAccelerate(settings, source);
  TESSERA_RETURN_IF_ERROR(FirstRefusal(config.verdicts));
  return config;
}

std::vector<AccelerateFlag> AccelerateFlags() {
  std::vector<AccelerateFlag> flags = {{"cpu", true}, {"use_parallelism_config", true}};
  for (const auto& [flag, kind] : kKinds) flags.push_back({flag, true});
  const std::set<std::string> switches = {"use_cpu",
                                          "debug",
                                          "same_network",
                                          "enable_cpu_affinity",
                                          "downcast_bf16",
                                          "dynamo_use_fullgraph",
                                          "dynamo_use_dynamic",
                                          "dynamo_use_regional_compilation",
                                          "tpu_use_cluster",
                                          "tpu_use_sudo"};
  std::set<std::string> seen;
  for (const ForeignKey& key : AccelerateKeys()) {
    const size_t dot = key.name.rfind('.');
    const std::string section = dot == std::string::npos ? "" : key.name.substr(0, dot);
    const std::string name = key.name.substr(dot + 1);  // npos + 1 is 0
    if (SectionOf(name) != section || !seen.insert(name).second) continue;
    flags.push_back({name, switches.count(name) > 0});
  }
  return flags;
}

StatusOr<Json> ReadAccelerateSettings(const std::string& path) {
  if (!path.starts_with("{")) {
    TESSERA_ASSIGN_OR_RETURN(Json file, ReadYaml(path));
    if (!file.is_object()) return InvalidArgument(path, ": its keys and values are missing");
    return file;
  }
  const Json json = Json::parse(path, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument("--accelerate: ", path, " is not valid JSON");
  return json;
}

StatusOr<AccelerateConfig> ReadAccelerateConfig(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const Json settings, ReadAccelerateSettings(path));
  return TranslateAccelerate(settings, path);
}

}  // namespace tessera::train
