#include "train/config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <type_traits>

#include "core/dtype.h"
#include "core/file.h"
#include "core/nearest_name.h"

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

const std::vector<RunConfigField>& RunConfigFields() {
  static const auto* fields = new std::vector<RunConfigField>{
      {"tokenizer", &RunConfig::tokenizer, "a folder, 'byte' or 'char' (default: the model's)"},
      {"val_data", &RunConfig::val_data, "validation text, instead of val_fraction"},
      {"val_fraction", &RunConfig::val_fraction, "share of the data, from its end, held out"},
      {"json_key", &RunConfig::json_key, "member of JSON lines that holds the text"},
      {"reset_at_documents", &RunConfig::reset_at_documents,
       "restart positions and mask attention at document borders"},
      {"max_steps", &RunConfig::max_steps, "optimizer steps (default: by epochs)"},
      {"epochs", &RunConfig::epochs, "passes over the data"},
      {"batch_size", &RunConfig::batch_size, "rows of one forward pass"},
      {"gradient_accumulation_steps", &RunConfig::gradient_accumulation_steps,
       "forward passes per optimizer step (default 1)"},
      {"num_microbatches", &RunConfig::num_microbatches,
       "another name for gradient_accumulation_steps"},
      {"seq_len", &RunConfig::seq_len, "tokens per row (default: the model's positions)"},
      {"shuffle", &RunConfig::shuffle, "visit the data in a random order"},
      {"time_limit", &RunConfig::time_limit, "seconds after which the run saves and stops"},
      {"optimizer", &RunConfig::optimizer, "adamw, adam or sgd"},
      {"lr", &RunConfig::lr, "peak learning rate"},
      {"betas", &RunConfig::betas, "Adam's decay rates, as 0.9,0.95"},
      {"eps", &RunConfig::eps, "Adam's epsilon"},
      {"momentum", &RunConfig::momentum, "momentum of sgd"},
      {"weight_decay", &RunConfig::weight_decay, "decay of matrices; biases and norms have none"},
      {"warmup_steps", &RunConfig::warmup_steps, "steps of linear warm-up"},
      {"lr_schedule", &RunConfig::lr_schedule, "cosine, linear, constant or inverse_sqrt"},
      {"min_lr", &RunConfig::min_lr, "where the schedule ends (default 0.1 lr)"},
      {"max_grad_norm", &RunConfig::max_grad_norm, "gradient clipping; 0 is off"},
      {"dropout", &RunConfig::dropout, "every dropout probability (default: the model's)"},
      {"checkpoint_activations", &RunConfig::checkpoint_activations,
       "recompute activations in the backward pass"},
      {"seed", &RunConfig::seed, "seed of initialisation, data order and dropout"},
      {"dtype", &RunConfig::dtype, "float32, bfloat16 or float16"},
      {"device", &RunConfig::device, "cpu or cuda:0"},
      {"threads", &RunConfig::threads, "CPU threads (default: all cores)"},
      {"log_interval", &RunConfig::log_interval, "steps between rows of metrics"},
      {"eval_interval", &RunConfig::eval_interval, "steps between evaluations (0: at the end)"},
      {"eval_batches", &RunConfig::eval_batches, "batches per evaluation (0: all)"},
      {"save_interval", &RunConfig::save_interval, "steps between checkpoints (0: at the end)"},
      {"num_checkpoints", &RunConfig::num_checkpoints, "newest checkpoints kept"},
      {"tp", &RunConfig::tp, "tensor-parallel size"},
      {"pp", &RunConfig::pp, "pipeline stages"},
      {"zero", &RunConfig::zero, "ZeRO stage"},
      {"sequence_parallel", &RunConfig::sequence_parallel, "sequence parallelism beside tp"},
      {"cpu_offload", &RunConfig::cpu_offload, "optimizer states in host memory"},
      {"deterministic", &RunConfig::deterministic,
       "the same bits on every layout (one process is always deterministic)"},
      {"schedule", &RunConfig::schedule, "pipeline schedule"},
      {"model", &RunConfig::model, "a preset or a folder"},
      {"data", &RunConfig::data, "text file, directory or indexed dataset"},
      {"out", &RunConfig::out, "directory of the run"},
  };
  return *fields;
}

