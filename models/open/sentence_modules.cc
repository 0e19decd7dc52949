// SPDX-License-Identifier: Apache-2.0
#include "models/open/sentence_modules.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "base/options.h"
#include "models/hub/weight_files.h"
#include "nlohmann/json.hpp"
#include "ops/cast/cast.h"

namespace tessera::models {
namespace {

using nlohmann::json;
using Step = SentenceStep;

constexpr char kModules[] = "modules.json";
constexpr char kTokens[] = "token_embeddings";
constexpr char kSentence[] = "sentence_embedding";

struct Mode {
  const char* name;    // in `pooling_mode` since version 6
  const char* legacy;  // a switch before, in the order in which vectors stand
  Pooling pooling;
};
constexpr Mode kModes[] = {
    {"cls", "pooling_mode_cls_token", Pooling::kFirst},
    {"max", "pooling_mode_max_tokens", Pooling::kMax},
    {"mean", "pooling_mode_mean_tokens", Pooling::kMean},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", Pooling::kMeanSqrtLength},
    {"weightedmean", "pooling_mode_weightedmean_tokens", Pooling::kWeightedMean},
    {"lasttoken", "pooling_mode_lasttoken", Pooling::kLast},
};

// By the last part of PyTorch's name ("torch.nn.modules.activation.Tanh").
constexpr std::pair<const char*, const char*> kActivations[] = {
    {"Tanh", "tanh"},       {"Identity", "linear"}, {"ReLU", "relu"},
    {"Sigmoid", "sigmoid"}, {"GELU", "gelu"},       {"SiLU", "silu"},
};

std::string LastPart(const std::string& name) { return name.substr(name.rfind('.') + 1); }

// A folder's files under the names that messages give them.
class Reader {
 public:
  Reader(const std::string& folder, bool hides_paths) : folder_(folder), hides_(hides_paths) {}

  std::string PathOf(const std::string& name) const { return JoinPath(folder_, name); }
  std::string Shown(const std::string& name) const { return hides_ ? name : PathOf(name); }
  bool Has(const std::string& name) const { return PathExists(PathOf(name)); }

  // An object; an empty one where there is no such file.
  StatusOr<json> Object(const std::string& name) const {
    if (!Has(name)) return json::object();
    TESSERA_ASSIGN_OR_RETURN(json read, Parsed(name));
    if (!read.is_object()) return InvalidArgument(Shown(name), " must hold an object");
    return read;
  }
  StatusOr<json> Parsed(const std::string& name) const {
    TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(PathOf(name)));
    return ParseJson(text, Shown(name));
  }
  // Weights below a path of the folder. Where paths are hidden, so is what is wrong with a file.
  StatusOr<WeightFiles> Weights(const std::string& path) const {
    StatusOr<WeightFiles> weights = WeightFiles::Open(PathOf(path));
    if (weights.ok() || !hides_) return weights;
    return InvalidArgument(path, ": its weights cannot be read");
  }

 private:
  const std::string& folder_;
  const bool hides_;
};

// "1_Pooling/config.json"; of the folder itself "config.json".
std::string In(const std::string& path, const std::string& file) {
  return path.empty() || path == "." ? file : JoinPath(path, file);
}

// Keys that neither mean their default nor are known would be ignored.
Status RefuseOthers(const json& config, const std::string& source,
                    std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : config.items()) {
    const bool nothing =
        value.is_null() || value == false || (value.is_structured() && value.empty());
    if (nothing || std::find(known.begin(), known.end(), key) != known.end()) continue;
    return InvalidArgument(source, ": '", key, "' is not supported");
  }
  return OkStatus();
}

// Which vectors a module reads and writes.
Status ReadPlaces(const json& config, const std::string& source, Step* step) {
  std::string in = kSentence;
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "module_input_name", source, &in));
  std::string out = in;
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "module_output_name", source, &out));
  if (in != out || (in != kTokens && in != kSentence)) {
    return InvalidArgument(source, ": 'module_input_name' '", in, "' and 'module_output_name' '",
                           out, "' are not supported; both may be '", kSentence, "' or '", kTokens,
                           "'");
  }
  step->of_tokens = in == kTokens;
  return OkStatus();
}

