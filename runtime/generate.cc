// SPDX-License-Identifier: Apache-2.0
// Text that a model writes, token by token.
#include "models/generation/generate.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/chat_tokens.h"
#include "models/generation/generation_config.h"
#include "models/generation/special_tokens.h"
#include "models/open/answer_config.h"
#include "runtime/border.h"
#include "runtime/chat.h"
#include "runtime/context.h"
#include "runtime/generate_options.h"
#include "runtime/listener.h"
#include "runtime/tessera.h"
#include "runtime/text_writer.h"

namespace tessera::runtime {
namespace {

using models::GenerationConfig;
using models::GenerationResult;
using Prompts = std::vector<std::vector<int64_t>>;

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

// How the texts of a call are written, and whom that is told.
struct Writing {
  const Call& call;
  const GenerationConfig& config;
  const tsr_generate_options& options;
  std::shared_ptr<const models::TokenGrammar> grammar;
  Listener& listener;
};
using Results = StatusOr<std::vector<GenerationResult>>;

Results SearchBeams(const Writing& writing, const Prompts& prompts) {
  if (writing.options.logprobs != 0 || writing.options.logits != nullptr) {
    return InvalidArgument(
        "tsr_generate_options: logprobs and logits do not go with num_beams above 1");
  }
  const auto on_token = [&](int64_t row, int64_t id, std::string_view text) {
    return writing.listener.Token(row, id, text, nullptr);
  };
  return models::Generate(*writing.call.model().model, prompts, writing.config,
                          {.tokenizer = writing.call.model().tokenizer.get(),
                           .on_token = on_token,
                           .grammar = writing.grammar,
                           .adapter = writing.call.adapter()});
}

Results WriteTogether(const Writing& writing, const Prompts& prompts) {
  const int64_t each = writing.config.num_return_sequences;
  std::vector<GenerationResult> results(prompts.size() * static_cast<size_t>(each));
  Status status;
  TextWriter writer(writing.call);
  const models::Shared<GenerationConfig> config = writing.config;
  for (int64_t row = 0; row < std::ssize(results); ++row) {
    models::TextRequest request{
        .prompt = prompts[static_cast<size_t>(row / each)], .config = config, .row = row};
    request.adapter = writing.call.adapter();
    request.grammar = writing.grammar;
    request.top_scores = TopScoresOf(writing.options);
    Listener& listener = writing.listener;
    request.on_logits = LogitsCallbackOf(writing.options, row, &listener);
    request.on_token = [&listener, row](int64_t id, std::string_view text,
                                        const models::TokenScores* scores) {
      return listener.Token(row, id, text, scores);
    };
    request.on_end = [&, row](StatusOr<GenerationResult> result) {
      status.Update(result.status());
      if (result.ok()) results[static_cast<size_t>(row)] = *std::move(result);
    };
    TESSERA_RETURN_IF_ERROR(writer.Add(std::move(request)));
  }
  while (status.ok() && !writing.listener.stopped() && writer.Step()) {
  }
  TESSERA_RETURN_IF_ERROR(status);
  return results;
}

// Continues the prompts that `prompts_of` makes for a model, which may adapt the configuration.
template <typename PromptsOf>
Status Generate(tsr_context* context, const PromptsOf& prompts_of,
                const tsr_generate_options* given, tsr_token_callback callback, void* user) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  TESSERA_ASSIGN_OR_RETURN(const tsr_generate_options options,
                           OptionsOf(given, "tsr_generate_options"));
  if (callback == nullptr) return InvalidArgument("callback is NULL");
  TESSERA_RETURN_IF_ERROR(CheckTopScores(options));
  const tsr_model& model = call.model();
  TESSERA_ASSIGN_OR_RETURN(GenerationConfig config, ConfigOf(model.generation, options));
  TESSERA_ASSIGN_OR_RETURN(const Prompts prompts, prompts_of(call, &config));
  TESSERA_ASSIGN_OR_RETURN(auto grammar, GrammarOf(model, options));
  Listener listener(callback, user);
  const Writing writing = {call, config, options, std::move(grammar), listener};
  const Results results =
      config.num_beams > 1 ? SearchBeams(writing, prompts) : WriteTogether(writing, prompts);
  if (listener.stopped()) return OkStatus();
  TESSERA_RETURN_IF_ERROR(results.status());
  for (size_t i = 0; i < results->size() && !listener.stopped(); ++i) {
    listener.End(static_cast<int64_t>(i), EndOf((*results)[i].end));
  }
  return OkStatus();
}

Status GenerateBatch(tsr_context* context, const int64_t* const* ids, const size_t* lengths,
                     size_t n, const tsr_generate_options* options, tsr_token_callback callback,
                     void* user) {
  const auto prompts_of = [&](const Call&, GenerationConfig*) -> StatusOr<Prompts> {
    TESSERA_RETURN_IF_ERROR(CheckArray(ids, n, "ids"));
    TESSERA_RETURN_IF_ERROR(CheckArray(lengths, n, "lengths"));
    Prompts prompts;
    for (size_t i = 0; i < n; ++i) {
      TESSERA_RETURN_IF_ERROR(CheckArray(ids[i], lengths[i], "ids"));
      prompts.emplace_back(ids[i], ids[i] + lengths[i]);
    }
    return prompts;
  };
  return Generate(context, prompts_of, options, callback, user);
}

Status GenerateText(tsr_context* context, const char* prompt, size_t length,
                    const tsr_generate_options* options, tsr_token_callback callback, void* user) {
  const auto prompts_of = [&](const Call& call, GenerationConfig*) -> StatusOr<Prompts> {
    TESSERA_RETURN_IF_ERROR(CheckArray(prompt, length, "prompt"));
    const std::string_view text(length == 0 ? "" : prompt, length);
    TESSERA_RETURN_IF_ERROR(CheckUtf8(text, "prompt"));
    TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, TokenizerOf(call.model()));
    TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> ids,
                             models::EncodePrompt(*tokenizer, call.model().model->config(), text));
    return Prompts{std::move(ids)};
  };
  return Generate(context, prompts_of, options, callback, user);
}

Status Chat(tsr_context* context, const char* messages, size_t length,
            const tsr_generate_options* options, tsr_token_callback callback, void* user) {
  const auto prompts_of = [&](const Call& call, GenerationConfig* config) -> StatusOr<Prompts> {
    const tsr_model& model = call.model();
    TESSERA_ASSIGN_OR_RETURN(const ChatPrompt prompt, ChatPromptOf(model, messages, length));
    TESSERA_ASSIGN_OR_RETURN(
        *config, models::ConfigOfAnswer(*model.model, call.adapter(), *model.chat, *model.tokenizer,
                                        prompt.ids.size(), std::move(*config)));
    return Prompts{{prompt.ids.begin(), prompt.ids.end()}};
  };
  return Generate(context, prompts_of, options, callback, user);
}

}  // namespace
}  // namespace tessera::runtime

using tessera::runtime::AtBorder;

tsr_status* tsr_generate(tsr_context* context, const int64_t* ids, size_t n,
                         const tsr_generate_options* options, tsr_token_callback callback,
                         void* user) {
  return AtBorder([&] {
    return tessera::runtime::GenerateBatch(context, &ids, &n, 1, options, callback, user);
  });
}

tsr_status* tsr_generate_batch(tsr_context* context, const int64_t* const* ids,
                               const size_t* lengths, size_t n, const tsr_generate_options* options,
                               tsr_token_callback callback, void* user) {
  return AtBorder([&] {
    return tessera::runtime::GenerateBatch(context, ids, lengths, n, options, callback, user);
  });
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
