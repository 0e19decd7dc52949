// SPDX-License-Identifier: Apache-2.0
// Text that a model writes, token by token.
#include "models/generation/generate.h"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/nearest_name.h"
#include "base/options.h"
#include "base/utf8.h"
#include "data/chat/chat_tokens.h"
#include "models/generation/generation_config.h"
#include "models/generation/grammar/json_grammar.h"
#include "models/generation/special_tokens.h"
#include "models/open/answer_config.h"
#include "runtime/border.h"
#include "runtime/context.h"
#include "runtime/tessera.h"

struct tsr_settings {
  nlohmann::json asked = nlohmann::json::object();
};

namespace tessera::runtime {
namespace {

using models::GenerationConfig;
using models::GenerationResult;
using nlohmann::json;

Status CheckUtf8(std::string_view text, const char* what) {
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid == kNoInvalidUtf8) return OkStatus();
  return InvalidArgument(what, ": invalid UTF-8 at byte ", invalid);
}

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

bool HasSchema(const tsr_generate_options& options) {
  return options.json_schema != nullptr && *options.json_schema != '\0';
}

// What the text must fit; nullptr: anything.
StatusOr<std::shared_ptr<const models::TokenGrammar>> GrammarOf(
    const tsr_model& model, const tsr_generate_options& options) {
  if (!HasSchema(options)) return std::shared_ptr<const models::TokenGrammar>();
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, TokenizerOf(model));
  return models::TokenGrammarOfSchema(options.json_schema, "tsr_generate_options: json_schema",
                                      *tokenizer);
}

// Members that are 0 ask for nothing; those of tsr_generate_options_set win.
StatusOr<GenerationConfig> ConfigOf(const GenerationConfig& defaults,
                                    const tsr_generate_options& options) {
  if (options.sampling < TSR_SAMPLING_DEFAULT || options.sampling > TSR_SAMPLING_ON) {
    return InvalidArgument("tsr_generate_options: sampling ", options.sampling, " is unknown");
  }
  json asked = json::object();
  const auto take = [&](const char* key, const auto& value) {
    if (value != 0) asked[key] = value;
  };
  take("max_new_tokens", options.max_new_tokens);
  take("temperature", options.temperature);
  take("top_k", options.top_k);
  if (options.top_k == -1) asked["top_k"] = 0;
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

// Whether the caller's options are of a version with `settings` (0.8.0).
bool HasSettings(const tsr_generate_options& options) {
  constexpr size_t kEnd = offsetof(tsr_generate_options, settings) + sizeof(tsr_settings*);
  return options.size >= kEnd;
}

Status SetOption(tsr_generate_options* options, const char* name, const char* value) {
  TESSERA_RETURN_IF_ERROR(CheckGiven(options, "options"));
  TESSERA_RETURN_IF_ERROR(CheckGiven(name, "name"));
  TESSERA_RETURN_IF_ERROR(CheckGiven(value, "value"));
  if (!HasSettings(*options)) {
    return InvalidArgument("tsr_generate_options: size is ", options->size,
                           "; set it to sizeof(tsr_generate_options)");
  }
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
  if (options->settings == nullptr) options->settings = new tsr_settings;
  // Of a list of texts, one more.
  json& asked = options->settings->asked[option->key];
  if (option->kind == Option::Kind::kTexts && asked.is_array()) {
    asked.insert(asked.end(), converted.begin(), converted.end());
  } else {
    asked = std::move(converted);
  }
  return OkStatus();
}

int EndOf(GenerationResult::End end) {
  switch (end) {
    case GenerationResult::End::kLength:
      return TSR_END_LENGTH;
    case GenerationResult::End::kEndOfText:
      return TSR_END_OF_TEXT;
    case GenerationResult::End::kStopString:
      return TSR_END_STOP;
  }
  return TSR_END_NONE;
}

// Continues the prompt that `prompt_of` makes for a model, which may adapt the configuration.
template <typename PromptOf>
Status Generate(tsr_context* context, const PromptOf& prompt_of, const tsr_generate_options* given,
                tsr_token_callback callback, void* user) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  TESSERA_ASSIGN_OR_RETURN(const tsr_generate_options options,
                           OptionsOf(given, "tsr_generate_options"));
  if (callback == nullptr) return InvalidArgument("callback is NULL");
  const tsr_model& model = call.model();
  TESSERA_ASSIGN_OR_RETURN(GenerationConfig config, ConfigOf(model.generation, options));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> prompt, prompt_of(call, &config));
  TESSERA_ASSIGN_OR_RETURN(const auto grammar, GrammarOf(model, options));
  bool stopped = false;
  const auto on_token = [&](int64_t row, int64_t id, std::string_view text) {
    const tsr_token token = {sizeof(tsr_token), id, text.data(), text.size(), TSR_END_NONE, row};
    stopped = callback(user, &token) != 0;
    return stopped ? Failure(StatusCode::kCancelled, "the callback ended it") : OkStatus();
  };
  const StatusOr<std::vector<GenerationResult>> results =
      models::Generate(*model.model, {prompt}, config,
                       {.tokenizer = model.tokenizer.get(),
                        .on_token = on_token,
                        .grammar = grammar,
                        .adapter = call.adapter()});
  if (stopped) return OkStatus();
  TESSERA_RETURN_IF_ERROR(results.status());
  for (size_t i = 0; i < results->size(); ++i) {
    const tsr_token last = {sizeof(tsr_token),      -1, "", 0, EndOf((*results)[i].end),
                            static_cast<int64_t>(i)};
    if (callback(user, &last) != 0) break;
  }
  return OkStatus();
}

