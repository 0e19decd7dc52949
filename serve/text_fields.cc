// SPDX-License-Identifier: Apache-2.0
#include "serve/text_fields.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "models/generation/special_tokens.h"

namespace tessera::serve {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMostChoices = 128;
constexpr size_t kMostStops = 16;
constexpr size_t kLongestText = 64 << 20;

// Fields of OpenAI's and vLLM's requests that may say what is done anyhow.
struct OtherField {
  const char* key;
  ordered_json usual;  // beside null, false, and what is empty
  const char* why;
};

const std::vector<OtherField>& OtherFields() {
  static const auto* const fields = new std::vector<OtherField>{
      {"modalities", ordered_json::array({"text"}), "answers are text alone"},
      {"verbosity", "medium", "is not supported"},
      {"reasoning_effort", nullptr,
       "is a matter of the chat template: give chat_template_kwargs {\"reasoning_effort\": ...}"},
      {"functions", nullptr, "give `tools`"},
      {"function_call", "none", "give `tool_choice`"},
      {"add_generation_prompt", true, "the answer is always a turn of its own"},
      {"continue_final_message", false, "the answer is always a turn of its own"},
      {"skip_special_tokens", true, "special tokens are left out of answers"},
      {"spaces_between_special_tokens", true, "special tokens are left out of answers"},
      {"include_stop_str_in_output", false, "an answer ends before its stop string"},
      {"ignore_eos", false, "is not supported; give `min_tokens`"},
      {"stop_token_ids", nullptr, "give `eos_token_id`, which takes a list"},
      {"use_beam_search", false, "a server does not search beams"},
  };
  return *fields;
}

// Ids of the vocabulary, and texts that can be looked for.
void CheckSettings(Fields& fields, const ServedModel& served, nlohmann::json* asked) {
  const int64_t vocabulary = served.model.vocab_size();
  const nlohmann::json biases = asked->value("logit_bias", nlohmann::json::object());
  for (const auto& [id, bias] : biases.items()) {
    if (std::stoll(id) < vocabulary) continue;
    fields.Fail("logit_bias", Concat("'", id, "' is no id of the vocabulary of ", vocabulary));
  }
  if (asked->value("num_beams", 1) > 1) fields.Fail("num_beams", "a server does not search beams");
  const auto stops = asked->find("stop_strings");
  if (stops == asked->end()) return;
  if (stops->size() > kMostStops) {
    fields.Fail("stop", Concat("must be a text, or a list of at most ", kMostStops));
  }
  std::erase(stops->get_ref<nlohmann::json::array_t&>(), "");
}

}  // namespace

nlohmann::json SamplingFields(Fields& fields, const ServedModel& served) {
  nlohmann::json asked = nlohmann::json::object();
  for (const Option& option : models::GenerationConfig::Table().options()) {
    fields.Setting(option, &asked);
  }
  for (const models::UnsupportedSetting& one : models::UnsupportedSettings()) {
    fields.Refuse(one.key, one.Reason(), *one.neutral);
  }
  for (const OtherField& one : OtherFields()) fields.Refuse(one.key, one.why, one.usual);
  fields.Allow({"user", "service_tier", "safety_identifier", "prompt_cache_key",
                "prompt_cache_retention", "prediction"});
  CheckSettings(fields, served, &asked);
  // Who says how tokens are chosen asks for no beams, which would choose otherwise.
  for (const auto& [key, value] : asked.items()) {
    constexpr std::string_view kOther[] = {"seed", "max_new_tokens", "max_length",
                                           "num_return_sequences"};
    if (std::ranges::find(kOther, key) != std::end(kOther)) continue;
    asked["num_beams"] = 1;
    break;
  }
  return asked;
}

int64_t ChoicesField(Fields& fields, nlohmann::json* asked) {
  const char* const kKey = "num_return_sequences";
  const int64_t choices = asked->value(kKey, int64_t{1});
  asked->erase(kKey);
  if (choices <= kMostChoices) return choices;
  fields.Fail("n", Concat("must be at most ", kMostChoices, ", not ", choices));
  return 1;
}

