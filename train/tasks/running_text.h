// SPDX-License-Identifier: Apache-2.0
// Running text as tokens, and its parts: what the language-modelling tasks share.
//
//   TESSERA_ASSIGN_OR_RETURN(const TextParts text, OpenRunningText(input));
//   PackedDataset::Create(text.train.tokens, {.part = text.train.part, ...});
#ifndef TESSERA_TRAIN_TASKS_RUNNING_TEXT_H_
#define TESSERA_TRAIN_TASKS_RUNNING_TEXT_H_

#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "data/dataset/indexed_dataset.h"
#include "data/dataset/packed_dataset.h"
#include "train/task.h"

namespace tessera::train {

struct RunningTextOptions {
  std::string json_key = "text";

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<RunningTextOptions>("Running text")
            .Add("json_key", &RunningTextOptions::json_key,
                 "member of JSON records, or column of a table, that holds the text",
                 {.evaluation = true}));
    return *table;
  }
};

// What tasks ask besides that can do without packing.
struct PackingOptions : RunningTextOptions {
  bool packing = true;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<PackingOptions>("Packing")
            .Include<PackingOptions, RunningTextOptions>()
            .Add("packing", &PackingOptions::packing,
                 "rows are windows over all documents (files, or records) one after the other; "
                 "false: each row is one document, padded to the longest of its batch, or what of "
                 "a longer one follows `seq_len` tokens",
                 {.evaluation = true}));
    return *table;
  }
};

// A part of streams of tokens, each with its weight in a blend; none: there is no such part.
struct TextPart {
  std::vector<std::shared_ptr<const data::IndexedDataset>> streams;
  std::vector<double> weights;
  data::DataPart part = data::DataPart::kAll;
  double validation_fraction = 0;
};

struct TextParts {
  TextPart train;       // none in an evaluation
  TextPart validation;  // the end of the training text, or `val_data`
};

// How text is cut into rows.
struct WindowOptions {
  bool packing = true;  // else documents by themselves (data/dataset/document_dataset.h)
  bool reset_at_documents = false;  // positions begin anew and attention ends at their borders
};

// Windows of `seq_len` tokens over a part, those of several streams blended; null where there is
// none.
StatusOr<std::shared_ptr<const data::TokenDataset>> Windows(const TextPart& text, int64_t seq_len,
                                                            const TaskInput& input,
                                                            const WindowOptions& options = {});

// What stands before each document of text.
enum class DocumentBegin { kNothing, kTokenizers };  // data::Tokenizer::text_begin

// Opens what is tokenised already, and tokenises text into the task's cache.
StatusOr<TextParts> OpenRunningText(const TaskInput& input,
                                    DocumentBegin begin = DocumentBegin::kNothing);

// TaskKind::tokenizer_text of these tasks.
TokenizerText RunningTokenizerText(const RunConfig& config);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TASKS_RUNNING_TEXT_H_
