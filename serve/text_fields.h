// SPDX-License-Identifier: Apache-2.0
// What requests for texts have in common: how the text is chosen, and by which model.
#ifndef TESSERA_SERVE_TEXT_FIELDS_H_
#define TESSERA_SERVE_TEXT_FIELDS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/generation/generation_config.h"
#include "models/generation/grammar/token_grammar.h"
#include "models/generation/text_request.h"
#include "serve/fields.h"
#include "serve/service.h"

namespace tessera::serve {

// How many of the likeliest tokens a request may ask for, at each place.
inline constexpr int64_t kMostLogprobs = 20;

// Every generation setting that a request gives, by its key
// (models/generation/generation_config.h); a field may have Hugging Face's name or OpenAI's.
nlohmann::json SamplingFields(Fields& fields, const ServedModel& served);

// How many texts of each prompt are asked for: num_return_sequences, or `n`, which leaves `asked`.
// Greedy texts may be several here: they are alike.
int64_t ChoicesField(Fields& fields, nlohmann::json* asked);

// `asked` over the defaults of the model's folder, which are those of `tessera generate`.
// InvalidArgument where they ask for beams. One text, whatever the folder asks for.
StatusOr<models::GenerationConfig> ConfigOf(const ServedModel& served, const nlohmann::json& asked);

// `config`, which is of `asked`, for a text behind this prompt: of a length that the model's folder
// asks for, and the request does not, what the model's positions leave. A length of the request's
// own that does not fit is refused where the text begins.
models::Shared<models::GenerationConfig> ConfigBehindPrompt(
    const ServedModel& served, const nlohmann::json& asked,
    const models::Shared<models::GenerationConfig>& config, const std::vector<int64_t>& prompt,
    int adapter);

// Where the model's text begins: the prompt as the model completes it, or a decoder's first token.
std::vector<int64_t> BeginOfText(const ServedModel& served, std::vector<int64_t> prompt);

// Number of `model`, which fails as NotFound by itself.
int ModelField(Fields& fields, const Service& service);

// What `response_format` wants the text to fit; nullptr: anything, or it is wrong.
std::shared_ptr<const models::TokenGrammar> ResponseFormatField(Fields& fields, Service& service);

// Whether the last event of a stream says what it took: `stream_options`.
bool StreamUsageField(Fields& fields);

// The tokens of a text as a prompt, as `tessera generate --prompt` makes them. A text that cannot
// fit is refused before its tokens are made.
StatusOr<std::vector<int64_t>> PromptTokens(const Service& service, const std::string& text,
                                            int adapter);

// A list of ids of the vocabulary.
StatusOr<std::vector<int64_t>> PromptIds(const ServedModel& served,
                                         const nlohmann::ordered_json& ids);

// The text of ids of the vocabulary, which may be long ones: at most 64 MiB.
StatusOr<std::string> TextOfIds(const ServedModel& served, const std::vector<int64_t>& ids);

// Answers with the failure of the fields, if there is one.
bool Refused(Service& service, const Call& call, Fields& fields);

// A token as answers show it: its text, "bytes:\xe4\xbd" for a part of a character.
std::string TokenText(const data::Tokenizer& tokenizer, int64_t id);

}  // namespace tessera::serve

#endif  // TESSERA_SERVE_TEXT_FIELDS_H_
