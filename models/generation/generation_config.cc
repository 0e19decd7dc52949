// SPDX-License-Identifier: Apache-2.0
#include "models/generation/generation_config.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "models/family.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

constexpr double kMostPenalty = 2;  // OpenAI's bounds
constexpr double kMostBias = 100;

// Runs once: small rather than fast.
[[gnu::cold]] OptionTable MakeTable() {
  using G = GenerationConfig;
  OptionTable table = OptionTable::Of<G>("Generation");
  table
      .Add("max_new_tokens", &G::max_new_tokens, "at most so many new tokens",
           {.least = 0,
            .most = 1 << 30,
            .unset = Concat(kDefaultNewTokens, ", or what fits the model"),
            .aliases = {{"max_tokens", "OpenAI"}, {"max_completion_tokens", "OpenAI"}}})
      .Add("max_length", &G::max_length, "at most so many tokens of prompt and answer together",
           {.least = 1, .unset = "the model's positions"})
      .Add("do_sample", &G::do_sample,
           "sample tokens; a temperature, top-k, top-p, min-p, typical-p or cutoff asks for it as "
           "well")
      .Add("temperature", &G::temperature,
           "sample with this temperature; 0 takes the likeliest token", {.least = 0, .type = "T"})
      .Add("top_k", &G::top_k, "sample among the K likeliest tokens; 0 or -1: all",
           {.least = -1, .type = "K"})
      .Add("top_p", &G::top_p, "sample among the likeliest tokens that reach probability P; 1: all",
           {.least = 0, .most = 1, .type = "P"})
      .Add("min_p", &G::min_p,
           "sample among the tokens at least P times as likely as the likeliest; 0: all",
           {.least = 0, .most = 1, .type = "P"})
      .Add("typical_p", &G::typical_p,
           "sample among the tokens of the most usual surprise that reach probability P; 1: all",
           {.above = 0, .most = 1, .type = "P"})
      .Add("epsilon_cutoff", &G::epsilon_cutoff, "sample among the tokens of probability P; 0: all",
           {.least = 0, .below = 1, .type = "P"})
      .Add("eta_cutoff", &G::eta_cutoff,
           "epsilon_cutoff, and less where many tokens are likely; 0: all",
           {.least = 0, .below = 1, .type = "P"})
      .Add("repetition_penalty", &G::repetition_penalty,
           "makes tokens of prompt and answer less likely; 1: off", {.above = 0})
      .Add("encoder_repetition_penalty", &G::encoder_repetition_penalty,
           "makes tokens of the prompt more likely; 1: off", {.above = 0})
      .Add("presence_penalty", &G::presence_penalty,
           "subtracted from the scores of tokens that were written",
           {.least = -kMostPenalty, .most = kMostPenalty})
      .Add("frequency_penalty", &G::frequency_penalty,
           "subtracted from the scores of tokens as often as they were written",
           {.least = -kMostPenalty, .most = kMostPenalty})
      .Add("logit_bias", &G::logit_bias, "added to the scores of tokens, by id: 15:-1,27:0.5",
           {.least = -kMostBias, .most = kMostBias, .type = "ID:X"})
      .Add("suppress_tokens", &G::suppress_tokens, "ids of tokens that are never written")
      .Add("begin_suppress_tokens", &G::begin_suppress_tokens,
           "ids of tokens that are not written first")
      .Add("bad_words_ids", &G::bad_words_ids,
           "words that are not written, as lists of ids: 7;1,2,8")
      .Add("no_repeat_ngram_size", &G::no_repeat_ngram_size,
           "no run of N tokens comes twice; 0: any may", {.least = 0})
      .Add("min_new_tokens", &G::min_new_tokens, "the text does not end before N new tokens",
           {.least = 0, .unset = "min_length", .aliases = {{"min_tokens", "vLLM"}}})
      .Add("min_length", &G::min_length,
           "the text does not end before prompt and answer have N tokens", {.least = 0})
      .Add("forced_bos_token_id", &G::forced_bos_token_id, "id of the token behind a first one",
           {.unset = "any"})
      .Add("forced_eos_token_id", &G::forced_eos_token_ids,
           "ids of tokens of which one is the last at the limit", {.unset = "any"})
      .Add("num_beams", &G::num_beams, "beam search with B beams; 1: off",
           {.least = 1, .most = 1024, .type = "B"})
      .Add("length_penalty", &G::length_penalty,
           "beam search divides by length^X; above 0 favours longer texts")
      .Add("early_stopping", &G::early_stopping,
           "beam search ends when it has num_beams finished texts")
      .Add("num_return_sequences", &G::num_return_sequences,
           "write N texts for each prompt: samples, or the best of the beams",
           {.least = 1, .most = 1024, .type = "N", .aliases = {{"n", "OpenAI"}}})
      .Add("bos_token_id", &G::bos_token_id, "id of the token that begins a text",
           {.unset = "the model's"})
      .Add("decoder_start_token_id", &G::decoder_start_token_id,
           "id of the token that begins the text of a decoder beside an encoder",
           {.unset = "the model's"})
      .Add("eos_token_id", &G::eos_token_ids, "ids of tokens that end a text",
           {.unset = "the model's"})
      .Add("stop_strings", &G::stop_strings, "the text ends before this one",
           {.aliases = {{"stop", "OpenAI"}}})
      .Add("seed", &G::seed, "the same seed gives the same text");
  std::vector<UnsupportedKey> unsupported;
  for (const UnsupportedSetting& one : UnsupportedSettings()) {
    unsupported.push_back({one.key, one.neutral});
  }
  table.AddUnsupported(std::move(unsupported));
  return table;
}

