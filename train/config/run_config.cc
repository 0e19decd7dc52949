#include "train/config/run_config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <type_traits>

#include "core/dtype.h"
#include "core/file.h"
#include "core/nearest_name.h"
#include "dist/mesh/mesh.h"
#include "train/config/config_aliases.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

// A JSON value into one member; `where` is the key as messages show it.
absl::Status Assign(const Json& value, const std::string& where, int64_t* to) {
  if (!value.is_number_integer())
    return InvalidArgument(where, " must be an integer, not ", value.dump());
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) {
    return InvalidArgument(where, " is too large: ", value.dump());
  }
  *to = value.get<int64_t>();
  return absl::OkStatus();
}
absl::Status Assign(const Json& value, const std::string& where, double* to) {
  if (!value.is_number()) return InvalidArgument(where, " must be a number, not ", value.dump());
  *to = value.get<double>();
  return absl::OkStatus();
}
absl::Status Assign(const Json& value, const std::string& where, bool* to) {
  if (!value.is_boolean())
    return InvalidArgument(where, " must be true or false, not ", value.dump());
  *to = value.get<bool>();
  return absl::OkStatus();
}
absl::Status Assign(const Json& value, const std::string& where, std::string* to) {
  if (!value.is_string()) return InvalidArgument(where, " must be a string, not ", value.dump());
  *to = value.get<std::string>();
  return absl::OkStatus();
}
absl::Status Assign(const Json& value, const std::string& where, std::vector<double>* to) {
  if (!value.is_array())
    return InvalidArgument(where, " must be a list of numbers, not ", value.dump());
  std::vector<double> numbers;
  for (const Json& item : value) {
    numbers.emplace_back();
    TESSERA_RETURN_IF_ERROR(Assign(item, where, &numbers.back()));
  }
  *to = std::move(numbers);
  return absl::OkStatus();
}

// A flag's text as JSON of the member's kind.
Json Parsed(const std::string& text, const RunConfigField::Member& member) {
  if (std::holds_alternative<std::string RunConfig::*>(member)) return text;
  if (std::holds_alternative<bool RunConfig::*>(member)) {
    if (text == "1" || text == "on" || text == "yes") return true;
    if (text == "0" || text == "off" || text == "no") return false;
  }
  const bool list = std::holds_alternative<std::vector<double> RunConfig::*>(member);
  Json value = Json::parse(list && text.find('[') == std::string::npos ? "[" + text + "]" : text,
                           nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() ? Json(text) : value;
}

absl::Status AssignMember(const Json& value, const std::string& where, const RunConfigField& field,
                          RunConfig* config) {
  return std::visit(
      [&](auto member) -> absl::Status { return Assign(value, where, &(config->*member)); },
      field.member);
}

absl::Status UnknownKey(std::string_view name, const std::string& source) {
  std::vector<std::string> known;
  for (const RunConfigField& field : RunConfigFields()) known.emplace_back(field.name);
  return InvalidArgument(source, ": unknown key '", name, "'", DidYouMean(name, known));
}

}  // namespace

const RunConfigField* FindRunConfigField(std::string_view name) {
  for (const RunConfigField& field : RunConfigFields()) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

absl::Status ApplyRunConfigJson(const Json& json, const std::string& source, RunConfig* config) {
  if (!json.is_object()) return InvalidArgument(source, ": a JSON object is needed");
  std::map<std::string_view, std::string> given;  // by field: the name it was given under
  for (const auto& [key, value] : json.items()) {
    const RunConfigField* field = FindRunConfigField(CanonicalKey(key));
    if (field == nullptr) return UnknownKey(key, source);
    const auto [other, first] = given.emplace(field->name, key);
    if (!first && json[other->second] != value) {
      return InvalidArgument(source, ": '", other->second, "' and '", key, "' are one key (",
                             field->name, ") with two values");
    }
    Json known = value;
    if (value.is_string()) {
      const auto text = value.get<std::string>();
      const std::string canonical(CanonicalValue(field->name, text));
      if (canonical != text) known = Parsed(canonical, field->member);
    }
    TESSERA_RETURN_IF_ERROR(AssignMember(known, Concat(source, ": '", key, "'"), *field, config));
  }
  return absl::OkStatus();
}

absl::Status ReadRunConfig(const std::string& path, RunConfig* config) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false, true);
  if (json.is_discarded()) return InvalidArgument(path, ": not valid JSON");
  return ApplyRunConfigJson(json, path, config);
}