Status ReadPooling(const Reader& reader, const std::string& path, Step* step) {
  const std::string name = In(path, "config.json");
  const std::string source = reader.Shown(name);
  TESSERA_ASSIGN_OR_RETURN(const json config, reader.Object(name));
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "include_prompt", source, &step->include_prompt));
  step->pooling.clear();
  std::vector<std::string> names;
  if (const auto modes = config.find("pooling_mode"); modes != config.end() && !modes->is_null()) {
    if (modes->is_string()) {
      names = {modes->get<std::string>()};
    } else {
      TESSERA_RETURN_IF_ERROR(ReadMember(config, "pooling_mode", source, &names));
    }
  }
  const auto known = [&](const std::string& asked) {
    return std::find_if(std::begin(kModes), std::end(kModes),
                        [&](const Mode& mode) { return asked == mode.name; });
  };
  for (const std::string& asked : names) {
    const Mode* const mode = known(asked);
    if (mode == std::end(kModes)) {
      return InvalidArgument(source, ": 'pooling_mode' '", asked, "' is not supported");
    }
    step->pooling.push_back(mode->pooling);
  }
  for (const Mode& mode : kModes) {
    bool given = false;
    TESSERA_RETURN_IF_ERROR(ReadMember(config, mode.legacy, source, &given));
    if (given && names.empty()) step->pooling.push_back(mode.pooling);
  }
  if (step->pooling.empty()) step->pooling = {Pooling::kMean};
  json rest = config;
  for (const Mode& mode : kModes) rest.erase(mode.legacy);
  return RefuseOthers(
      rest, source,
      {"embedding_dimension", "word_embedding_dimension", "pooling_mode", "include_prompt"});
}

Status ReadDense(const Reader& reader, const std::string& path, Step* step) {
  const std::string name = In(path, "config.json");
  const std::string source = reader.Shown(name);
  TESSERA_ASSIGN_OR_RETURN(const json config, reader.Object(name));
  TESSERA_RETURN_IF_ERROR(ReadPlaces(config, source, step));
  bool bias = true;
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "bias", source, &bias));
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "use_residual", source, &step->residual));
  int64_t in = 0;
  int64_t out = 0;
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "in_features", source, &in, {.least = 1}));
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "out_features", source, &out, {.least = 1}));
  std::string activation = "torch.nn.modules.activation.Tanh";
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "activation_function", source, &activation));
  for (const auto& [torch, ours] : kActivations) {
    if (!activation.starts_with("torch.") || LastPart(activation) != torch) continue;
    step->activation = *nn::FindActivation(ours);
  }
  if (step->activation == nullptr) {
    return InvalidArgument(source, ": 'activation_function' '", activation, "' is not supported");
  }
  TESSERA_RETURN_IF_ERROR(
      RefuseOthers(config, source,
                   {"in_features", "out_features", "bias", "activation_function",
                    "module_input_name", "module_output_name", "use_residual"}));
  TESSERA_ASSIGN_OR_RETURN(const WeightFiles weights, reader.Weights(path));
  const auto read = [&](const char* tensor, const Shape& shape, Tensor* to) -> Status {
    const WeightEntry* const entry = weights.Find(tensor);
    if (entry == nullptr) return InvalidArgument(reader.Shown(path), ": '", tensor, "' is missing");
    if (Shape(entry->shape) != shape) {
      return InvalidArgument(reader.Shown(path), ": '", tensor, "' is ", Shape(entry->shape),
                             ", not ", shape, " as config.json says");
    }
    TESSERA_ASSIGN_OR_RETURN(const Tensor found, weights.Read(tensor));
    *to = CastCopy(found, DType::kFloat32);
    return OkStatus();
  };
  TESSERA_RETURN_IF_ERROR(read("linear.weight", {out, in}, &step->weight));
  if (bias) TESSERA_RETURN_IF_ERROR(read("linear.bias", {out}, &step->bias));
  if (step->residual && in != out) {
    TESSERA_RETURN_IF_ERROR(read("residual.weight", {out, in}, &step->residual_weight));
  }
  return OkStatus();
}

Status ReadNormalise(const Reader& reader, const std::string& path, Step* step) {
  const std::string name = In(path, "config.json");
  if (path.empty() || path == ".") return OkStatus();  // config.json there is the model's
  TESSERA_ASSIGN_OR_RETURN(const json config, reader.Object(name));
  TESSERA_RETURN_IF_ERROR(ReadPlaces(config, reader.Shown(name), step));
  return RefuseOthers(config, reader.Shown(name), {"module_input_name", "module_output_name"});
}

