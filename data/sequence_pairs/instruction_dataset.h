// Instructions and their answers for ChatGLM-6B: supervised fine-tuning on prompts, responses and
// the conversation before them.
//
//   TESSERA_ASSIGN_OR_RETURN(
//       std::shared_ptr<const InstructionDataset> chats,
//       InstructionDataset::Open("train.json", *tokenizer, "out/data/chats",
//                                {.prompt_column = "content", .response_column = "summary"}));
//   TESSERA_ASSIGN_OR_RETURN(Batch batch, chats->MakeBatch(samples));
//   // input_ids, labels: int64 [rows, S]
//
// A row is prompt [gMASK] <sop> response <eop>, as THUDM's fine-tuning makes it
// (ChatGLM-6B, ptuning/main.py): the prompt is cut to max_source_length - 1 tokens and the response
// to max_target_length - 2; labels are kIgnoreLabel before <sop> and the ids from there on, not yet
// shifted (the model predicts each from what stands before it). Rows are padded on the right to the
// longest of the batch; the model takes its attention mask and positions from the ids.
#ifndef TESSERA_DATA_SEQUENCE_PAIRS_INSTRUCTION_DATASET_H_
#define TESSERA_DATA_SEQUENCE_PAIRS_INSTRUCTION_DATASET_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/status.h"
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
  // A column with [[question, answer], ...], which comes before the prompt in the form
  // "[Round 0]\n问：...\n答：...\n[Round 1]\n问：prompt\n答："; no name: the prompt stands alone.
  std::string history_column = {};
  std::string source_prefix = {};   // in front of all of that
  int64_t max_source_length = 512;  // prompt and [gMASK]; >= 1
  int64_t max_target_length = 512;  // <sop>, response and <eop>; >= 2
  bool overwrite_cache = false;     // encode anew even if the files beside `cache` are up to date
};

class InstructionDataset : public Dataset {
 public:
  // `path`: JSON lines, or one JSON array of objects. Records whose prompt or response is empty or
  // missing are left out, as there. InvalidArgument for a tokenizer without [gMASK], <sop> and
  // <eop>, members of another kind (path:line or path[index]), no record that is left.
  static absl::StatusOr<std::shared_ptr<const InstructionDataset>> Open(
      const std::string& path, const Tokenizer& tokenizer, const std::string& cache,
      const InstructionOptions& options = {});

  int64_t size() const override { return tokens_->num_documents(); }
  absl::StatusOr<Batch> MakeBatch(std::span<const Sample> samples) const override;

  int64_t length(int64_t index) const {
    return tokens_->document_begin(index + 1) - tokens_->document_begin(index);
  }
  bool reused_cache() const { return reused_; }

 private:
  InstructionDataset(std::shared_ptr<const IndexedDataset> tokens, int64_t pad_id, int64_t bos_id,
                     bool reused)
      : tokens_(std::move(tokens)), pad_id_(pad_id), bos_id_(bos_id), reused_(reused) {}

  std::shared_ptr<const IndexedDataset> tokens_;  // a row each
  int64_t pad_id_;
  int64_t bos_id_;
  bool reused_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_SEQUENCE_PAIRS_INSTRUCTION_DATASET_H_
