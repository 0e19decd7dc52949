// SPDX-License-Identifier: Apache-2.0
#include "models/generation/generation_config.h"

#include <algorithm>
#include <cmath>

#include "core/file.h"
#include "data/tokenizer/json_text.h"
#include "models/family.h"

namespace tessera::models {
namespace {

using nlohmann::json;

// Reads typed members; remembers the first problem.
class FieldReader {
 public:
  FieldReader(const json& object, const std::string& source) : object_(object), source_(source) {}

  bool Has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

  template <typename T>
  void Integer(const char* key, T* value) {
    if (!Has(key)) return;
    if (!object_[key].is_number_integer()) return Fail(key, "an integer");
    *value = object_[key].get<int64_t>();
  }
  void Number(const char* key, double* value) {
    if (!Has(key)) return;
    if (!object_[key].is_number()) return Fail(key, "a number");
    *value = object_[key].get<double>();
  }
  void Boolean(const char* key, bool* value) {
    if (!Has(key)) return;
    if (!object_[key].is_boolean()) return Fail(key, "true or false");
    *value = object_[key].get<bool>();
  }
  // One, or a list of them.
  void Integers(const char* key, std::vector<int64_t>* values) {
    if (!Has(key)) return;
    const json list = object_[key].is_array() ? object_[key] : json::array({object_[key]});
    values->clear();
    for (const json& v : list) {
      if (!v.is_number_integer()) return Fail(key, "an integer or a list of them");
      values->push_back(v.get<int64_t>());
    }
  }
  void Strings(const char* key, std::vector<std::string>* values) {
    if (!Has(key)) return;
    const json list = object_[key].is_array() ? object_[key] : json::array({object_[key]});
    values->clear();
    for (const json& v : list) {
      if (!v.is_string()) return Fail(key, "a string or a list of them");
      values->push_back(v.get<std::string>());
    }
  }
  // Lists of integers, none of which is empty.
  void IntegerLists(const char* key, std::vector<std::vector<int64_t>>* lists) {
    constexpr char kKind[] = "a list of lists of integers";
    if (!Has(key)) return;
    if (!object_[key].is_array()) return Fail(key, kKind);
    lists->clear();
    for (const json& list : object_[key]) {
      if (!list.is_array() || list.empty()) return Fail(key, kKind);
      std::vector<int64_t>& values = lists->emplace_back();
      for (const json& v : list) {
        if (!v.is_number_integer()) return Fail(key, kKind);
        values.push_back(v.get<int64_t>());
      }
    }
  }
  void Note(const char* key, const json& neutral, std::vector<std::string>* not_applied) {
    if (!Has(key) || object_[key] == neutral) return;
    if (object_[key].is_array() && object_[key].empty()) return;
    not_applied->push_back(Concat("'", key, "': ", object_[key].dump()));
  }

  const Status& status() const { return status_; }

 private:
  void Fail(const char* key, const char* kind) {
    if (status_.ok()) {
      status_ =
          InvalidArgument(source_, ": '", key, "' must be ", kind, ", not ", object_[key].dump());
    }
  }

