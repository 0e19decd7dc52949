// SPDX-License-Identifier: Apache-2.0
// BLEU of a corpus, as sacreBLEU reports it.
//
//   TESSERA_ASSIGN_OR_RETURN(BleuScore bleu, CorpusBleu(outputs, {references}));
//   bleu.score;   // 0 ... 100
//
// K. Papineni et al., "BLEU: a method for automatic evaluation of machine translation", ACL 2002,
// in the form that M. Post, "A call for clarity in reporting BLEU scores", WMT 2018, fixes: n-grams
// up to 4, tokenised by the WMT rules (mteval-v13a) or, for Chinese, by characters, exponential
// smoothing of orders without a match, the nearest reference length. Equal to sacrebleu 2.6.0 with
// the same `tokenize` and its other defaults ("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp").
#ifndef TESSERA_DATA_TEXT_METRICS_BLEU_H_
#define TESSERA_DATA_TEXT_METRICS_BLEU_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera::data {

// kByReference: kZh for a segment whose (first) reference holds a CJK ideograph, k13a for others.
enum class BleuTokenizer { k13a, kZh, kByReference };

// How texts are made comparable.
struct BleuOptions {
  BleuTokenizer tokenizer = BleuTokenizer::k13a;
  bool lower_case = false;
};

inline constexpr int kBleuOrder = 4;

struct BleuScore {
  double score = 0;                                // percent
  std::array<double, kBleuOrder> precisions = {};  // percent, by the n-grams' length, smoothed
  std::array<int64_t, kBleuOrder> matches = {};
  std::array<int64_t, kBleuOrder> totals = {};
  double brevity_penalty = 1;
  int64_t output_length = 0;  // tokens
  int64_t reference_length = 0;
};

// `references`: one or more sets, each with a reference for every output. InvalidArgument when
// their numbers differ or there is no output. Text is UTF-8.
StatusOr<BleuScore> CorpusBleu(const std::vector<std::string>& outputs,
                               const std::vector<std::vector<std::string>>& references,
                               const BleuOptions& options = {});

// Fills in the percentages of counts (matches, totals, lengths), which may be sums over the parts
// of a corpus.
void ScoreCounts(BleuScore* bleu);

// The tokens that BLEU counts, with a blank between; kByReference takes `text` for a reference.
std::string TokenizeForBleu(std::string_view text, const BleuOptions& options = {});

}  // namespace tessera::data

#endif  // TESSERA_DATA_TEXT_METRICS_BLEU_H_