Status GenerateIds(tsr_context* context, const int64_t* ids, size_t n,
                   const tsr_generate_options* options, tsr_token_callback callback, void* user) {
  const auto prompt_of = [&](const Call&, GenerationConfig*) -> StatusOr<std::vector<int64_t>> {
    TESSERA_RETURN_IF_ERROR(CheckArray(ids, n, "ids"));
    return std::vector<int64_t>(ids, ids + n);
  };
  return Generate(context, prompt_of, options, callback, user);
}

Status GenerateText(tsr_context* context, const char* prompt, size_t length,
                    const tsr_generate_options* options, tsr_token_callback callback, void* user) {
  const auto prompt_of = [&](const Call& call,
                             GenerationConfig*) -> StatusOr<std::vector<int64_t>> {
    TESSERA_RETURN_IF_ERROR(CheckArray(prompt, length, "prompt"));
    const std::string_view text(length == 0 ? "" : prompt, length);
    TESSERA_RETURN_IF_ERROR(CheckUtf8(text, "prompt"));
    TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, TokenizerOf(call.model()));
    return models::EncodePrompt(*tokenizer, call.model().model->config(), text);
  };
  return Generate(context, prompt_of, options, callback, user);
}

Status Chat(tsr_context* context, const char* messages, size_t length,
            const tsr_generate_options* options, tsr_token_callback callback, void* user) {
  const auto prompt_of = [&](const Call& call,
                             GenerationConfig* config) -> StatusOr<std::vector<int64_t>> {
    TESSERA_RETURN_IF_ERROR(CheckArray(messages, length, "messages"));
    const tsr_model& model = call.model();
    TESSERA_RETURN_IF_ERROR(model.chat.status());
    TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, TokenizerOf(model));
    TESSERA_ASSIGN_OR_RETURN(
        const data::Conversation chat,
        data::ParseConversation({length == 0 ? "" : messages, length}, "messages"));
    TESSERA_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                             data::TokenizePrompt(*model.chat, *tokenizer, chat));
    TESSERA_ASSIGN_OR_RETURN(
        *config, models::ConfigOfAnswer(*model.model, call.adapter(), *model.chat, *tokenizer,
                                        ids.size(), std::move(*config)));
    return std::vector<int64_t>(ids.begin(), ids.end());
  };
  return Generate(context, prompt_of, options, callback, user);
}

}  // namespace
}  // namespace tessera::runtime

using tessera::runtime::AtBorder;

tsr_status* tsr_generate(tsr_context* context, const int64_t* ids, size_t n,
                         const tsr_generate_options* options, tsr_token_callback callback,
                         void* user) {
  return AtBorder(
      [&] { return tessera::runtime::GenerateIds(context, ids, n, options, callback, user); });
}

tsr_status* tsr_generate_text(tsr_context* context, const char* prompt, size_t length,
                              const tsr_generate_options* options, tsr_token_callback callback,
                              void* user) {
  return AtBorder([&] {
    return tessera::runtime::GenerateText(context, prompt, length, options, callback, user);
  });
}

tsr_status* tsr_chat(tsr_context* context, const char* messages, size_t length,
                     const tsr_generate_options* options, tsr_token_callback callback, void* user) {
  return AtBorder(
      [&] { return tessera::runtime::Chat(context, messages, length, options, callback, user); });
}

tsr_status* tsr_generate_options_set(tsr_generate_options* options, const char* name,
                                     const char* value) {
  return AtBorder([&] { return tessera::runtime::SetOption(options, name, value); });
}

void tsr_generate_options_clear(tsr_generate_options* options) {
  if (options == nullptr || !tessera::runtime::HasSettings(*options)) return;
  delete options->settings;
  options->settings = nullptr;
}
