// SPDX-License-Identifier: Apache-2.0
// Instructions and their answers: supervised fine-tuning on prompts, responses and the conversation
// before them.
//
//   TESSERA_ASSIGN_OR_RETURN(
//       std::shared_ptr<const InstructionDataset> chats,
//       InstructionDataset::Open("train.json", *tokenizer, "out/data/chats",
//                                {.prompt_column = "content", .response_column = "summary",
//                                 .answer_start = sop_id}));
//   TESSERA_ASSIGN_OR_RETURN(Batch batch, chats->MakeBatch(samples));
//   // input_ids, labels: int64 [rows, S]
//
// A row is the tokenizer's row of two texts, prompt [gMASK] <sop> response <eop> for one: what
// is before the token that begins the answer (<sop>) has at most max_source_length tokens,
// special ones included, and what begins with it max_target_length; the texts are cut. Labels are
// kIgnoreLabel before the answer and the ids from there on, not yet shifted (the model predicts
// each from what is before it). Rows are padded on the right to the longest of the batch; the
// model takes its attention mask and positions from the ids.
#ifndef TESSERA_DATA_SEQUENCE_PAIRS_INSTRUCTION_DATASET_H_
#define TESSERA_DATA_SEQUENCE_PAIRS_INSTRUCTION_DATASET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/dataset/dataset.h"
#include "data/dataset/indexed_dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::data {

struct InstructionOptions {
  std::string prompt_column = "prompt";
  std::string response_column = "response";
  // A column with text that belongs behind the prompt on a line of its own where it is not empty
  // (Alpaca's "input"); no name: there is none.
  std::string input_column = {};
  // A column with [[question, answer], ...], which `join_history` makes one text with the prompt,
  // also where it is empty; no name: the prompt is alone.
  std::string history_column = {};
  std::string (*join_history)(const std::string& prompt,
                              const std::vector<std::pair<std::string, std::string>>& history) =
      nullptr;
  // The special token that begins an answer in a row of two texts.
  std::optional<int32_t> answer_start = {};
  std::string source_prefix = {};  // in front of all of that
  int64_t max_source_length = 512;
  int64_t max_target_length = 512;
  // A record without a response has an empty one, and one without a prompt is an error: as many
  // samples as records.
  bool every_record = false;
  bool overwrite_cache = false;  // encode anew even if the files beside `cache` are up to date
};

class InstructionDataset : public Dataset {
 public:
  // `path`: JSON lines, or one JSON array of objects. Records whose prompt or response is empty or
  // missing are left out, as there, unless `every_record` is wanted. InvalidArgument for a
  // tokenizer whose rows have no such answer, lengths that leave no room for special tokens,
  // members of another kind (path:line or path[index]), no record that is left.
  static StatusOr<std::shared_ptr<const InstructionDataset>> Open(
      const std::string& path, const Tokenizer& tokenizer, const std::string& cache,
      const InstructionOptions& options = {});

  int64_t size() const override { return tokens_->num_documents(); }
  StatusOr<Batch> MakeBatch(std::span<const Sample> samples) const override;
  std::optional<int64_t> length_of(int64_t index) const override { return length(index); }

  int64_t length(int64_t index) const {
    return tokens_->document_begin(index + 1) - tokens_->document_begin(index);
  }
  bool reused_cache() const { return reused_; }

 private:
  InstructionDataset(std::shared_ptr<const IndexedDataset> tokens, int64_t pad_id,
                     int64_t answer_start, bool reused)
      : tokens_(std::move(tokens)), pad_id_(pad_id), answer_start_(answer_start), reused_(reused) {}

  std::shared_ptr<const IndexedDataset> tokens_;  // a row each
  int64_t pad_id_;
  int64_t answer_start_;
  bool reused_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_SEQUENCE_PAIRS_INSTRUCTION_DATASET_H_
