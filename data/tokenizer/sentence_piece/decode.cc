// SPDX-License-Identifier: Apache-2.0
// Ids to text, as the families' Python tokenizers do it, with what is odd about them.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/python_text.h"
#include "data/tokenizer/sentence_piece/sentence_piece.h"

namespace tessera::data {
namespace {

void RestoreWhiteSpace(std::string* text) {
  *text = ReplacedAll(ReplacedAll(*text, "<n>", "\n"), "<|tab|>", "\t");
  if (text->find("<|blank_") == std::string::npos) return;
  for (int blanks = 2; blanks <= 80; ++blanks) {
    *text = ReplacedAll(*text, Concat("<|blank_", blanks, "|>"),
                        std::string(static_cast<size_t>(blanks), ' '));
  }
}

}  // namespace

std::string SentencePieceTokenizer::TokenString(int32_t id) const {
  if (const AddedToken* token = FindAdded(id)) return token->content;
  const int32_t piece = PieceOfId(id);
  return piece < 0 ? std::string() : model_->Piece(piece);
}

// `tokens`: each with whether it is a special one. The families differ in the blanks around those.
std::string SentencePieceTokenizer::JoinTokens(
    std::vector<std::pair<std::string, bool>> tokens) const {
  const SentencePieceFamily family = config_.family;
  std::vector<std::string> run;
  const bool plain =
      family == SentencePieceFamily::kGlm || family == SentencePieceFamily::kXlmRoberta;
  if (plain) {
    for (auto& [text, special] : tokens) run.push_back(std::move(text));
    if (family == SentencePieceFamily::kGlm) return model_->Decode(run);
    std::string all;
    for (const std::string& text : run) all += text;
    return std::string(Strip(ReplacedAll(all, kSentencePieceBlank, " ")));
  }
  const bool llama = family == SentencePieceFamily::kLlama;
  if (family != SentencePieceFamily::kAlbert && config_.add_prefix_space &&
      tokens[0].first.starts_with(kSentencePieceBlank)) {
    tokens[0].first.erase(0, kSentencePieceBlank.size());
  }
  std::string out;
  bool after_special = false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    auto& [text, special] = tokens[i];
    if (special) {
      if (!after_special && (!llama || (i != 0 && config_.legacy))) out += ' ';
      out += model_->Decode(run) + text;
      run.clear();
    } else {
      if (llama && after_special && i == 1 && config_.add_prefix_space &&
          !text.starts_with(kSentencePieceBlank)) {
        out += ' ';
      }
      run.push_back(std::move(text));
    }
    after_special = special;
  }
  out += model_->Decode(run);
  return llama ? out : std::string(Strip(out));
}

std::string SentencePieceTokenizer::Decode(std::span<const int32_t> ids,
                                           const DecodeOptions& options) const {
  const bool chat = config_.family == SentencePieceFamily::kChatGlm;
  std::vector<std::pair<std::string, bool>> tokens;
  std::vector<std::string> texts;  // decoded apart, joined by blanks
  const auto flush = [&] {
    if (tokens.empty()) return;
    std::string text = JoinTokens(std::exchange(tokens, {}));
    if (!text.empty()) texts.push_back(std::move(text));
  };
  std::vector<std::string> pieces;
  for (const int32_t id : ids) {
    const bool special = IsSpecial(id);
    if ((options.skip_special && special) || (chat && id == pad_id_)) continue;
    std::string text = TokenString(id);
    if (text.empty()) continue;
    if (chat) {
      pieces.push_back(std::move(text));
      continue;
    }
    const AddedToken* added = FindAdded(id);
    if (added != nullptr && separate_[static_cast<size_t>(added - added_.data())]) {
      flush();
      texts.push_back(std::move(text));
    } else {
      tokens.emplace_back(std::move(text), special);
    }
  }
  std::string out;
  if (chat) {
    out = model_->Decode(pieces);
    RestoreWhiteSpace(&out);
    return out;
  }
  flush();
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) out += ' ';
    out += texts[i];
  }
  if (config_.clean_up_spaces) CleanUpSpaces(&out);
  return out;
}

}  // namespace tessera::data
