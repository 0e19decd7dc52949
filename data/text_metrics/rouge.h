// SPDX-License-Identifier: Apache-2.0
// ROUGE of a text against its reference, as Google's rouge_score and Hugging Face's `evaluate`
// compute it without a stemmer.
//
//   const RougeScore score = Rouge("the cat sat", "The cat lay.");
//   score.rouge1;   // 0.667: F-measure, 0 ... 1
//
// C.-Y. Lin, "ROUGE: a package for automatic evaluation of summaries", 2004. A corpus' figure is
// the mean over its pairs, which `evaluate` estimates by resampling (`use_aggregator`).
//
// Tokens are rouge_score 0.1.2's: runs of [a-z0-9] of the text in lower case. For CJK text that
// finds none; here every ideograph, kana and Hangul syllable is a token of its own. Figures for
// such texts differ from those of rouge_chinese, which are made of the words that jieba finds.
#ifndef TESSERA_DATA_TEXT_METRICS_ROUGE_H_
#define TESSERA_DATA_TEXT_METRICS_ROUGE_H_

#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

// F-measures, 0 where a side has no n-gram of the length.
struct RougeScore {
  double rouge1 = 0;  // of tokens
  double rouge2 = 0;  // of pairs of neighbours
  double rougeL = 0;  // of the longest common subsequence
};

// Texts are UTF-8; bytes that are not end a token.
RougeScore Rouge(std::string_view output, std::string_view reference);

// The tokens that ROUGE counts.
std::vector<std::string> TokenizeForRouge(std::string_view text);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TEXT_METRICS_ROUGE_H_
