// SPDX-License-Identifier: Apache-2.0
#include "models/open/answer_config.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "data/chat/chat_tokens.h"

namespace tessera::models {

StatusOr<GenerationConfig> ConfigOfAnswer(const Model& model, int adapter,
                                          const data::ChatFormat& format,
                                          const data::Tokenizer& tokenizer, size_t prompt,
                                          GenerationConfig config) {
  const int64_t positions = model.positions_left(adapter);
  const auto size = static_cast<int64_t>(prompt);
  if (positions > 0 && size >= positions) {
    return InvalidArgument("the conversation has ", size, " tokens; the model has ", positions,
                           " positions");
  }
  const int64_t room = positions > 0 ? positions - size : std::numeric_limits<int64_t>::max();
  if (config.max_new_tokens || !config.max_length) {
    config.max_new_tokens = std::min(config.max_new_tokens.value_or(kLongestAnswer), room);
  }
  if (const auto turn = data::EndOfTurn(format, tokenizer)) {
    std::vector<int64_t>& ends = config.eos_token_ids;
    if (std::find(ends.begin(), ends.end(), *turn) == ends.end()) ends.push_back(*turn);
  }
  return config;
}

}  // namespace tessera::models
