// SPDX-License-Identifier: Apache-2.0
#include "models/glm/text_layout.h"

#include <algorithm>
#include <utility>

namespace tessera::models {
namespace {

using Ids = std::vector<int64_t>;

std::optional<int64_t> Find(const Ids& text, std::optional<int64_t> id) {
  if (!id) return std::nullopt;
  const auto at = std::find(text.begin(), text.end(), *id);
  if (at == text.end()) return std::nullopt;
  return at - text.begin();
}

// Tokens from `start` on fill the blank at `blank`.
TextLayout Layout(int64_t tokens, int64_t start, int64_t blank) {
  TextLayout layout = {.prefix_length = start, .positions = {{}, {}}};
  for (int64_t t = 0; t < tokens; ++t) {
    layout.positions[0].push_back(t < start ? t : blank);
    layout.positions[1].push_back(t < start ? 0 : t - start + 1);
  }
  return layout;
}

}  // namespace

std::optional<int64_t> FirstBlank(const GlmConfig& config, const Ids& text) {
  std::optional<int64_t> first;
  for (const auto& id : {config.mask_token_id, config.smask_token_id, config.gmask_token_id}) {
    const auto at = Find(text, id);
    if (at && (!first || *at < *first)) first = at;
  }
  return first;
}

std::optional<int64_t> FirstBlank(const ChatGlmConfig& config, const Ids& text) {
  const auto at = Find(text, config.gmask_token_id);
  return at ? at : Find(text, config.mask_token_id);
}

StatusOr<Ids> CompletePrompt(const GlmConfig& config, Ids prompt) {
  if (!config.sop_token_id) {
    return InvalidArgument(
        "the configuration names no 'sop_token_id' (<|startofpiece|>), with which GLM begins to "
        "fill a blank");
  }
  if (!Find(prompt, config.sop_token_id)) {
    if (!FirstBlank(config, prompt)) {
      const auto blank = config.gmask_token_id ? config.gmask_token_id : config.mask_token_id;
      if (!blank) {
        return InvalidArgument(
            "the prompt has no blank, and the configuration names neither 'gmask_token_id' nor "
            "'mask_token_id'");
      }
      prompt.push_back(*blank);
    }
    prompt.push_back(*config.sop_token_id);
  }
  TESSERA_RETURN_IF_ERROR(LayoutOfText(config, prompt).status());
  return prompt;
}

StatusOr<Ids> CompletePrompt(const ChatGlmConfig& config, Ids prompt) {
  if (!Find(prompt, config.bos_token_id)) {
    if (!FirstBlank(config, prompt)) prompt.push_back(config.gmask_token_id);
    prompt.push_back(config.bos_token_id);
  }
  TESSERA_RETURN_IF_ERROR(LayoutOfText(config, prompt).status());
  return prompt;
}

StatusOr<TextLayout> LayoutOfText(const GlmConfig& config, const Ids& text) {
  const auto start = Find(text, config.sop_token_id);
  if (!start) return InvalidArgument("a text has no <|startofpiece|> ('sop_token_id')");
  const auto blank = FirstBlank(config, text);
  if (!blank || *blank > *start) {
    return InvalidArgument(
        "a text has no blank ([MASK], [sMASK] or [gMASK]) before <|startofpiece|>");
  }
  TextLayout layout = Layout(std::ssize(text), *start, *blank);
  if (!config.block_position_encoding) layout.positions.pop_back();
  return layout;
}

StatusOr<TextLayout> LayoutOfText(const ChatGlmConfig& config, const Ids& text) {
  const auto start = Find(text, config.bos_token_id);
  if (!start) {
    return InvalidArgument("a text has no token ", config.bos_token_id, " ('bos_token_id')");
  }
  // An answer may name a blank, which moves nothing.
  auto blank = FirstBlank(config, Ids(text.begin(), text.begin() + *start));
  if (!blank) blank = FirstBlank(config, text);
  if (!blank) {
    return InvalidArgument("a text has neither token ", config.gmask_token_id,
                           " ('gmask_token_id') nor ", config.mask_token_id, " ('mask_token_id')");
  }
  return Layout(std::ssize(text), *start, *blank);
}

}  // namespace tessera::models