// What a config.json says of generation that counts beside `file`, a generation_config.json;
// nullptr: there is none.
json OfModelConfig(const json& model_config, bool is_folder, const json* file) {
  const auto only = [&](std::initializer_list<const char*> keys) {
    json some = json::object();
    for (const char* key : keys) {
      if (model_config.contains(key)) some[key] = model_config[key];
    }
    return some;
  };
  if (file == nullptr) {
    return is_folder ? model_config
                     : only({"bos_token_id", "decoder_start_token_id", "eos_token_id"});
  }
  if (!file->is_object() || !model_config.is_object()) return json::object();
  if (file->value("_from_model_config", json()) == true) {
    json rest = model_config;
    for (const auto& [key, value] : file->items()) rest.erase(key);
    return rest;
  }
  // transformers writes on where the file has no end of text. Servers end texts as config.json
  // says, and so did whoever trained the model.
  const auto names = [&](const char* key) { return !file->value(key, json()).is_null(); };
  json rest =
      names("bos_token_id") ? json::object() : only({"bos_token_id", "decoder_start_token_id"});
  if (!names("eos_token_id")) rest.update(only({"eos_token_id"}));
  return rest;
}

}  // namespace

const std::vector<UnsupportedSetting>& UnsupportedSettings() {
  static const auto* settings = new std::vector<UnsupportedSetting>{
      {"encoder_no_repeat_ngram_size", 0},
      {"force_words_ids", nullptr, "constrained beam search"},
      {"constraints", nullptr, "constrained beam search"},
      {"sequence_bias", nullptr},
      {"exponential_decay_length_penalty", nullptr},
      {"penalty_alpha", 0.0, "contrastive search"},
      {"dola_layers", nullptr, "decoding by contrasting layers"},
      {"num_beam_groups", 1, "diverse beam search"},
      {"diversity_penalty", 0.0, "diverse beam search"},
      {"guidance_scale", 1.0, "classifier-free guidance"},
      {"renormalize_logits", false},
      {"assistant_model", nullptr, "assisted decoding"},
      {"prompt_lookup_num_tokens", nullptr, "assisted decoding"},
      {"num_assistant_tokens", 20, "assisted decoding"},
      {"max_time", nullptr, "a limit of time"},
      {"token_healing", false},
      {"top_h", nullptr},
      {"watermarking_config", nullptr, "a watermark"},
  };
  return *settings;
}

std::string UnsupportedSetting::Reason() const {
  return what.empty() ? "is not supported" : what + " is not supported";
}

const OptionTable& GenerationConfig::Table() {
  static const auto* table = new OptionTable(MakeTable());
  return *table;
}

