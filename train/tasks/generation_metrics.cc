#include "train/tasks/generation_metrics.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/batch_keys.h"
#include "data/text_metrics/bleu.h"
#include "data/text_metrics/rouge.h"
#include "data/tokenizer/python_text.h"
#include "data/tokenizer/utf8.h"
#include "models/generation/generate.h"

namespace tessera::train {
namespace {

// The rows of int64 [B, T] without what `keep` refuses.
template <typename Keep>
std::vector<std::vector<int64_t>> Rows(const Tensor& t, Keep keep) {
  const std::vector<int64_t> all = t.ToVector<int64_t>();
  const int64_t width = t.size(1);
  std::vector<std::vector<int64_t>> rows(static_cast<size_t>(t.size(0)));
  for (int64_t i = 0; i < std::ssize(all); ++i) {
    if (keep(i)) rows[static_cast<size_t>(i / width)].push_back(all[static_cast<size_t>(i)]);
  }
  return rows;
}

// Matches and totals of each order, both lengths.
constexpr size_t kBleuCounts = 2 * data::kBleuOrder + 2;

void AppendBleu(const data::BleuScore& bleu, std::vector<double>* counts) {
  for (const auto& part : {bleu.matches, bleu.totals}) {
    for (const int64_t count : part) counts->push_back(static_cast<double>(count));
  }
  counts->push_back(static_cast<double>(bleu.output_length));
  counts->push_back(static_cast<double>(bleu.reference_length));
}

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

// Means over pairs of a text and its reference, each between 0 and 1. Their counts stand behind
// BLEU's: the number of pairs, and the sum of each score.
constexpr const char* kPairScores[] = {"rouge1", "rouge2", "rougeL", "exact_match"};

// Sums of multiples of 2^-32 are exact for 2^21 pairs, and so the same in every order of ranks and
// batches.
double Summable(double score) { return std::round(score * 0x1p32) * 0x1p-32; }

void AppendPairScores(const std::vector<std::string>& written,
                      const std::vector<std::string>& references, std::vector<double>* counts) {
  double sums[std::size(kPairScores)] = {};
  for (size_t i = 0; i < written.size(); ++i) {
    const data::RougeScore rouge = data::Rouge(written[i], references[i]);
    sums[0] += Summable(rouge.rouge1);
    sums[1] += Summable(rouge.rouge2);
    sums[2] += Summable(rouge.rougeL);
    sums[3] += data::Strip(written[i]) == data::Strip(references[i]) ? 1 : 0;
  }
  counts->push_back(static_cast<double>(written.size()));
  counts->insert(counts->end(), std::begin(sums), std::end(sums));
}

class GeneratedTexts : public EvaluationMetrics {
 public:
  GeneratedTexts(const data::Tokenizer& tokenizer, std::shared_ptr<const data::Dataset> shown,
                 const GenerationMetricsOptions& options)
      : tokenizer_(tokenizer), shown_(std::move(shown)), options_(options) {}

  size_t num_counts() const override { return kBleuCounts + 1 + std::size(kPairScores); }
  bool needs_logits() const override { return false; }

  StatusOr<std::vector<double>> Count(models::Model& model, const data::Batch& batch,
                                      const models::Bundle&,
                                      const models::LargestOverRanks& ranks) const override {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> written, Write(model, batch, ranks));
    const std::vector<std::string> references = References(batch);
    TESSERA_ASSIGN_OR_RETURN(
        const data::BleuScore bleu,
        data::CorpusBleu(written, {references}, {.tokenizer = data::BleuTokenizer::kByReference}));
    std::vector<double> counts;
    AppendBleu(bleu, &counts);
    AppendPairScores(written, references, &counts);
    return counts;
  }

  nlohmann::ordered_json Finish(const std::vector<double>& sums) const override {
    nlohmann::ordered_json json;
    json["bleu"] = BleuOf(sums);
    const double pairs = std::max(sums[kBleuCounts], 1.0);
    for (size_t i = 0; i < std::size(kPairScores); ++i) {
      json[kPairScores[i]] = sums[kBleuCounts + 1 + i] / pairs;
    }
    return json;
  }