StatusOr<models::GenerationConfig> ConfigOf(const ServedModel& served,
                                            const nlohmann::json& asked) {
  TESSERA_ASSIGN_OR_RETURN(models::GenerationConfig config,
                           models::WithSettings(served.defaults, asked));
  if (config.max_new_tokens == 0) config.num_beams = 1;  // nothing is written
  config.num_return_sequences = 1;
  if (config.num_beams == 1) return config;
  return InvalidArgument("the model's folder asks for ", config.num_beams,
                         " beams, which a server does not search; say how tokens are chosen "
                         "(\"temperature\": 0 takes the likeliest)");
}

models::Shared<models::GenerationConfig> ConfigBehindPrompt(
    const ServedModel& served, const nlohmann::json& asked,
    const models::Shared<models::GenerationConfig>& config, const std::vector<int64_t>& prompt,
    int adapter) {
  const int64_t positions = served.model.positions_left(adapter);
  if (positions == 0 || !config->max_new_tokens || asked.contains("max_new_tokens")) return config;
  const int64_t room = positions - std::ssize(BeginOfText(served, prompt));
  if (room < 1 || *config->max_new_tokens <= room) return config;
  models::Shared<models::GenerationConfig> cut = config;
  cut.Own().max_new_tokens = room;
  return cut;
}

std::vector<int64_t> BeginOfText(const ServedModel& served, std::vector<int64_t> prompt) {
  if (const auto* both = served.model.encoder_decoder()) {
    return {served.defaults.decoder_start_token_id.value_or(both->decoder_start())};
  }
  if (const auto format = served.model.text_format(); format != nullptr) {
    if (auto completed = format->PreparePrompt(prompt); completed.ok()) prompt = *completed;
  }
  const models::GenerationConfig& config = served.defaults;
  if (!prompt.empty() || (!config.bos_token_id && config.eos_token_ids.empty())) return prompt;
  return {config.bos_token_id ? *config.bos_token_id : config.eos_token_ids[0]};
}

int ModelField(Fields& fields, const Service& service) {
  const StatusOr<int> adapter = service.AdapterOf(fields.Text("model"));
  if (!adapter.ok()) fields.Fail("model", adapter.status());
  return adapter.ok() ? *adapter : kBaseModel;
}

namespace {

// The grammar of {"name": ..., "schema": {...}, "strict": true}, from what clients of OpenAI's
// interface expect: a strict schema says all that an object may have.
StatusOr<GrammarCache::Grammar> GrammarOfJsonSchema(Fields& outer, Service& service) {
  const std::string kKey = "json_schema";
  const ordered_json* const given = outer.Any(kKey);
  if (given == nullptr) return InvalidArgument(kKey, ": is missing");
  if (!given->is_object()) return InvalidArgument(kKey, ": must be an object");
  Fields fields(*given);
  const bool strict = fields.Flag("strict").value_or(false);
  const ordered_json* const schema = fields.Any("schema");
  if (schema == nullptr) fields.Fail("schema", "is missing");
  for (const char* text : {"name", "description"}) fields.Text(text);
  if (const Status status = fields.Finish(); !status.ok()) {
    return InvalidArgument(kKey, ".", status.message());
  }
  return service.grammars().OfSchema(
      *schema, kKey + ".schema",
      strict ? models::JsonObjects::kClosed : models::JsonObjects::kOpen);
}

StatusOr<GrammarCache::Grammar> GrammarOfFormat(const ordered_json& format, Service& service) {
  if (!format.is_object()) return InvalidArgument("must be an object with a `type`");
  Fields fields(format);
  const auto type = fields.Text("type");
  StatusOr<GrammarCache::Grammar> grammar = GrammarCache::Grammar();
  if (type == "json_object") {
    const ordered_json* const schema = fields.Any("schema");  // llama.cpp's place for one
    grammar = schema != nullptr ? service.grammars().OfSchema(*schema, "schema")
                                : service.grammars().OfSchema({{"type", "object"}}, "type");
  } else if (type == "json_schema") {
    grammar = GrammarOfJsonSchema(fields, service);
  } else if (type != "text") {
    fields.Fail("type", "must be text, json_object or json_schema");
  }
  TESSERA_RETURN_IF_ERROR(grammar.status());
  TESSERA_RETURN_IF_ERROR(fields.Finish());
  return grammar;
}

}  // namespace

