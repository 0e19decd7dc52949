#include "train/tasks/generation_metrics.h"

#include <algorithm>
#include <utility>

#include "core/batch_keys.h"
#include "data/tokenizer/utf8.h"
#include "models/generation/generate.h"
#include "train/tasks/text_scores.h"

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

class GeneratedTexts : public EvaluationMetrics {
 public:
  GeneratedTexts(const data::Tokenizer& tokenizer, std::shared_ptr<const data::Dataset> shown,
                 const GenerationMetricsOptions& options)
      : tokenizer_(tokenizer), shown_(std::move(shown)), options_(options) {}

  size_t num_counts() const override { return NumTextScoreCounts(); }
  bool needs_logits() const override { return false; }

  StatusOr<std::vector<double>> Count(models::Model& model, const data::Batch& batch,
                                      const models::Bundle&,
                                      const models::LargestOverRanks& ranks) const override {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> written, Write(model, batch, ranks));
    return CountTextScores(written, References(batch));
  }

  nlohmann::ordered_json Finish(const std::vector<double>& sums) const override {
    return FinishTextScores(sums);
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