// What the Transformer is used for, and how long texts may be.
Status ReadTransformer(const Reader& reader, SentenceModules* modules) {
  constexpr const char* kFiles[] = {
      "sentence_bert_config.json",       "sentence_roberta_config.json",
      "sentence_distilbert_config.json", "sentence_camembert_config.json",
      "sentence_albert_config.json",     "sentence_xlm-roberta_config.json",
      "sentence_xlnet_config.json"};
  const std::string& path = modules->model_path;
  const auto* const file = std::find_if(std::begin(kFiles), std::end(kFiles),
                                        [&](const char* f) { return reader.Has(In(path, f)); });
  if (file == std::end(kFiles)) return OkStatus();
  const std::string source = reader.Shown(In(path, *file));
  TESSERA_ASSIGN_OR_RETURN(const json config, reader.Object(In(path, *file)));
  TESSERA_RETURN_IF_ERROR(
      ReadMember(config, "max_seq_length", source, &modules->max_tokens, {.least = 1}));
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "do_lower_case", source, &modules->lower_case));
  std::string task = "feature-extraction";
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "transformer_task", source, &task));
  modules->classifies = task == "sequence-classification";
  if (!modules->classifies && task != "feature-extraction") {
    return InvalidArgument(source, ": 'transformer_task' '", task, "' is not supported");
  }
  if (const auto kinds = config.find("modality_config"); kinds != config.end()) {
    const json text = {
        {"method", "forward"},
        {"method_output_name", modules->classifies ? "logits" : "last_hidden_state"}};
    if (!kinds->is_object() || kinds->size() != 1 || kinds->value("text", json()) != text) {
      return InvalidArgument(source, ": 'modality_config' ", kinds->dump(),
                             " is not supported; texts of which the model gives ",
                             text["method_output_name"].get<std::string>(), " are");
    }
  }
  for (const char* key : {"model_args", "model_kwargs", "tokenizer_args", "processor_kwargs",
                          "config_args", "config_kwargs"}) {
    json given = config.value(key, json());
    if (!given.is_object()) continue;
    // Where to load from and with which kernels: nothing that changes a result.
    for (const char* harmless : {"torch_dtype", "dtype", "attn_implementation", "cache_dir",
                                 "revision", "token", "local_files_only", "trust_remote_code"}) {
      given.erase(harmless);
    }
    TESSERA_RETURN_IF_ERROR(RefuseOthers(given, Concat(source, ": '", key, "'"), {}));
  }
  return RefuseOthers(config, source,
                      {"max_seq_length", "do_lower_case", "transformer_task", "modality_config",
                       "module_output_name", "model_args", "model_kwargs", "tokenizer_args",
                       "processor_kwargs", "config_args", "config_kwargs", "unpad_inputs"});
}

Status ReadPrompts(const Reader& reader, SentenceModules* modules) {
  const std::string name = "config_sentence_transformers.json";
  const std::string source = reader.Shown(name);
  TESSERA_ASSIGN_OR_RETURN(const json config, reader.Object(name));
  std::string kind = "SentenceTransformer";
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "model_type", source, &kind));
  if (kind != "SentenceTransformer" && kind != "CrossEncoder") {
    return InvalidArgument(source, ": 'model_type' '", kind, "' is not supported");
  }
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "default_prompt_name", source, &modules->prompt_name));
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "activation_fn", source, &modules->activation));
  TESSERA_RETURN_IF_ERROR(
      ReadMember(config, "truncate_dim", source, &modules->dimensions, {.least = 1}));
  if (const auto prompts = config.find("prompts"); prompts != config.end() && !prompts->is_null()) {
    if (!prompts->is_object()) return InvalidArgument(source, ": 'prompts' must be an object");
    for (const auto& [key, text] : prompts->items()) {
      if (!text.is_null() && !text.is_string()) {
        return InvalidArgument(source, ": 'prompts' of '", key, "' must be a text");
      }
      modules->prompts[key] = text.is_null() ? "" : text.get<std::string>();
    }
  }
  if (!modules->prompt_name.empty() && !modules->prompts.contains(modules->prompt_name)) {
    return InvalidArgument(source, ": 'default_prompt_name' '", modules->prompt_name,
                           "' is none of 'prompts'");
  }
  return OkStatus();
}

struct Listed {
  std::string type;  // "Pooling"
  std::string path;
};