std::shared_ptr<const models::TokenGrammar> ResponseFormatField(Fields& fields, Service& service) {
  const std::string kKey = "response_format";
  const ordered_json* const format = fields.Any(kKey);
  if (format == nullptr) return nullptr;
  auto grammar = GrammarOfFormat(*format, service);
  if (grammar.ok()) return *std::move(grammar);
  const std::string_view message = grammar.status().message();
  const char* const joint = format->is_object() ? "." : ": ";
  fields.Fail(kKey, InvalidArgument(kKey, joint, message));
  return nullptr;
}

bool StreamUsageField(Fields& fields) {
  const char* const kKey = "stream_options";
  const ordered_json* const options = fields.Any(kKey);
  if (options == nullptr) return false;
  if (!options->is_object()) fields.Fail(kKey, "must be an object");
  Fields inner(*options);
  const bool usage = inner.Flag("include_usage").value_or(false);
  inner.Allow({"include_obfuscation"});
  inner.Refuse("continuous_usage_stats", "usage is reported once, at the end");
  if (const Status status = inner.Finish(); !status.ok()) fields.Fail(kKey, status);
  return usage;
}

StatusOr<std::vector<int64_t>> PromptTokens(const Service& service, const std::string& text,
                                            int adapter) {
  const ServedModel& served = service.served();
  const int64_t positions = served.model.positions_left(adapter);
  if (positions > 0 && std::ssize(text) / service.longest_token() > positions) {
    return InvalidArgument("the prompt has ", text.size(), " bytes, more than the model's ",
                           positions, " positions can hold");
  }
  return models::EncodePrompt(served.tokenizer, served.model.config(), text);
}

StatusOr<std::vector<int64_t>> PromptIds(const ServedModel& served, const ordered_json& ids) {
  std::vector<int64_t> prompt;
  for (const ordered_json& id : ids) {
    const int64_t size = served.model.vocab_size();
    const bool fits = id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < size;
    if (!fits) {
      const std::string shown = id.is_number() ? Concat(", ", JsonText(id), ",") : "";
      return InvalidArgument("token ", prompt.size(), shown, " is no id of the vocabulary of ",
                             size);
    }
    prompt.push_back(id.get<int64_t>());
  }
  return prompt;
}

StatusOr<std::string> TextOfIds(const ServedModel& served, const std::vector<int64_t>& ids) {
  size_t size = 0;
  for (const int64_t id : ids) size += served.tokenizer.TokenBytes(static_cast<int32_t>(id)).size();
  if (size > kLongestText) {
    return InvalidArgument("the text of the ", ids.size(), " ids has more than ", kLongestText,
                           " bytes");
  }
  const std::vector<int32_t> narrow(ids.begin(), ids.end());
  return ReplaceInvalidUtf8(served.tokenizer.Decode(narrow));
}

bool Refused(Service& service, const Call& call, Fields& fields) {
  const Status status = fields.Finish();
  if (status.ok()) return false;
  service.Refuse(call.exchange, status, fields.failed());
  return true;
}

std::string TokenText(const data::Tokenizer& tokenizer, int64_t id) {
  const std::string_view bytes = tokenizer.TokenBytes(static_cast<int32_t>(id));
  if (FindInvalidUtf8(bytes) == kNoInvalidUtf8) return std::string(bytes);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

}  // namespace tessera::serve
