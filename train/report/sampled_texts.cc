// SPDX-License-Identifier: Apache-2.0
#include "train/report/sampled_texts.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "models/family.h"
#include "models/generation/generate.h"
#include "models/generation/special_tokens.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

// "  Once upon a time | there was a king".
StatusOr<std::vector<std::string>> Continue(models::Model& model,
                                            const std::vector<std::string>& prompts,
                                            const models::GenerationConfig& config,
                                            const data::Tokenizer& tokenizer) {
  std::vector<std::vector<int64_t>> rows;
  for (const std::string& prompt : prompts) {
    TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> row,
                             models::EncodePrompt(tokenizer, model.config(), prompt));
    rows.push_back(std::move(row));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<models::GenerationResult> results,
                           models::Generate(model, rows, config, {.tokenizer = &tokenizer}));
  std::vector<std::string> lines;
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::string line = "  " + prompts[i] + " | " + ReplaceInvalidUtf8(results[i].text);
    std::replace(line.begin(), line.end(), '\n', ' ');
    lines.push_back(std::move(line));
  }
  return lines;
}

// Writes the likeliest text, with the tokens of the folder and the tokenizer's end of text.
StatusOr<models::GenerationConfig> LikeliestText(const std::string& folder,
                                                 const nlohmann::json& model_config, int64_t tokens,
                                                 const data::Tokenizer& tokenizer) {
  TESSERA_ASSIGN_OR_RETURN(const models::GenerationConfig usual,
                           models::ReadGenerationConfig(folder, model_config));
  models::GenerationConfig config;
  config.max_new_tokens = tokens;
  config.bos_token_id = usual.bos_token_id;
  config.decoder_start_token_id = usual.decoder_start_token_id;
  config.eos_token_ids = usual.eos_token_ids;
  if (tokenizer.eos_id()) config.eos_token_ids.push_back(*tokenizer.eos_id());
  return config;
}

}  // namespace

Status ContinueAtEvaluations(const std::vector<std::string>& prompts, int64_t tokens,
                             const data::Tokenizer& tokenizer, const models::Model& shape,
                             const std::string& folder, Objective* objective) {
  if (!models::Generates(shape)) {
    return InvalidArgument("sample_prompts: a '", shape.config().value("model_type", ""),
                           "' model of this task does not generate");
  }
  for (const std::string& prompt : prompts) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> row,
                             models::EncodePrompt(tokenizer, shape.config(), prompt));
    const int64_t room = shape.positions_left();
    if (room == 0 || shape.encoder_decoder() != nullptr) continue;
    if (std::ssize(row) + tokens > room) {
      return InvalidArgument("sample_prompts: '", prompt, "' has ", row.size(), " tokens, with ",
                             tokens, " new ones (sample_tokens) more than the model's ", room,
                             " positions");
    }
  }
  TESSERA_ASSIGN_OR_RETURN(const models::GenerationConfig config,
                           LikeliestText(folder, shape.config(), tokens, tokenizer));
  objective->samples = [prompts, config, &tokenizer,
                        before = std::move(objective->samples)](models::Model& model) {
    std::vector<std::string> lines;
    if (before != nullptr) lines = before(model);
    StatusOr<std::vector<std::string>> more = Continue(model, prompts, config, tokenizer);
    // What cannot be written says why; a run does not end for it.
    if (!more.ok()) more = std::vector<std::string>{"  " + Message(more.status())};
    lines.insert(lines.end(), more->begin(), more->end());
    return lines;
  };
  return OkStatus();
}

}  // namespace tessera::train