const RunConfigField* FindRunConfigField(std::string_view name) {
  for (const RunConfigField& field : RunConfigFields()) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

absl::Status ApplyRunConfigJson(const Json& json, const std::string& source, RunConfig* config) {
  if (!json.is_object()) return InvalidArgument(source, ": a JSON object is needed");
  for (const auto& [key, value] : json.items()) {
    const RunConfigField* field = FindRunConfigField(key);
    if (field == nullptr) return UnknownKey(key, source);
    TESSERA_RETURN_IF_ERROR(AssignMember(value, Concat(source, ": '", key, "'"), *field, config));
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
  const RunConfigField* field = FindRunConfigField(name);
  if (field == nullptr) return UnknownKey(name, "flags");
  std::string flag = "--" + std::string(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return AssignMember(Parsed(text, field->member), flag, *field, config);
}

int64_t RunConfig::accumulation_steps() const {
  if (gradient_accumulation_steps > 0) return gradient_accumulation_steps;
  return num_microbatches > 0 ? num_microbatches : 1;
}

absl::Status RunConfig::Validate() const {
  const auto at_least = [](const char* key, double value, double least) -> absl::Status {
    if (value >= least) return absl::OkStatus();
    return InvalidArgument(key, " must be at least ", least, ", not ", value);
  };
  TESSERA_RETURN_IF_ERROR(at_least("batch_size", static_cast<double>(batch_size), 1));
  TESSERA_RETURN_IF_ERROR(
      at_least("gradient_accumulation_steps", static_cast<double>(gradient_accumulation_steps), 0));
  TESSERA_RETURN_IF_ERROR(at_least("num_microbatches", static_cast<double>(num_microbatches), 0));
  TESSERA_RETURN_IF_ERROR(at_least("max_steps", static_cast<double>(max_steps), 0));
  TESSERA_RETURN_IF_ERROR(at_least("seq_len", static_cast<double>(seq_len), 0));
  TESSERA_RETURN_IF_ERROR(at_least("epochs", epochs, 0));
  TESSERA_RETURN_IF_ERROR(at_least("lr", lr, 0));
  TESSERA_RETURN_IF_ERROR(at_least("eps", eps, 0));
  TESSERA_RETURN_IF_ERROR(at_least("weight_decay", weight_decay, 0));
  TESSERA_RETURN_IF_ERROR(at_least("warmup_steps", static_cast<double>(warmup_steps), 0));
  TESSERA_RETURN_IF_ERROR(at_least("max_grad_norm", max_grad_norm, 0));
  TESSERA_RETURN_IF_ERROR(at_least("threads", static_cast<double>(threads), 0));
  TESSERA_RETURN_IF_ERROR(at_least("log_interval", static_cast<double>(log_interval), 1));
  TESSERA_RETURN_IF_ERROR(at_least("eval_interval", static_cast<double>(eval_interval), 0));
  TESSERA_RETURN_IF_ERROR(at_least("eval_batches", static_cast<double>(eval_batches), 0));
  TESSERA_RETURN_IF_ERROR(at_least("save_interval", static_cast<double>(save_interval), 0));
  TESSERA_RETURN_IF_ERROR(at_least("num_checkpoints", static_cast<double>(num_checkpoints), 1));
  TESSERA_RETURN_IF_ERROR(at_least("time_limit", time_limit, 0));
  TESSERA_RETURN_IF_ERROR(at_least("seed", static_cast<double>(seed), 0));
  if (gradient_accumulation_steps > 0 && num_microbatches > 0 &&
      gradient_accumulation_steps != num_microbatches) {
    return InvalidArgument("gradient_accumulation_steps (", gradient_accumulation_steps,
                           ") and num_microbatches (", num_microbatches, ") differ");
  }
  if (!(val_fraction >= 0 && val_fraction < 1)) {
    return InvalidArgument("val_fraction must be in [0, 1), not ", val_fraction);
  }
  if (dropout >= 1) return InvalidArgument("dropout must be below 1, not ", dropout);
  if (betas.size() != 2 || !(betas[0] >= 0 && betas[0] < 1 && betas[1] >= 0 && betas[1] < 1)) {
    return InvalidArgument("betas must be two numbers in [0, 1)");
  }
  if (optimizer != "adamw" && optimizer != "adam" && optimizer != "sgd") {
    return InvalidArgument("optimizer '", optimizer, "' is not known; use adamw, adam or sgd");
  }
  const auto type = ParseDType(dtype);
  if (!type || !IsFloating(*type) || *type == DType::kFloat64) {
    return InvalidArgument("dtype '", dtype, "' is not known; use float32, bfloat16 or float16");
  }
  for (const auto& [key, differs] : {std::pair{"tp", tp != 1},
                                     {"pp", pp != 1},
                                     {"zero", zero != 0},
                                     {"sequence_parallel", sequence_parallel},
                                     {"cpu_offload", cpu_offload},
                                     {"schedule", !schedule.empty()}}) {
    if (differs) {
      return InvalidArgument(key, " is set, but this program runs in one process only");
    }
  }
  return absl::OkStatus();
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
