// SPDX-License-Identifier: Apache-2.0
// `tessera corpus tokenize`: documents as the tokens that the trainer maps.
#ifndef TESSERA_CORPUS_TOKENIZE_TOKENIZE_H_
#define TESSERA_CORPUS_TOKENIZE_TOKENIZE_H_

#include <optional>
#include <string>

#include "base/options.h"
#include "base/status.h"
#include "corpus/engine/document_pass.h"

namespace tessera::corpus {

// The output is a prefix: PREFIX.bin and PREFIX.idx (data/dataset/indexed_dataset.h). In it `{key}`
// stands for what the tokens depend on beside the documents: the tokenizer and the options.
struct TokenizeOptions : StepFiles {
  std::string tokenizer;
  std::optional<int64_t> seq_len;
  bool bos = true;
  bool eos = true;

  static const OptionTable& Table();
};

StatusOr<Counts> RunTokenize(const TokenizeOptions& options, const RunContext& context);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_TOKENIZE_TOKENIZE_H_