Status GenerationConfig::Validate() const {
  TESSERA_RETURN_IF_ERROR(Table().Check(this));
  if (do_sample && temperature == 0) {
    return InvalidArgument("temperature must be above 0 to sample");
  }
  if (!logit_bias.empty() && logit_bias.begin()->first < 0) {
    return InvalidArgument("logit_bias has ", logit_bias.begin()->first, " for an id");
  }
  if (num_beams > 1 && do_sample) {
    return InvalidArgument("num_beams above 1 searches for the likeliest text and does not sample");
  }
  if (num_return_sequences > 1 && num_beams == 1 && !do_sample) {
    return InvalidArgument(
        "num_return_sequences above 1 needs sampling, or num_beams above 1: there is one likeliest "
        "text");
  }
  if (num_beams > 1 && num_return_sequences > num_beams) {
    return InvalidArgument("num_return_sequences must be at most num_beams, ", num_beams, ", not ",
                           num_return_sequences);
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
  TESSERA_ASSIGN_OR_RETURN(
      json supported, GenerationConfig::Table().SupportedOf(object, source, &config->not_applied));
  if (supported.value("early_stopping", json()) == "never") {
    config->not_applied.emplace_back("'early_stopping': \"never\"");
    supported.erase("early_stopping");
  }
  return GenerationConfig::Table().Apply(supported, source, config);
}

std::string NotApplied(const std::string& folder, const GenerationConfig& config) {
  if (config.not_applied.empty()) return "";
  std::string keys;
  for (const std::string& key : config.not_applied) keys += (keys.empty() ? "" : ", ") + key;
  return Concat(JoinPath(folder, config.not_applied_file), ": ", keys,
                config.not_applied.size() == 1 ? " is" : " are", " not supported, and not applied");
}

StatusOr<GenerationConfig> WithSettings(GenerationConfig config, const json& asked) {
  const double usual = config.temperature;
  TESSERA_RETURN_IF_ERROR(GenerationConfig::Table().Apply(asked, "generation", &config));
  const auto has = [&](const char* key) { return asked.contains(key) && !asked[key].is_null(); };
  if (!has("do_sample")) {
    constexpr const char* kSampling[] = {"temperature", "top_k",          "top_p",     "min_p",
                                         "typical_p",   "epsilon_cutoff", "eta_cutoff"};
    if (std::any_of(std::begin(kSampling), std::end(kSampling), has)) {
      config.do_sample = true;
    } else if (has("num_beams") && config.num_beams > 1) {
      // The file's sampling is for one beam; what is asked for beside beams is refused.
      config.do_sample = false;
    }
  }
  if (config.temperature == 0) {  // the likeliest token, whatever else asks for sampling
    config.do_sample = false;
    config.temperature = usual;
  }
  const std::pair<const char*, bool> searching[] = {
      {"length_penalty", config.length_penalty != GenerationConfig().length_penalty},
      {"early_stopping", config.early_stopping}};
  for (const auto& [key, matters] : searching) {
    if (has(key) && matters && config.num_beams == 1) {
      return InvalidArgument(key, " is for a search with num_beams above 1");
    }
  }
  if (!has("num_return_sequences")) {
    const int64_t most = config.num_beams > 1 || !config.do_sample ? config.num_beams : INT64_MAX;
    config.num_return_sequences = std::min(config.num_return_sequences, most);
  }
  TESSERA_RETURN_IF_ERROR(config.Validate());
  return config;
}

StatusOr<GenerationConfig> ReadGenerationConfig(const std::string& folder,
                                                const json& model_config) {
  GenerationConfig config;
  const std::string path = JoinPath(folder, config.not_applied_file);
  json file = json::object();
  const bool has_file = IsDirectory(folder) && PathExists(path);
  if (has_file) {
    TESSERA_ASSIGN_OR_RETURN(file, ReadJsonFile(path));
  } else {
    config.not_applied_file = "config.json";
  }
  TESSERA_RETURN_IF_ERROR(ApplyGenerationJson(
      OfModelConfig(model_config, IsDirectory(folder), has_file ? &file : nullptr),
      JoinPath(folder, "config.json"), &config));
  TESSERA_RETURN_IF_ERROR(ApplyGenerationJson(file, path, &config));
  if (config.temperature == 0) config.do_sample = false;
  if (!config.decoder_start_token_id) config.decoder_start_token_id = config.bos_token_id;
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
