// SPDX-License-Identifier: Apache-2.0
// Scores of written texts against their references, by counts that add up over the parts of a
// corpus.
//
//   TESSERA_ASSIGN_OR_RETURN(std::vector<double> counts, CountTextScores(written, references));
//   for (size_t i = 0; i < counts.size(); ++i) sums[i] += counts[i];   // over batches and ranks
//   FinishTextScores(sums);   // {"bleu": 31.2, "rouge1": 0.61, ...}
#ifndef TESSERA_TRAIN_TASKS_TEXT_SCORES_H_
#define TESSERA_TRAIN_TASKS_TEXT_SCORES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::train {

// How many counts there are.
size_t NumTextScoreCounts();

// InvalidArgument where there is no text or `references` has not one for each. Sums of counts are
// exact, and so the same in every order, for 2^21 texts.
StatusOr<std::vector<double>> CountTextScores(const std::vector<std::string>& written,
                                              const std::vector<std::string>& references);

// bleu                     the corpus' (data/text_metrics/bleu.h), percent; of a text whose
//                          reference holds CJK ideographs, characters are counted
// rouge1, rouge2, rougeL   means over the texts of data/text_metrics/rouge.h's, 0 ... 1
// exact_match              the share of texts that are the reference, but for blanks at the ends
nlohmann::ordered_json FinishTextScores(const std::vector<double>& sums);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TASKS_TEXT_SCORES_H_
