// SPDX-License-Identifier: Apache-2.0
// One token per Unicode character of a training text.
//
//   CharTokenizer::Trainer trainer;
//   TESSERA_RETURN_IF_ERROR(trainer.Add(text, path));
//   std::unique_ptr<CharTokenizer> tokenizer = trainer.Finish();
//
// Ids: 0 is <unk>, which stands for every character that the training text lacks and for every byte
// that is not UTF-8 (it decodes to U+FFFD, so such input does not come back unchanged); 1 is
// <|endoftext|>; from 2 on the characters in order of their code points.
#ifndef TESSERA_DATA_TOKENIZER_CHAR_TOKENIZER_H_
#define TESSERA_DATA_TOKENIZER_CHAR_TOKENIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace tessera::data {

class CharTokenizer : public Tokenizer {
 public:
  static constexpr const char* kClassName = "TesseraCharTokenizer";
  static constexpr int32_t kUnkId = 0;
  static constexpr int32_t kEosId = 1;
  static constexpr int32_t kFirstCharId = 2;

  // Collects the characters of any number of texts.
  class Trainer {
   public:
    Trainer();
    // InvalidArgument with `source` and the byte offset if the text is not UTF-8.
    Status Add(std::string_view text, std::string_view source);
    std::unique_ptr<CharTokenizer> Finish() const;

   private:
    std::vector<bool> seen_;
  };

  // From one text, for example a test's.
  static StatusOr<std::unique_ptr<CharTokenizer>> Train(std::string_view text,
                                                        std::string_view source = "text");

  // `characters`: scalar values, ascending, each once (throws Error otherwise).
  explicit CharTokenizer(std::vector<char32_t> characters);

  // Reads <folder>/char_vocab.json.
  static StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& folder);

  void EncodeTo(std::string_view text, const EncodeOptions& options,
                std::vector<int32_t>* ids) const override;
  std::string_view TokenBytes(int32_t id) const override;
  int64_t vocab_size() const override { return kFirstCharId + std::ssize(characters_); }
  uint64_t Fingerprint() const override;

 private:
  // char_vocab.json ({"characters": ["\n", " ", ...]}) and tokenizer_config.json.
  std::vector<TokenizerFile> Files() const override;
  int32_t IdOf(char32_t character) const;

  std::vector<char32_t> characters_;
  std::vector<std::string> bytes_;  // of each character
  std::vector<int32_t> low_ids_;    // ids of the code points below 0x3000, for speed
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_CHAR_TOKENIZER_H_
