// SPDX-License-Identifier: Apache-2.0
// The `model` of a tokenizer.json: a word to the ids of its pieces.
//
//   TESSERA_ASSIGN_OR_RETURN(const auto model, PipelineModel::Parse(root["model"]));
//   model->Encode("▁hello", &ids);
//
// Types: BPE (Sennrich et al. 2016; with byte_fallback, prefixes and suffixes of words), WordPiece,
// Unigram (Kudo 2018; Viterbi with scores in double). Another one is refused by name. The ids are
// those of Hugging Face's tokenizers. Immutable; safe from several threads.
#ifndef TESSERA_DATA_TOKENIZER_PIPELINE_MODEL_H_
#define TESSERA_DATA_TOKENIZER_PIPELINE_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/json_part.h"

namespace tessera::data {

// Pieces and their ids.
class PipelineVocab {
 public:
  // Ids are below 2^22; two pieces with one id are refused by the caller's `place`.
  Status Add(std::string piece, int64_t id, const JsonPart& place);
  // Makes the ids b of "<0x00>" ... "<0xFF>" known to `byte_ids`; all or none.
  void FindBytes();

  std::optional<int32_t> Find(std::string_view piece) const {
    const auto at = ids_.find(piece);
    return at == ids_.end() ? std::nullopt : std::optional(at->second);
  }
  // Empty for an id without a piece.
  const std::vector<std::string>& pieces() const { return pieces_; }
  // The ids of a text's bytes; false: one of them has none.
  bool AppendBytes(std::string_view text, std::vector<int32_t>* ids) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::vector<std::string> pieces_;  // by id
  std::vector<int32_t> byte_ids_;    // 256, < 0: no such piece; or empty
};

class PipelineModel {
 public:
  virtual ~PipelineModel() = default;
  static StatusOr<std::unique_ptr<PipelineModel>> Parse(const JsonPart& part);

  // Appends the ids of a word, valid UTF-8 and not empty.
  virtual void Encode(std::string_view word, std::vector<int32_t>* ids) const = 0;
  const PipelineVocab& vocab() const { return vocab_; }

 protected:
  PipelineVocab vocab_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_PIPELINE_MODEL_H_
