// Token ids that a model's configuration leaves to its tokenizer.
//
//   LoadOptions options;
//   options.config_changes = TokenIdsFromTokenizer(*tokenizer, config);
//
// The Hub's GLM folders say in the tokenizer's files alone which tokens are blanks and which begin
// and end what fills one.
#ifndef TESSERA_MODELS_GENERATION_SPECIAL_TOKENS_H_
#define TESSERA_MODELS_GENERATION_SPECIAL_TOKENS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "data/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace tessera::models {

// Whether a configuration leaves ids to the tokenizer without which no text can be continued.
bool LacksTokenIds(const nlohmann::json& config);

// For a configuration of GLM: those of `sop_token_id`, `eop_token_id`, `mask_token_id`,
// `smask_token_id` and `gmask_token_id` that it lacks (or has as null) and the tokenizer knows. An
// empty object for other families.
nlohmann::json TokenIdsFromTokenizer(const data::Tokenizer& tokenizer,
                                     const nlohmann::json& config);

// A prompt as the family's models read it: its tokens and, for all but GPT's tokenizers, the
// special tokens of a row around them (data/tokenizer/sequence_pair.h); for GLM's, [gMASK] at the
// end of a text without blank.
absl::StatusOr<std::vector<int64_t>> EncodePrompt(const data::Tokenizer& tokenizer,
                                                  std::string_view text);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_SPECIAL_TOKENS_H_
