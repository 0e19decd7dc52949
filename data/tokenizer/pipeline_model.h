// SPDX-License-Identifier: Apache-2.0
// The `model` of a tokenizer: a word to the ids of its pieces.
//
//   TESSERA_ASSIGN_OR_RETURN(const auto model, PipelineModel::Parse(file.root["model"],
//   &file.large)); model->Encode("▁hello", &ids);
//
// Types: BPE (Sennrich et al. 2016; with byte_fallback, prefixes and suffixes of words), WordPiece
// (Devlin et al. 2018), WordLevel (whole words), Unigram (Kudo 2018; Viterbi with scores in
// double). Another one is refused by name. The ids are those of Hugging Face's tokenizers.
// Immutable once a tokenizer is made; safe from several threads.
#ifndef TESSERA_DATA_TOKENIZER_PIPELINE_MODEL_H_
#define TESSERA_DATA_TOKENIZER_PIPELINE_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/json_part.h"
#include "data/tokenizer/tokenizer_json_file.h"
#include "data/tokenizer/vocab_index.h"

namespace tessera::data {

// Pieces and their ids.
class PipelineVocab {
 public:
  PipelineVocab() = default;
  PipelineVocab(const PipelineVocab&) = delete;
  PipelineVocab& operator=(const PipelineVocab&) = delete;

  // `place` begins the message about an id that is none, or that two pieces have. Of equal pieces
  // the first one is found. Calls `then` as soon as Find works, beside the rest.
  Status Set(VocabEntries entries, const std::string& place,
             const std::function<Status()>& then = OkStatus);
  // Finds the ids of "<0x00>" ... "<0xFF>", which AppendBytes needs.
  void FindBytes();

  std::optional<int32_t> Find(std::string_view piece) const { return index_.Find(piece); }
  const VocabIndex& index() const { return index_; }
  const VocabEntries& entries() const { return entries_; }
  // One more than the largest id.
  int64_t size() const { return std::ssize(places_); }
  // Empty for an id without a piece.
  std::string_view Piece(int32_t id) const;
  // The ids of a text's bytes; false: one of them has none.
  bool AppendBytes(std::string_view text, std::vector<int32_t>* ids) const;

 private:
  Status SetPlaces(const std::string& place);

  VocabEntries entries_;
  VocabIndex index_;               // of entries_
  std::vector<int32_t> places_;    // in entries_, by id; < 0: none
  std::vector<int32_t> byte_ids_;  // 256, < 0: no such piece; or empty
};

class PipelineModel {
 public:
  virtual ~PipelineModel() = default;
  // *large has the vocabulary and the merges if they are read apart. The model takes the former;
  // the latter are in *large then, wherever they were.
  static StatusOr<std::unique_ptr<PipelineModel>> Parse(
      const JsonPart& part, std::optional<TokenizerJsonFile::LargeParts>* large);

  // *ids becomes the ids of a word, valid UTF-8 and not empty.
  virtual void Encode(std::string_view word, std::vector<int32_t>* ids) const = 0;
  // Asks for words that are bytes instead of their characters in the byte alphabet, which is
  // faster; false: the model cannot do that.
  virtual bool TakeBytes() { return false; }
  const PipelineVocab& vocab() const { return vocab_; }
  // The token for what has no piece, which the tokenizer finds among the pieces and added tokens;
  // empty: there is none.
  const std::string& unk_token() const { return unk_token_; }
  void set_unk(std::string token, int32_t id) {
    unk_token_ = std::move(token);
    unk_id_ = id;
  }

 protected:
  PipelineVocab vocab_;
  std::string unk_token_;
  std::optional<int32_t> unk_id_;
};

// {"piece": id, ...}
StatusOr<VocabEntries> ReadVocab(const JsonPart& part);
// ["a b", ...] or [["a", "b"], ...]
StatusOr<BpeRules> ReadMerges(const JsonPart& part);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_PIPELINE_MODEL_H_
