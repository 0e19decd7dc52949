// SPDX-License-Identifier: Apache-2.0
// Conversations to be learnt from: every token that the assistant wrote is a target.
//
//   TESSERA_ASSIGN_OR_RETURN(
//       std::shared_ptr<const ChatDataset> chats,
//       ChatDataset::Open("chats.jsonl", format, tokenizer, "out/data/train", {.seq_len = 1024}));
//   TESSERA_ASSIGN_OR_RETURN(Batch batch, chats->MakeBatch(samples));
//   // input_ids, targets: int64 [rows, T], targets kIgnoreLabel where the assistant did not write
//
// A sample is a conversation as chat_tokens.h has it. Its row is a token shorter: the last is
// predicted only. Rows are padded to the longest of their batch; packed_samples.h fills them
// instead.
#ifndef TESSERA_DATA_CHAT_CHAT_DATASET_H_
#define TESSERA_DATA_CHAT_CHAT_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "data/chat/chat_format.h"
#include "data/dataset/indexed_dataset.h"
#include "data/dataset/token_dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::data {

// What becomes of a conversation with more tokens than a row may have.
enum class LongChats {
  kRefuse,  // InvalidArgument with its place and length
  kCut,     // what is behind is left out, and all of it where no answer is left
  kDrop,    // it is left out
};

// How a file becomes samples.
struct ChatDatasetOptions {
  int64_t seq_len = 0;  // the most tokens of a conversation; >= 2
  LongChats long_chats = LongChats::kRefuse;
  // For predictions: no conversation is left out, and one that does not end with the assistant's
  // message is the prompt of an answer that is not known, whose place one target holds.
  bool prompts = false;
  bool overwrite_cache = false;  // encode anew even if the files beside `cache` are up to date
};

class ChatDataset : public TokenDataset {
 public:
  // `path`: what ForEachConversation reads. InvalidArgument, with path:line or path[index], for a
  // conversation without a word of the assistant's, for one that is too long, and for what
  // TokenizeChat refuses; for a file of which nothing is left.
  static StatusOr<std::shared_ptr<const ChatDataset>> Open(const std::string& path,
                                                           const ChatFormat& format,
                                                           const Tokenizer& tokenizer,
                                                           const std::string& cache,
                                                           const ChatDatasetOptions& options);

  int64_t size() const override { return end_ - begin_; }
  int64_t seq_len() const override { return seq_len_; }
  int64_t length(int64_t index) const override;
  bool has_document_ids() const override { return false; }
  Status Fill(int64_t index, const SampleRow& row) const override;

  // Samples [begin, end) of this one. Throws Error unless 0 <= begin <= end <= size().
  std::shared_ptr<const ChatDataset> Part(int64_t begin, int64_t end) const;

  // Of the whole file: how many conversations were left out, how many lost their ends, and how many
  // are prompts of answers that are not known.
  int64_t num_dropped() const { return counts_.dropped; }
  int64_t num_cut() const { return counts_.cut; }
  int64_t num_prompts() const { return counts_.prompts; }

 private:
  struct Counts {
    int64_t dropped = 0;
    int64_t cut = 0;
    int64_t prompts = 0;
  };
  class Builder;

  ChatDataset(std::shared_ptr<const IndexedDataset> tokens, int64_t seq_len, Counts counts,
              int64_t begin, int64_t end)
      : tokens_(std::move(tokens)), seq_len_(seq_len), counts_(counts), begin_(begin), end_(end) {}

  // A conversation each, of 2 * id, or of 2 * id + 1 where the assistant wrote it.
  std::shared_ptr<const IndexedDataset> tokens_;
  int64_t seq_len_;
  Counts counts_;
  int64_t begin_;
  int64_t end_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_CHAT_CHAT_DATASET_H_
