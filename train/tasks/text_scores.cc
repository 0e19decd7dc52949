// SPDX-License-Identifier: Apache-2.0
#include "train/tasks/text_scores.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "base/python_text.h"
#include "data/text_metrics/bleu.h"
#include "data/text_metrics/rouge.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

// Counts are BLEU's (matches and totals of each order, both lengths), the number of texts, and the
// sum of each score that is a mean over texts.
constexpr size_t kBleuCounts = 2 * data::kBleuOrder + 2;
constexpr const char* kMeans[] = {"rouge1", "rouge2", "rougeL", "exact_match"};

double BleuOf(const std::vector<double>& sums) {
  data::BleuScore bleu;
  for (size_t n = 0; n < data::kBleuOrder; ++n) {
    bleu.matches[n] = static_cast<int64_t>(sums[n]);
    bleu.totals[n] = static_cast<int64_t>(sums[data::kBleuOrder + n]);
  }
  bleu.output_length = static_cast<int64_t>(sums[2 * data::kBleuOrder]);
  bleu.reference_length = static_cast<int64_t>(sums[2 * data::kBleuOrder + 1]);
  data::ScoreCounts(&bleu);
  return bleu.score;
}

// Rounded to a multiple of 2^-32: sums of these do not round.
double Summable(double score) { return std::round(score * 0x1p32) * 0x1p-32; }

}  // namespace

size_t NumTextScoreCounts() { return kBleuCounts + 1 + std::size(kMeans); }

StatusOr<std::vector<double>> CountTextScores(const std::vector<std::string>& written,
                                              const std::vector<std::string>& references) {
  TESSERA_ASSIGN_OR_RETURN(
      const data::BleuScore bleu,
      data::CorpusBleu(written, {references}, {.tokenizer = data::BleuTokenizer::kByReference}));
  std::vector<double> counts(bleu.matches.begin(), bleu.matches.end());
  counts.insert(counts.end(), bleu.totals.begin(), bleu.totals.end());
  counts.push_back(static_cast<double>(bleu.output_length));
  counts.push_back(static_cast<double>(bleu.reference_length));
  counts.push_back(static_cast<double>(written.size()));
  double sums[std::size(kMeans)] = {};
  for (size_t i = 0; i < written.size(); ++i) {
    const data::RougeScore rouge = data::Rouge(written[i], references[i]);
    sums[0] += Summable(rouge.rouge1);
    sums[1] += Summable(rouge.rouge2);
    sums[2] += Summable(rouge.rougeL);
    sums[3] += Strip(written[i]) == Strip(references[i]) ? 1 : 0;
  }
  counts.insert(counts.end(), std::begin(sums), std::end(sums));
  return counts;
}

nlohmann::ordered_json FinishTextScores(const std::vector<double>& sums) {
  nlohmann::ordered_json json;
  json["bleu"] = BleuOf(sums);
  const double texts = std::max(sums[kBleuCounts], 1.0);
  for (size_t i = 0; i < std::size(kMeans); ++i) {
    json[kMeans[i]] = sums[kBleuCounts + 1 + i] / texts;
  }
  return json;
}

}  // namespace tessera::train
