// SPDX-License-Identifier: Apache-2.0
// Positions of texts that fill a blank, and what prompts need to be such texts.
//
//   GLM      context with a blank ([MASK], [sMASK], [gMASK]), <|startofpiece|>, what fills it
//   ChatGLM  prompt, [gMASK], <sop>, answer
//
// The context counts its tokens; what fills the blank has the blank's position and counts 1, 2, ...
// in the second coordinate, which is 0 in the context. The context is the prefix whose tokens see
// one another.
#ifndef TESSERA_MODELS_GLM_TEXT_LAYOUT_H_
#define TESSERA_MODELS_GLM_TEXT_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "models/glm/config.h"
#include "models/model.h"

namespace tessera::models {

// The first blank of a text.
std::optional<int64_t> FirstBlank(const GlmConfig& config, const std::vector<int64_t>& text);
// [gMASK] if there is one, else [MASK].
std::optional<int64_t> FirstBlank(const ChatGlmConfig& config, const std::vector<int64_t>& text);

// Adds <|startofpiece|> where it is missing and, to a prompt without blank, [gMASK] (else [MASK])
// before it. InvalidArgument without such tokens in the configuration, or without a blank before
// <|startofpiece|>.
StatusOr<std::vector<int64_t>> CompletePrompt(const GlmConfig& config, std::vector<int64_t> prompt);
StatusOr<std::vector<int64_t>> CompletePrompt(const ChatGlmConfig& config,
                                              std::vector<int64_t> prompt);

// InvalidArgument for texts without blank or start. GLM's has one coordinate without
// block_position_encoding. ChatGLM's blank is one before the start where there is one, so that an
// answer that says [gMASK] does not move what follows.
StatusOr<TextLayout> LayoutOfText(const GlmConfig& config, const std::vector<int64_t>& text);
StatusOr<TextLayout> LayoutOfText(const ChatGlmConfig& config, const std::vector<int64_t>& text);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GLM_TEXT_LAYOUT_H_
