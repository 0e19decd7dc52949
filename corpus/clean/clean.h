// SPDX-License-Identifier: Apache-2.0
// `tessera corpus clean`: mends texts and keeps the good ones.
#ifndef TESSERA_CORPUS_CLEAN_CLEAN_H_
#define TESSERA_CORPUS_CLEAN_CLEAN_H_

#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "corpus/engine/document_pass.h"

namespace tessera::corpus {

struct CleanOptions : FilterFiles {
  std::string key;
  std::vector<std::string> keep;
  std::vector<std::string> drop;
  bool repair = true;
  std::string normal_form = "nfc";
  std::vector<std::string> language;
  double min_language_score = 0.65;
  bool tag = false;
  std::vector<std::string> filters;
  std::string bad_words;
  int64_t min_tokens = 128;
  std::optional<int64_t> max_tokens;
  std::string tokenizer;
  int64_t min_characters = 512;
  std::optional<int64_t> max_characters;

  // `key` and its values are given together.
  Status Check(const std::string& source) const;
  static const OptionTable& Table();
};

StatusOr<Counts> RunClean(const CleanOptions& options, const RunContext& context);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_CLEAN_CLEAN_H_
