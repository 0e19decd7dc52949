// SPDX-License-Identifier: Apache-2.0
#include "serve/text_fields.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "data/tokenizer/utf8.h"
#include "models/generation/special_tokens.h"

namespace tessera::serve {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostStops = 16;
constexpr size_t kLongestText = 64 << 20;
constexpr double kMostPenalty = 2;
constexpr double kMostBias = 100;

std::map<int64_t, double> BiasField(Fields& fields, const ServedModel& served) {
  const char* const kKey = "logit_bias";
  std::map<int64_t, double> bias;
  const ordered_json* const field = fields.Any(kKey);
  if (field == nullptr) return bias;
  if (!field->is_object()) fields.Fail(kKey, "must be an object of numbers by token ids");
  if (!field->is_object()) return bias;
  for (const auto& [key, value] : field->items()) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool is_id = error == std::errc() && end == key.data() + key.size();
    if (!is_id || id < 0 || id >= served.model.vocab_size()) {
      fields.Fail(kKey,
                  Concat("'", key, "' is no id of the vocabulary of ", served.model.vocab_size()));
      return bias;
    } else if (!value.is_number() || !(std::abs(value.get<double>()) <= kMostBias)) {
      fields.Fail(kKey, Concat("of ", key, " must be a number from -100 to 100"));
      return bias;
    } else {
      bias[id] = value.get<double>();
    }
  }
  return bias;
}

}  // namespace

models::GenerationRequest SamplingFields(Fields& fields, const ServedModel& served) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  models::GenerationRequest request;
  request.temperature = fields.Number("temperature", 0, kLargest);
  request.top_p = fields.Number("top_p", 0, 1);
  request.top_k = fields.Integer("top_k", 0);
  request.repetition_penalty = fields.Number("repetition_penalty", 0, kLargest);
  request.presence_penalty = fields.Number("presence_penalty", -kMostPenalty, kMostPenalty);
  request.frequency_penalty = fields.Number("frequency_penalty", -kMostPenalty, kMostPenalty);
  request.stop_strings = fields.Texts("stop", kMostStops);
  if (request.stop_strings) std::erase(*request.stop_strings, "");
  if (const auto seed = fields.Integer("seed", std::numeric_limits<int64_t>::min())) {
    request.seed = static_cast<uint64_t>(*seed);
  }
  if (auto bias = BiasField(fields, served); !bias.empty()) request.logit_bias = std::move(bias);
  // Who says how tokens are chosen asks for no beams, which would choose otherwise.
  const bool chooses = request.temperature || request.top_p || request.top_k ||
                       request.repetition_penalty || request.presence_penalty ||
                       request.frequency_penalty || request.stop_strings || request.logit_bias;
  if (chooses) request.num_beams = 1;
  return request;
}

StatusOr<models::GenerationConfig> ConfigOf(const ServedModel& served,
                                            const models::GenerationRequest& sampling) {
  TESSERA_ASSIGN_OR_RETURN(models::GenerationConfig config,
                           models::WithRequest(served.defaults, sampling));
  if (config.max_new_tokens == 0) config.num_beams = 1;  // nothing is written
  if (config.num_beams == 1) return config;
  return InvalidArgument("the model's generation_config.json asks for ", config.num_beams,
                         " beams, which a server does not search; say how tokens are chosen "
                         "(\"temperature\": 0 takes the likeliest)");
}

int ModelField(Fields& fields, const Service& service) {
  const StatusOr<int> adapter = service.AdapterOf(fields.Text("model"));
  if (!adapter.ok()) fields.Fail("model", adapter.status());
  return adapter.ok() ? *adapter : kBaseModel;
}

bool StreamUsageField(Fields& fields) {
  const char* const kKey = "stream_options";
  const ordered_json* const options = fields.Any(kKey);
  if (options == nullptr) return false;
  if (!options->is_object()) fields.Fail(kKey, "must be an object");
  Fields inner(*options);
  const bool usage = inner.Flag("include_usage").value_or(false);
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
  return data::ReplaceInvalidUtf8(served.tokenizer.Decode(narrow));
}

bool Refused(Service& service, const Call& call, Fields& fields) {
  const Status status = fields.Finish();
  if (status.ok()) return false;
  service.Refuse(call.exchange, status, fields.failed());
  return true;
}

std::string TokenText(const data::Tokenizer& tokenizer, int64_t id) {
  const std::string_view bytes = tokenizer.TokenBytes(static_cast<int32_t>(id));
  if (data::FindInvalidUtf8(bytes) == data::kNoInvalidUtf8) return std::string(bytes);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

}  // namespace tessera::serve