StatusOr<std::vector<Listed>> ListOf(const Reader& reader) {
  const std::string source = reader.Shown(kModules);
  TESSERA_ASSIGN_OR_RETURN(const json list, reader.Parsed(kModules));
  if (!list.is_array() || list.empty()) return InvalidArgument(source, " must list modules");
  std::vector<Listed> modules;
  for (const json& entry : list) {
    if (!entry.is_object()) return InvalidArgument(source, ": a module must be an object");
    Listed listed;
    TESSERA_RETURN_IF_ERROR(ReadMember(entry, "type", source, &listed.type));
    TESSERA_RETURN_IF_ERROR(ReadMember(entry, "path", source, &listed.path));
    if (!listed.type.starts_with("sentence_transformers.")) {
      return InvalidArgument(source, ": module '", listed.type, "' is not supported");
    }
    listed.type = LastPart(listed.type);
    if (listed.path.starts_with("/") ||
        ("/" + listed.path + "/").find("/../") != std::string::npos) {
      return InvalidArgument(source, ": 'path' '", listed.path, "' leaves the folder");
    }
    modules.push_back(std::move(listed));
  }
  return modules;
}

}  // namespace

int64_t SentenceStep::SizeOf(int64_t size) const {
  if (kind == Kind::kPool) return size * std::ssize(pooling);
  return kind == Kind::kDense ? weight.size(0) : size;
}

StatusOr<std::optional<SentenceModules>> SentenceModules::OfFolder(const std::string& folder,
                                                                   bool hides_paths) {
  const Reader reader(folder, hides_paths);
  SentenceModules modules;
  if (!reader.Has(kModules)) {
    // A folder of version 1, or parts of another one.
    constexpr char kPooling[] = "1_Pooling";
    if (!reader.Has(In(kPooling, "config.json"))) return std::optional<SentenceModules>();
    modules.steps = {{.kind = Step::Kind::kPool}, {.kind = Step::Kind::kNormalise}};
    TESSERA_RETURN_IF_ERROR(ReadPooling(reader, kPooling, &modules.steps[0]));
    return std::optional<SentenceModules>(std::move(modules));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Listed> list, ListOf(reader));
  if (list[0].type != "Transformer") {
    return InvalidArgument(reader.Shown(kModules), ": the first module is '", list[0].type,
                           "'; a Transformer is supported");
  }
  modules.model_path = list[0].path;
  TESSERA_RETURN_IF_ERROR(ReadTransformer(reader, &modules));
  TESSERA_RETURN_IF_ERROR(ReadPrompts(reader, &modules));
  bool pooled = false;
  for (size_t i = 1; i < list.size(); ++i) {
    const auto& [type, path] = list[i];
    Step step;
    if (type == "Pooling") {
      step.kind = Step::Kind::kPool;
      TESSERA_RETURN_IF_ERROR(ReadPooling(reader, path, &step));
    } else if (type == "Dense") {
      step.kind = Step::Kind::kDense;
      TESSERA_RETURN_IF_ERROR(ReadDense(reader, path, &step));
    } else if (type == "Normalize") {
      step.kind = Step::Kind::kNormalise;
      TESSERA_RETURN_IF_ERROR(ReadNormalise(reader, path, &step));
    } else if (type == "Dropout") {
      continue;  // of training alone
    } else {
      return InvalidArgument(reader.Shown(kModules), ": module '", type,
                             "' is not supported; Transformer, Pooling, Dense and Normalize are");
    }
    const bool pools = step.kind == Step::Kind::kPool;
    if (pooled == (pools || step.of_tokens)) {
      return InvalidArgument(reader.Shown(kModules), ": module '", path, "' ",
                             pooled
                                 ? "needs vectors of tokens, which Pooling before it has used"
                                 : "needs the vector of a text, which no Pooling before it makes");
    }
    pooled = pooled || pools;
    modules.steps.push_back(std::move(step));
  }
  if (!pooled && !modules.classifies) {
    return InvalidArgument(reader.Shown(kModules), " lists no Pooling");
  }
  return std::optional<SentenceModules>(std::move(modules));
}

std::string TransformerFolder(const std::string& folder) {
  if (PathExists(JoinPath(folder, "config.json"))) return folder;
  const Reader reader(folder, false);
  if (!reader.Has(kModules)) return folder;
  const auto list = ListOf(reader);
  const bool there = list.ok() && PathExists(reader.PathOf(In((*list)[0].path, "config.json")));
  return there ? reader.PathOf((*list)[0].path) : folder;
}

}  // namespace tessera::models
