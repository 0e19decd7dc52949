// SPDX-License-Identifier: Apache-2.0
// How the answer to a conversation is chosen: by the command line, the server and the C library
// alike.
//
//   TESSERA_ASSIGN_OR_RETURN(auto config, ConfigOfAnswer(model, adapter, format, tokenizer, 17,
//   defaults));
#ifndef TESSERA_MODELS_OPEN_ANSWER_CONFIG_H_
#define TESSERA_MODELS_OPEN_ANSWER_CONFIG_H_

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "data/chat/chat_format.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/generation_config.h"
#include "models/model.h"

namespace tessera::models {

// Where neither the caller nor the model's folder says how long an answer may be.
inline constexpr int64_t kLongestAnswer = 1024;

// `config` for an answer to a prompt of so many tokens: no longer than the model's positions leave
// room for, and ended by the token that ends a turn as well. InvalidArgument where there is no
// room.
StatusOr<GenerationConfig> ConfigOfAnswer(const Model& model, int adapter,
                                          const data::ChatFormat& format,
                                          const data::Tokenizer& tokenizer, size_t prompt,
                                          GenerationConfig config);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_OPEN_ANSWER_CONFIG_H_
