// SPDX-License-Identifier: Apache-2.0
#include "runtime/generate_options.h"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/nearest_name.h"
#include "base/options.h"
#include "base/utf8.h"
#include "models/generation/grammar/json_grammar.h"
#include "nlohmann/json.hpp"
#include "runtime/border.h"
#include "runtime/handles.h"

struct tsr_settings {
  nlohmann::json asked = nlohmann::json::object();
};

namespace tessera::runtime {
namespace {

using models::GenerationConfig;
using nlohmann::json;

StatusOr<std::vector<std::string>> StopTexts(const tsr_generate_options& options) {
  constexpr size_t kMost = 1024;
  constexpr char kName[] = "tsr_generate_options: stop";
  if (options.stop_count > kMost) return InvalidArgument(kName, ": ", options.stop_count, " texts");
  TESSERA_RETURN_IF_ERROR(CheckArray(options.stop, options.stop_count, kName));
  std::vector<std::string> texts;
  for (size_t i = 0; i < options.stop_count; ++i) {
    if (options.stop[i] == nullptr) return InvalidArgument(kName, ": text ", i, " is NULL");
    TESSERA_RETURN_IF_ERROR(CheckUtf8(options.stop[i], kName));
    texts.emplace_back(options.stop[i]);
  }
  return texts;
}

// Whether the caller's options are of a version with `settings` (0.8.0).
bool HasSettings(const tsr_generate_options& options) {
  constexpr size_t kEnd = offsetof(tsr_generate_options, settings) + sizeof(tsr_settings*);
  return options.size >= kEnd;
}

// What tsr_generate_options_set has put there is there until it is cleared, in copies, too.
Status CheckSettings(const tsr_generate_options& options) {
  if (options.settings == nullptr || IsHandle(options.settings, HandleKind::kSettings)) {
    return OkStatus();
  }
  return InvalidArgument("tsr_generate_options: settings is not NULL, nor what ",
                         "tsr_generate_options_set has put there, or was cleared");
}

tsr_settings* NewSettings() {
  auto settings = std::make_unique<tsr_settings>();
  AddHandle(settings.get(), HandleKind::kSettings);
  return settings.release();
}

Status SetOption(tsr_generate_options* options, const char* name, const char* value) {
  TESSERA_RETURN_IF_ERROR(CheckGiven(options, "options"));
  TESSERA_RETURN_IF_ERROR(CheckGiven(name, "name"));
  TESSERA_RETURN_IF_ERROR(CheckGiven(value, "value"));
  if (!HasSettings(*options)) {
    return InvalidArgument("tsr_generate_options: size is ", options->size,
                           "; set it to sizeof(tsr_generate_options)");
  }
  TESSERA_RETURN_IF_ERROR(CheckSettings(*options));
  const OptionTable& table = GenerationConfig::Table();
  const Option* const option = table.FindByAnyName(name);
  if (option == nullptr) {
    for (const models::UnsupportedSetting& one : models::UnsupportedSettings()) {
      if (one.key != name) continue;
      return InvalidArgument("tsr_generate_options: ", name, ": ", one.Reason());
    }
    std::vector<std::string> known;
    for (const Option& one : table.options()) known.push_back(one.key);
    return InvalidArgument("tsr_generate_options: there is no '", name, "'",
                           DidYouMean(name, known));
  }
  TESSERA_RETURN_IF_ERROR(CheckUtf8(value, name));
  TESSERA_ASSIGN_OR_RETURN(json converted, option->Convert(option->FromText(value),
                                                           Concat("tsr_generate_options: ", name)));
  if (options->settings == nullptr) options->settings = NewSettings();
  // Of a list of texts, one more.
  json& asked = options->settings->asked[option->key];
  if (option->kind == Option::Kind::kTexts && asked.is_array()) {
    asked.insert(asked.end(), converted.begin(), converted.end());
  } else {
    asked = std::move(converted);
  }
  return OkStatus();
}

}  // namespace

Status CheckUtf8(std::string_view text, const char* what) {
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid == kNoInvalidUtf8) return OkStatus();
  return InvalidArgument(what, ": invalid UTF-8 at byte ", invalid);
}

bool HasSchema(const tsr_generate_options& options) {
  return options.json_schema != nullptr && *options.json_schema != '\0';
}

StatusOr<std::shared_ptr<const models::TokenGrammar>> GrammarOf(
    const tsr_model& model, const tsr_generate_options& options) {
  if (!HasSchema(options)) return std::shared_ptr<const models::TokenGrammar>();
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, TokenizerOf(model));
  return models::TokenGrammarOfSchema(options.json_schema, "tsr_generate_options: json_schema",
                                      *tokenizer);
}

StatusOr<GenerationConfig> ConfigOf(const GenerationConfig& defaults,
                                    const tsr_generate_options& options) {
  if (options.sampling < TSR_SAMPLING_DEFAULT || options.sampling > TSR_SAMPLING_ON) {
    return InvalidArgument("tsr_generate_options: sampling ", options.sampling, " is unknown");
  }
  TESSERA_RETURN_IF_ERROR(CheckSettings(options));
  json asked = json::object();
  const auto take = [&](const char* key, const auto& value) {
    if (value != 0) asked[key] = value;
  };
  take("max_new_tokens", options.max_new_tokens);
  take("temperature", options.temperature);
  take("top_k", options.top_k);
  take("top_p", options.top_p);
  take("repetition_penalty", options.repetition_penalty);
  take("num_beams", options.num_beams);
  take("length_penalty", options.length_penalty);
  take("seed", static_cast<int64_t>(options.seed));
  if (options.sampling != TSR_SAMPLING_DEFAULT) {
    asked["do_sample"] = options.sampling == TSR_SAMPLING_ON;
  }
  if (options.stop_count > 0) {
    TESSERA_ASSIGN_OR_RETURN(asked["stop_strings"], StopTexts(options));
  }
  if (options.settings != nullptr) asked.update(options.settings->asked);
  if (HasSchema(options)) {
    if (asked.value("num_beams", 1) > 1) {
      return InvalidArgument(
          "tsr_generate_options: json_schema does not go with num_beams above 1");
    }
    asked["num_beams"] = 1;  // whatever the folder asks for
  }
  return models::WithSettings(defaults, asked);
}

}  // namespace tessera::runtime

using tessera::runtime::AtBorder;

tsr_status* tsr_generate_options_set(tsr_generate_options* options, const char* name,
                                     const char* value) {
  return AtBorder([&] { return tessera::runtime::SetOption(options, name, value); });
}

void tsr_generate_options_clear(tsr_generate_options* options) {
  using tessera::runtime::HandleKind;
  if (options == nullptr || !tessera::runtime::HasSettings(*options)) return;
  tsr_settings* const settings = std::exchange(options->settings, nullptr);
  if (!tessera::runtime::IsHandle(settings, HandleKind::kSettings)) return;  // of a copy, cleared
  tessera::runtime::RemoveHandle(settings, HandleKind::kSettings).IgnoreError();
  delete settings;
}
