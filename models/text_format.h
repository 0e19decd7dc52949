// SPDX-License-Identifier: Apache-2.0
// What a family's texts need beside their tokens: special tokens, blanks, conversations, positions
// that are no count.
//
//   const TextConventions& texts = family.texts;              // what the family declares
//   std::shared_ptr<const TextFormat> format = model.text_format();    // one model's; may be null
//
// The conventions are data and concern the tokenizer: which of its tokens the texts use. A format
// knows the ids that a model's configuration gives them.
#ifndef TESSERA_MODELS_TEXT_FORMAT_H_
#define TESSERA_MODELS_TEXT_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/bundle.h"

namespace tessera::data {
class Tokenizer;
}  // namespace tessera::data

namespace tessera::models {

// A special token: its name in messages, and how it is found.
struct TextToken {
  std::string name;  // "[gMASK]"
  std::optional<int32_t> (*find)(const data::Tokenizer& tokenizer) = nullptr;
};

// A key of config.json that holds the id of one of the tokenizer's tokens. Of a preset all are set,
// where the preset has the key.
struct TokenKey {
  std::string key;  // "sop_token_id"
  TextToken token;
  // Whether folders leave it to their tokenizer as well.
  bool left_to_tokenizer = false;
  // Whether no text can be continued without it.
  bool needed = false;
  // Whether the token ends a text that is generated, beside those of eos_token_id.
  bool ends_text = false;
};

// Texts with blanks, and what fills them behind the text.
struct BlankTokens {
  TextToken span;      // stands for some words
  TextToken sentence;  // for whole sentences
  TextToken document;  // for the rest of the document; added to a prompt that has no blank
  TextToken start;     // before what fills a blank
  TextToken end;       // and behind it
};

// Prompts and answers, turn by turn.
struct Conversation {
  using Turn = std::pair<std::string, std::string>;  // a question and its answer
  // The turns so far, the oldest first, with the question that is to be answered. UTF-8.
  std::string (*join)(const std::string& question, const std::vector<Turn>& history) = nullptr;
  // The first token of the answer in a row of two texts (data/tokenizer/sequence_pair.h).
  TextToken answer_start;
};

struct TextConventions {
  std::vector<TokenKey> token_keys = {};
  std::optional<BlankTokens> blanks = std::nullopt;
  std::optional<Conversation> conversation = std::nullopt;
  // The text of the token that stands for span number i that is taken out of a text.
  std::string (*sentinel)(int64_t i) = nullptr;
};

// What a decoder is told of a text beside its tokens.
struct TextLayout {
  int64_t prefix_length = 0;                    // so many tokens at the front see one another
  std::vector<std::vector<int64_t>> positions;  // of every token, by coordinate
};

// A text with a blank, and what may fill it.
struct ClozeRow {
  std::vector<int64_t> context;
  std::vector<std::vector<int64_t>> candidates;  // none of them empty
};

// Immutable; outlives the model it is of.
class TextFormat {
 public:
  virtual ~TextFormat() = default;

  // What generation begins with for a prompt: adds the tokens that such a text needs.
  // InvalidArgument for a prompt that cannot be continued.
  virtual StatusOr<std::vector<int64_t>> PreparePrompt(std::vector<int64_t> prompt) const = 0;
  // Of a text that begins with a prepared prompt (InvalidArgument for others): decoding then passes
  // `position_ids` [B, N, T] (all N coordinates) and `prefix_length` [B] int32.
  virtual StatusOr<TextLayout> LayoutOf(const std::vector<int64_t>& text) const = 0;
  // The inputs with which a model of Capability::kChoices scores the candidates of each row, on the
  // host. InvalidArgument for a row without blank or candidates, an empty candidate, and formats
  // without blanks.
  virtual StatusOr<Bundle> ClozeInputs(const std::vector<ClozeRow>& rows) const = 0;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_TEXT_FORMAT_H_
