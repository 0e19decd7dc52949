// SPDX-License-Identifier: Apache-2.0
// One token per byte: ids 0 to 255 are the bytes, 256 is the end of a text.
//
//   ByteTokenizer().Encode("A\n");   // {65, 10}
//
// Needs no files and no training, and gives back any bytes.
#ifndef TESSERA_DATA_TOKENIZER_BYTE_TOKENIZER_H_
#define TESSERA_DATA_TOKENIZER_BYTE_TOKENIZER_H_

#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace tessera::data {

class ByteTokenizer : public Tokenizer {
 public:
  static constexpr const char* kClassName = "TesseraByteTokenizer";
  static constexpr int32_t kEosId = 256;

  ByteTokenizer();

  void EncodeTo(std::string_view text, const EncodeOptions& options,
                std::vector<int32_t>* ids) const override;
  std::string_view TokenBytes(int32_t id) const override;
  int64_t vocab_size() const override { return kEosId + 1; }
  uint64_t Fingerprint() const override { return HashBytes(kClassName); }

 private:
  // tokenizer_config.json.
  std::vector<TokenizerFile> Files() const override;

  std::string bytes_;  // all 256 in order
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_BYTE_TOKENIZER_H_