  const json& object_;
  const std::string& source_;
  Status status_;
};

// What changes the text and is not supported, with the value that changes nothing.
const std::vector<std::pair<const char*, json>>& UnsupportedKeys() {
  static const auto* keys = new std::vector<std::pair<const char*, json>>{
      {"encoder_no_repeat_ngram_size", 0},
      {"encoder_repetition_penalty", 1.0},
      {"force_words_ids", nullptr},
      {"constraints", nullptr},
      {"forced_bos_token_id", nullptr},
      {"forced_eos_token_id", nullptr},
      {"sequence_bias", nullptr},
      {"exponential_decay_length_penalty", nullptr},
      {"typical_p", 1.0},
      {"min_p", 0.0},
      {"epsilon_cutoff", 0.0},
      {"eta_cutoff", 0.0},
      {"penalty_alpha", 0.0},
      {"num_beam_groups", 1},
      {"diversity_penalty", 0.0},
      {"guidance_scale", 1.0},
      {"renormalize_logits", false},
  };
  return *keys;
}

}  // namespace

Status GenerationConfig::Validate() const {
  if (max_new_tokens && *max_new_tokens < 0) {
    return InvalidArgument("max_new_tokens must be at least 1, not ", *max_new_tokens);
  }
  if (!std::isfinite(temperature) || temperature < 0 || (do_sample && temperature == 0)) {
    return InvalidArgument("temperature must be above 0 to sample, not ", temperature);
  }
  if (top_k < 0) return InvalidArgument("top_k must be 0 (off) or more, not ", top_k);
  if (!(top_p > 0 && top_p <= 1)) return InvalidArgument("top_p must be in (0, 1], not ", top_p);
  if (!std::isfinite(repetition_penalty) || repetition_penalty <= 0) {
    return InvalidArgument("repetition_penalty must be above 0, not ", repetition_penalty);
  }
  for (const auto& [name, value] : {std::pair("presence_penalty", presence_penalty),
                                    std::pair("frequency_penalty", frequency_penalty)}) {
    if (!std::isfinite(value))
      return InvalidArgument(name, " must be a finite number, not ", value);
  }
  for (const auto& [id, bias] : logit_bias) {
    if (id >= 0 && std::isfinite(bias)) continue;
    return InvalidArgument("logit_bias must be finite numbers of token ids, not ", bias, " of ",
                           id);
  }
  for (const auto& [name, value] : {std::pair("no_repeat_ngram_size", no_repeat_ngram_size),
                                    std::pair("min_new_tokens", min_new_tokens.value_or(0)),
                                    std::pair("min_length", min_length)}) {
    if (value < 0) return InvalidArgument(name, " must be 0 (off) or more, not ", value);
  }
  if (num_beams < 1 || num_beams > 1024) {
    return InvalidArgument("num_beams must be in [1, 1024], not ", num_beams);
  }
  if (!std::isfinite(length_penalty)) {
    return InvalidArgument("length_penalty must be a finite number, not ", length_penalty);
  }
  if (num_beams > 1 && do_sample) {
    return InvalidArgument("num_beams above 1 searches for the likeliest text and does not sample");
  }
  if (num_beams > 1 && (presence_penalty != 0 || frequency_penalty != 0 || !logit_bias.empty())) {
    return InvalidArgument(
        "presence_penalty, frequency_penalty and logit_bias are not supported with num_beams above "
        "1");
  }
  if (num_beams > 1 && !stop_strings.empty()) {
    return InvalidArgument("stop strings are not supported with num_beams above 1");
  }
  for (const std::string& text : stop_strings) {
    if (text.empty()) return InvalidArgument("a stop string is empty");
  }
  return OkStatus();
}

Status ApplyGenerationJson(const json& object, const std::string& source,
                           GenerationConfig* config) {
  if (!object.is_object()) return InvalidArgument(source, ": not a JSON object");
  FieldReader reader(object, source);
  reader.Integer("max_new_tokens", &config->max_new_tokens);
  reader.Integer("max_length", &config->max_length);
  reader.Boolean("do_sample", &config->do_sample);
  reader.Number("temperature", &config->temperature);
  reader.Integer("top_k", &config->top_k);
  reader.Number("top_p", &config->top_p);
  reader.Number("repetition_penalty", &config->repetition_penalty);
  reader.Integer("num_beams", &config->num_beams);
  reader.Number("length_penalty", &config->length_penalty);
  reader.Integer("bos_token_id", &config->bos_token_id);
  reader.Integers("eos_token_id", &config->eos_token_ids);
  reader.Strings("stop_strings", &config->stop_strings);
  reader.Integers("suppress_tokens", &config->suppress_tokens);
  reader.Integers("begin_suppress_tokens", &config->begin_suppress_tokens);
  reader.IntegerLists("bad_words_ids", &config->bad_words_ids);
  reader.Integer("no_repeat_ngram_size", &config->no_repeat_ngram_size);
  reader.Integer("min_new_tokens", &config->min_new_tokens);
  reader.Integer("min_length", &config->min_length);
  if (object.value("early_stopping", json()) == "never") {
    reader.Note("early_stopping", nullptr, &config->not_applied);
  } else {
    reader.Boolean("early_stopping", &config->early_stopping);
  }
  for (const auto& [key, neutral] : UnsupportedKeys()) {
    reader.Note(key, neutral, &config->not_applied);
  }
  return reader.status();
}

std::string NotApplied(const std::string& folder, const GenerationConfig& config) {
  if (config.not_applied.empty()) return "";
  std::string keys;
  for (const std::string& key : config.not_applied) keys += (keys.empty() ? "" : ", ") + key;
  return Concat(JoinPath(folder, "generation_config.json"), ": ", keys,
                config.not_applied.size() == 1 ? " is" : " are", " not supported, and not applied");
}

StatusOr<GenerationConfig> WithRequest(GenerationConfig config, const GenerationRequest& request) {
  const auto set = [](const auto& asked, auto* value) {
    if (asked) *value = *asked;
  };
  set(request.max_new_tokens, &config.max_new_tokens);
  set(request.top_k, &config.top_k);
  set(request.top_p, &config.top_p);
  set(request.repetition_penalty, &config.repetition_penalty);
  set(request.presence_penalty, &config.presence_penalty);
  set(request.frequency_penalty, &config.frequency_penalty);
  set(request.logit_bias, &config.logit_bias);
  set(request.num_beams, &config.num_beams);
  set(request.length_penalty, &config.length_penalty);
  set(request.stop_strings, &config.stop_strings);
  set(request.seed, &config.seed);
  const bool samples = request.temperature || request.top_k || request.top_p;
  if (samples) config.do_sample = request.temperature != 0.0;
  if (request.temperature && *request.temperature != 0) config.temperature = *request.temperature;
  // The file's sampling is for one beam; what is asked for beside beams is refused.
  if (request.num_beams && *request.num_beams > 1 && !samples) config.do_sample = false;
  set(request.do_sample, &config.do_sample);
  TESSERA_RETURN_IF_ERROR(config.Validate());
  return config;
}

StatusOr<GenerationConfig> ReadGenerationConfig(const std::string& folder,
                                                const json& model_config) {
  GenerationConfig config;
  json ids = json::object();
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    if (model_config.contains(key)) ids[key] = model_config[key];
  }
  TESSERA_RETURN_IF_ERROR(ApplyGenerationJson(ids, JoinPath(folder, "config.json"), &config));
  const std::string path = JoinPath(folder, "generation_config.json");
  if (IsDirectory(folder) && PathExists(path)) {
    TESSERA_ASSIGN_OR_RETURN(const json object, data::ReadJsonFile(path));
    TESSERA_RETURN_IF_ERROR(ApplyGenerationJson(object, path, &config));
  }
  const StatusOr<const Family*> family = FamilyOf(model_config);
  if (!family.ok()) return config;
  for (const TokenKey& key : (*family)->texts.token_keys) {
    const auto found = model_config.find(key.key);
    if (!key.ends_text || found == model_config.end() || !found->is_number_integer()) continue;
    const int64_t id = found->get<int64_t>();
    std::vector<int64_t>& ends = config.eos_token_ids;
    if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  }
  return config;
}

}  // namespace tessera::models