absl::Status SetRunConfigField(RunConfig* config, std::string_view name, const std::string& text) {
  const RunConfigField* field = FindRunConfigField(CanonicalKey(name));
  if (field == nullptr) return UnknownKey(name, "flags");
  std::string flag = "--" + std::string(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  const std::string known(CanonicalValue(field->name, text));
  return AssignMember(Parsed(known, field->member), flag, *field, config);
}

int64_t RunConfig::accumulation_steps() const {
  if (gradient_accumulation_steps > 0) return gradient_accumulation_steps;
  return num_microbatches > 0 ? num_microbatches : 1;
}

namespace {

// The least value of every field that has one.
absl::Status CheckRanges(const RunConfig& config) {
  const std::pair<const char*, double> kLeast[] = {
      {"batch_size", 1},
      {"gradient_accumulation_steps", 0},
      {"num_microbatches", 0},
      {"max_steps", 0},
      {"seq_len", 0},
      {"epochs", 0},
      {"lr", 0},
      {"eps", 0},
      {"weight_decay", 0},
      {"warmup_steps", 0},
      {"max_grad_norm", 0},
      {"threads", 0},
      {"log_interval", 1},
      {"eval_interval", 0},
      {"eval_batches", 0},
      {"save_interval", 0},
      {"num_checkpoints", 1},
      {"time_limit", 0},
      {"seed", 0},
      {"tp", 1},
      {"pp", 1},
      {"num_model_chunks", 0},
      {"profile_after", 0},
      {"profile_steps", 1},
      {"zero", 0},
      {"auto_wrap_min_params", 0},
      {"prefetch_elements", 0},
      {"max_live_elements", 0},
      {"persistence_threshold", 0},
      {"loss_scale", 0},
      {"bucket_cap_mb", 1e-6},
      {"collective_timeout", 1e-3},
      {"neftune_noise_alpha", 0},
      {"max_source_length", 2},
      {"max_target_length", 2},
      {"num_beams", 1},
      {"mean_noise_span_length", 1},
  };
  for (const auto& [key, least] : kLeast) {
    const double value = std::visit(
        [&](auto member) -> double {
          if constexpr (std::is_arithmetic_v<std::decay_t<decltype(config.*member)>>) {
            return static_cast<double>(config.*member);
          }
          return 0;
        },
        FindRunConfigField(key)->member);
    if (!(value >= least))
      return InvalidArgument(key, " must be at least ", least, ", not ", value);
  }
  return absl::OkStatus();
}

absl::Status CheckOneOf(const char* key, const std::string& value,
                        std::initializer_list<const char*> known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return absl::OkStatus();
  std::string list;
  for (const char* name : known) list += list.empty() ? name : Concat(", ", name);
  return InvalidArgument(key, " '", value, "' is not known; use one of ", list);
}

absl::Status CheckPipeline(const RunConfig& config) {
  if (config.pp == 1) {
    for (const auto& [key, given] : {std::pair{"schedule", !config.schedule.empty()},
                                     {"num_model_chunks", config.num_model_chunks > 0}}) {
      if (given) return InvalidArgument(key, " is set, which means nothing with pp 1");
    }
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(const dist::ScheduleKind kind, config.pipeline_schedule());
  return dist::CheckSchedule(kind, config.pipeline_shape());
}

// The first of the keys whose value is not the default's.
template <typename... Keys>
std::optional<std::string> FirstSet(const RunConfig& config, Keys... keys) {
  const auto now = config.ToJson();
  const auto usual = RunConfig().ToJson();
  for (const char* key : {keys...}) {
    if (now.at(key) != usual.at(key)) return key;
  }
  return std::nullopt;
}

absl::Status CheckZero(const RunConfig& config) {
  if (config.zero > 3) return InvalidArgument("zero must be 0, 1, 2 or 3, not ", config.zero);
  if (config.zero == 0) {
    if (const auto key =
            FirstSet(config, "communication_dtype", "cpu_offload", "offload_fraction")) {
      return InvalidArgument(*key, " is set, which needs zero 1, 2 or 3");
    }
  } else if (const auto key =
                 FirstSet(config, "static_graph", "check_reduction", "gradient_as_bucket_view")) {
    return InvalidArgument(*key, " is set, which ZeRO does not have; it needs zero 0");
  }
  if (config.zero < 3) {
    if (const auto key = FirstSet(config, "offload_parameters", "auto_wrap_classes",
                                  "auto_wrap_min_params", "backward_prefetch", "forward_prefetch",
                                  "limit_all_gathers", "reshard_after_forward", "prefetch_elements",
                                  "max_live_elements", "persistence_threshold")) {
      return InvalidArgument(*key, " is set, which needs zero 3");
    }
  }
  if (config.zero == 3 && config.predict_with_generate) {
    return InvalidArgument(
        "predict_with_generate writes texts of different lengths, for which ranks that hold "
        "parameters together (zero 3) cannot gather in step; switch one of them off");
  }
  if (config.zero == 3 && config.pipeline_shape().chunks_per_rank > 1) {
    return InvalidArgument("zero 3 shards one chunk per rank; num_model_chunks is ",
                           config.pipeline_shape().chunks_per_rank);
  }
  if (config.partition_activations && config.tp == 1) {
    return InvalidArgument(
        "partition_activations shares activations out over tp ranks; give tp > 1");
  }
  if (config.partition_activations && config.sequence_parallel) {
    return InvalidArgument(
        "partition_activations: sequence_parallel has shared the activations out already");
  }
  if (!config.communication_dtype.empty()) {
    TESSERA_RETURN_IF_ERROR(CheckOneOf("communication_dtype", config.communication_dtype,
                                       {"float32", "bfloat16", "float16"}));
  }
  return config.zero_options().status();
}

}  // namespace

absl::Status RunConfig::Validate() const {
  TESSERA_RETURN_IF_ERROR(CheckRanges(*this));
  if (gradient_accumulation_steps > 0 && num_microbatches > 0 &&
      gradient_accumulation_steps != num_microbatches) {
    return InvalidArgument("gradient_accumulation_steps (", gradient_accumulation_steps,
                           ") and num_microbatches (", num_microbatches, ") differ");
  }
  if (!(val_fraction >= 0 && val_fraction < 1)) {
    return InvalidArgument("val_fraction must be in [0, 1), not ", val_fraction);
  }
  for (const auto& [key, share] :
       {std::pair{"mlm_probability", mlm_probability}, {"noise_density", noise_density}}) {
    if (!(share > 0 && share < 1)) {
      return InvalidArgument(key, " must be between 0 and 1, not ", share);
    }
  }
  for (const auto& [key, share] :
       {std::pair{"sentence_mask_share", sentence_mask_share},
        {"document_mask_share", document_mask_share},
        {"the sum of both", sentence_mask_share + document_mask_share}}) {
    if (!(share >= 0 && share <= 1)) {
      return InvalidArgument(key, " must be in [0, 1], not ", share);
    }
  }
  TESSERA_RETURN_IF_ERROR(Overrides().status());
  if (dropout >= 1) return InvalidArgument("dropout must be below 1, not ", dropout);
  if (betas.size() != 2 || !(betas[0] >= 0 && betas[0] < 1 && betas[1] >= 0 && betas[1] < 1)) {
    return InvalidArgument("betas must be two numbers in [0, 1)");
  }
  TESSERA_RETURN_IF_ERROR(CheckOneOf("optimizer", optimizer, {"adamw", "adam", "sgd"}));
  TESSERA_RETURN_IF_ERROR(CheckOneOf("dtype", dtype, {"float32", "bfloat16", "float16"}));
  if (!autocast.empty()) {
    TESSERA_RETURN_IF_ERROR(CheckOneOf("autocast", autocast, {"bfloat16", "float16"}));
    if (dtype != "float32") {
      return InvalidArgument("autocast is for parameters of dtype float32, not ", dtype);
    }
  }
  if (!grad_dtype.empty() && grad_dtype != "float32" && grad_dtype != dtype) {
    return InvalidArgument("grad_dtype '", grad_dtype, "' must be float32 or the dtype, '", dtype,
                           "'");
  }
  TESSERA_RETURN_IF_ERROR(
      CheckOneOf("log_level", log_level, {"debug", "info", "warning", "error"}));
  TESSERA_RETURN_IF_ERROR(
      CheckOneOf("log_level_replica", log_level_replica, {"debug", "info", "warning", "error"}));
  if (!env_type.empty()) {
    TESSERA_RETURN_IF_ERROR(CheckOneOf("env_type", env_type, {"single", "ddp", "zero", "zero+tp"}));
  }
  TESSERA_RETURN_IF_ERROR(optim::CheckGradScalerOptions(scaler_options()));
  if (sequence_parallel && tp == 1) {
    return InvalidArgument("sequence_parallel splits sequences over tp ranks; give tp > 1");
  }
  if (scale_parameter && tp > 1) {
    return InvalidArgument("scale_parameter measures whole parameters, which tp cuts");
  }
  if (sequence_parallel && predict_with_generate) {
    return InvalidArgument(
        "predict_with_generate writes token by token, which sequence_parallel "
        "cannot share out; switch one of them off");
  }
  TESSERA_RETURN_IF_ERROR(CheckPipeline(*this));
  return CheckZero(*this);
}

absl::StatusOr<dist::ZeroOptions> RunConfig::zero_options() const {
  dist::ZeroOptions options;
  options.stage = static_cast<int>(zero);
  options.bucket_cap_mb = bucket_cap_mb;
  options.deterministic = deterministic;
  options.find_unused_parameters = find_unused_parameters;
  options.overlap = overlap_comm;
  if (!communication_dtype.empty()) options.communication_dtype = ParseDType(communication_dtype);
  for (size_t begin = 0; begin < auto_wrap_classes.size();) {
    const size_t end = std::min(auto_wrap_classes.find(',', begin), auto_wrap_classes.size());
    options.auto_wrap_classes.push_back(auto_wrap_classes.substr(begin, end - begin));
    begin = end + 1;
  }
  options.auto_wrap_min_params = auto_wrap_min_params;
  TESSERA_ASSIGN_OR_RETURN(options.backward_prefetch,
                           dist::ParseBackwardPrefetch(backward_prefetch));
  options.forward_prefetch = forward_prefetch;
  options.limit_all_gathers = limit_all_gathers;
  options.prefetch_elements = prefetch_elements;
  options.max_live_elements = max_live_elements;
  options.persistence_threshold = persistence_threshold;
  options.reshard_after_forward = reshard_after_forward;
  options.offload_optimizer = cpu_offload;
  options.offload_fraction = offload_fraction;
  options.offload_parameters = offload_parameters;
  TESSERA_RETURN_IF_ERROR(options.Validate());
  return options;
}

absl::StatusOr<dist::ScheduleKind> RunConfig::pipeline_schedule() const {
  return dist::ParseSchedule(schedule.empty() ? "1f1b" : schedule);
}

dist::PipelineShape RunConfig::pipeline_shape() const {
  const auto kind = pipeline_schedule();
  const bool interleaves = kind.ok() && *kind == dist::ScheduleKind::kInterleaved;
  return {.stages = static_cast<int>(pp),
          .chunks_per_rank = static_cast<int>(num_model_chunks > 0 ? num_model_chunks
                                              : interleaves        ? 2
                                                                   : 1),
          .micro_batches = static_cast<int>(accumulation_steps())};
}

absl::Status RunConfig::ValidateFor(int world_size) const {
  TESSERA_RETURN_IF_ERROR(
      dist::CheckMesh({.tp = static_cast<int>(tp), .pp = static_cast<int>(pp)}, world_size));
  const auto excluded = [&](const char* key) {
    return InvalidArgument("env_type '", env_type, "' excludes ", key);
  };
  if (env_type == "single" && world_size > 1) return excluded("more than one rank");
  if (env_type == "ddp" && zero > 0) return excluded("zero");
  if ((env_type == "ddp" || env_type == "zero") && tp > 1) return excluded("tp");
  const int64_t dp = world_size / (tp * pp);
  if (deterministic && (!dist::IsPowerOfTwo(dp) || !dist::IsPowerOfTwo(accumulation_steps()))) {
    return InvalidArgument("deterministic needs powers of two: there are ", dp,
                           " data-parallel ranks and ", accumulation_steps(),
                           " micro-batches (gradient_accumulation_steps)");
  }
  return absl::OkStatus();
}

// A value is JSON (12, 0.1, true, [1, 2]), or else text.
absl::StatusOr<Json> RunConfig::Overrides() const {
  Json overrides = Json::object();
  for (size_t begin = 0; begin < config_overrides.size();) {
    size_t end = begin;
    int depth = 0;  // of brackets: a list has commas of its own
    for (; end < config_overrides.size() && (depth > 0 || config_overrides[end] != ','); ++end) {
      depth += config_overrides[end] == '[' ? 1 : config_overrides[end] == ']' ? -1 : 0;
    }
    const std::string part = config_overrides.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = part.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return InvalidArgument("config_overrides: '", part, "' is not of the form key=value");
    }
    const std::string text = part.substr(equals + 1);
    const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    overrides[part.substr(0, equals)] = value.is_discarded() ? Json(text) : value;
  }
  return overrides;
}

optim::GradScalerOptions RunConfig::scaler_options() const {
  return {.dynamic = loss_scale == 0,
          .initial_scale = loss_scale == 0 ? initial_scale : loss_scale,
          .min_scale = loss_scale == 0 ? min_scale : std::min(min_scale, loss_scale),
          .growth_factor = growth_factor,
          .backoff_factor = backoff_factor,
          .growth_interval = growth_interval,
          .hysteresis = hysteresis,
          .max_scale = loss_scale == 0 ? max_scale : std::max(max_scale, loss_scale)};
}

nlohmann::ordered_json RunConfig::ToJson() const {
  nlohmann::ordered_json json;
  for (const RunConfigField& field : RunConfigFields()) {
    std::visit([&](auto member) { json[std::string(field.name)] = this->*member; }, field.member);
  }
  json["gradient_accumulation_steps"] = accumulation_steps();
  json["num_microbatches"] = accumulation_steps();
  json["min_lr"] = final_lr();
  return json;
}

}  // namespace tessera::train
