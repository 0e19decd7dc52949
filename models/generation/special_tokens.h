// SPDX-License-Identifier: Apache-2.0
// A tokenizer's special tokens as a model's family uses them (models/text_format.h).
//
//   LoadOptions options;
//   options.config_changes = TokenIdsFromTokenizer(*tokenizer, config);
//   TESSERA_ASSIGN_OR_RETURN(auto prompt, EncodePrompt(*tokenizer, config, "Once upon"));
//
// `config` is the model's config.json; of an unknown family nothing is special.
#ifndef TESSERA_MODELS_GENERATION_SPECIAL_TOKENS_H_
#define TESSERA_MODELS_GENERATION_SPECIAL_TOKENS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

// Whether a configuration leaves ids to the tokenizer without which no text can be continued.
bool LacksTokenIds(const nlohmann::json& config);

// The ids that the Hub's configurations of the family leave to the tokenizer: those that `config`
// lacks (or has as null) and the tokenizer knows. An object, empty for most families.
nlohmann::json TokenIdsFromTokenizer(const data::Tokenizer& tokenizer,
                                     const nlohmann::json& config);

// What a tokenizer makes of a preset: the size of its vocabulary, and those of the ids of its
// special tokens that the preset has keys for; null for a token that it lacks.
nlohmann::json VocabularyOf(const data::Tokenizer& tokenizer, const nlohmann::json& preset);

// A prompt as the family's models read it: its tokens and, where the tokenizer's prompts are rows,
// the special tokens of a row around them (data/tokenizer/sequence_pair.h); of a family whose texts
// have blanks, one for the rest of the document at the end of a text without any.
StatusOr<std::vector<int64_t>> EncodePrompt(const data::Tokenizer& tokenizer,
                                            const nlohmann::json& config, std::string_view text,
                                            const data::EncodeOptions& options = {});

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_SPECIAL_TOKENS_H_