  std::vector<std::string> Samples(models::Model& model) const override {
    std::vector<data::Sample> samples;
    for (int64_t i = 0; i < std::min(options_.samples, shown_->size()); ++i) {
      samples.push_back({.index = i, .position = i});
    }
    const auto batch = shown_->MakeBatch(samples);
    if (!batch.ok()) return {};
    const auto written = Write(model, *batch, nullptr);
    if (!written.ok()) return {};
    const std::vector<std::string> sources = Sources(*batch);
    const std::vector<std::string> references = References(*batch);
    std::vector<std::string> lines;
    for (size_t i = 0; i < written->size(); ++i) {
      lines.push_back("  source:    " + sources[i]);
      lines.push_back("  written:   " + data::ReplaceInvalidUtf8((*written)[i]));
      lines.push_back("  reference: " + references[i]);
    }
    return lines;
  }

 private:
  std::vector<std::vector<int64_t>> SourceRows(const data::Batch& batch) const {
    if (options_.answers_in_rows) return PromptRows(batch);
    const std::vector<int64_t> mask = batch.at(keys::kAttentionMask).ToVector<int64_t>();
    return Rows(batch.at(keys::kInputIds),
                [&](int64_t i) { return mask[static_cast<size_t>(i)] != 0; });
  }
  // What stands before the first label of each row.
  static std::vector<std::vector<int64_t>> PromptRows(const data::Batch& batch) {
    const std::vector<int64_t> labels = batch.at(keys::kLabels).ToVector<int64_t>();
    const int64_t width = batch.at(keys::kLabels).size(1);
    bool answers = false;
    return Rows(batch.at(keys::kInputIds), [&](int64_t i) {
      if (i % width == 0) answers = false;
      answers = answers || labels[static_cast<size_t>(i)] != data::kIgnoreLabel;
      return !answers;
    });
  }
  std::string Text(const std::vector<int64_t>& ids) const {
    const std::vector<int32_t> narrow(ids.begin(), ids.end());
    return tokenizer_.Decode(narrow, {.skip_special = true});
  }
  std::vector<std::string> Sources(const data::Batch& batch) const {
    std::vector<std::string> texts;
    for (const auto& row : SourceRows(batch)) texts.push_back(Text(row));
    return texts;
  }
  std::vector<std::string> References(const data::Batch& batch) const {
    const std::vector<int64_t> labels = batch.at(keys::kLabels).ToVector<int64_t>();
    std::vector<std::string> texts;
    for (const auto& row : Rows(batch.at(keys::kLabels), [&](int64_t i) {
           return labels[static_cast<size_t>(i)] != data::kIgnoreLabel;
         })) {
      texts.push_back(Text(row));
    }
    return texts;
  }
  StatusOr<std::vector<std::string>> Write(models::Model& model, const data::Batch& batch,
                                           const models::LargestOverRanks& ranks) const {
    TESSERA_ASSIGN_OR_RETURN(models::GenerationConfig config,
                             models::ReadGenerationConfig("", model.config()));
    config.max_new_tokens = options_.max_new_tokens;
    config.num_beams = options_.num_beams;
    if (!options_.eos_ids.empty()) config.eos_token_ids = options_.eos_ids;
    TESSERA_ASSIGN_OR_RETURN(
        const std::vector<models::GenerationResult> results,
        models::Generate(model, SourceRows(batch), config,
                         {.tokenizer = &tokenizer_, .largest_over_ranks = ranks}));
    std::vector<std::string> texts;
    for (const models::GenerationResult& result : results) texts.push_back(result.text);
    return texts;
  }

  const data::Tokenizer& tokenizer_;
  const std::shared_ptr<const data::Dataset> shown_;
  const GenerationMetricsOptions options_;
};

}  // namespace

std::shared_ptr<const EvaluationMetrics> GenerationMetrics(
    const data::Tokenizer& tokenizer, std::shared_ptr<const data::Dataset> shown,
    const GenerationMetricsOptions& options) {
  return std::make_shared<GeneratedTexts>(tokenizer, std::move(shown), options);
}

}  // namespace tessera::train
