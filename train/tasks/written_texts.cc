// SPDX-License-Identifier: Apache-2.0
#include "train/tasks/written_texts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/mounted_folder.h"
#include "base/utf8.h"
#include "core/batch_keys.h"
#include "models/generation/generate.h"
#include "models/generation/generation_config.h"
#include "models/open/model_folder.h"
#include "nlohmann/json.hpp"
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

// The last run of targets in each row of int64 [B, T]: [begin, end).
std::vector<std::pair<int64_t, int64_t>> LastRuns(const Tensor& targets) {
  const std::vector<int64_t> all = targets.ToVector<int64_t>();
  const int64_t width = targets.size(1);
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (int64_t row = 0; row < targets.size(0); ++row) {
    const auto counts = [&](int64_t t) {
      return all[static_cast<size_t>(row * width + t)] != data::kIgnoreLabel;
    };
    int64_t end = width;
    while (end > 0 && !counts(end - 1)) --end;
    int64_t begin = end;
    while (begin > 0 && counts(begin - 1)) --begin;
    runs.emplace_back(begin, end);
  }
  return runs;
}

// Texts of batches, in and out of tokens.
class TextWriter {
 public:
  TextWriter(const data::Tokenizer& tokenizer, const WrittenTextsOptions& options,
             StatusOr<models::GenerationConfig> settings)
      : tokenizer_(tokenizer), options_(options), settings_(std::move(settings)) {}

  StatusOr<std::vector<std::string>> Write(models::Model& model, const data::Batch& batch,
                                           const models::LargestOverRanks& ranks) const {
    TESSERA_RETURN_IF_ERROR(settings_.status());
    TESSERA_ASSIGN_OR_RETURN(
        const std::vector<models::GenerationResult> results,
        models::Generate(model, SourceRows(batch), *settings_,
                         {.tokenizer = &tokenizer_, .largest_over_ranks = ranks}));
    std::vector<std::string> texts;
    for (const models::GenerationResult& result : results) {
      texts.push_back(ReplaceInvalidUtf8(result.text));
    }
    return texts;
  }

  std::vector<PredictedRow> Predict(const std::vector<std::string>& texts, const data::Batch& batch,
                                    bool labelled) const {
    std::vector<std::string> references;
    if (labelled) references = References(batch);
    std::vector<PredictedRow> rows;
    for (size_t i = 0; i < texts.size(); ++i) {
      rows.push_back({{"prediction", texts[i]}});
      if (labelled) rows.back()["label"] = references[i];
    }
    return rows;
  }

  std::vector<std::string> Samples(models::Model& model) const {
    std::vector<data::Sample> samples;
    for (int64_t i = 0; i < std::min(options_.samples, options_.shown->size()); ++i) {
      samples.push_back({.index = i, .position = i});
    }
    const auto batch = options_.shown->MakeBatch(samples);
    if (!batch.ok()) return {};
    const auto written = Write(model, *batch, nullptr);
    if (!written.ok()) return {};
    const std::vector<std::string> sources = Sources(*batch);
    const std::vector<std::string> references = References(*batch);
    std::vector<std::string> lines;
    for (size_t i = 0; i < written->size(); ++i) {
      lines.push_back("  source:    " + sources[i]);
      lines.push_back("  written:   " + (*written)[i]);
      lines.push_back("  reference: " + references[i]);
    }
    return lines;
  }

  std::vector<std::string> References(const data::Batch& batch) const {
    std::vector<std::string> texts;
    for (const auto& row : AnswerRows(batch)) {
      texts.push_back(ReplaceInvalidUtf8(Text(row)));
    }
    return texts;
  }

 private:
  // Of `targets`, those of a row's last run; else all that are labelled.
  static std::vector<std::vector<int64_t>> AnswerRows(const data::Batch& batch) {
    if (batch.has(keys::kTargets)) {
      const Tensor& targets = batch.at(keys::kTargets);
      return Rows(targets, [runs = LastRuns(targets), width = targets.size(1)](int64_t i) {
        const auto& [begin, end] = runs[static_cast<size_t>(i / width)];
        return begin <= i % width && i % width < end;
      });
    }
    const std::vector<int64_t> labels = batch.at(keys::kLabels).ToVector<int64_t>();
    return Rows(batch.at(keys::kLabels),
                [&](int64_t i) { return labels[static_cast<size_t>(i)] != data::kIgnoreLabel; });
  }
  std::vector<std::vector<int64_t>> SourceRows(const data::Batch& batch) const {
    if (batch.has(keys::kTargets)) {
      // A target stands a place before its token: the prompt's last token has the run's first.
      const Tensor& targets = batch.at(keys::kTargets);
      return Rows(batch.at(keys::kInputIds),
                  [runs = LastRuns(targets), width = targets.size(1)](int64_t i) {
                    return i % width <= runs[static_cast<size_t>(i / width)].first;
                  });
    }
    if (options_.answers_in_rows) return PromptRows(batch);
    const std::vector<int64_t> mask = batch.at(keys::kAttentionMask).ToVector<int64_t>();
    return Rows(batch.at(keys::kInputIds),
                [&](int64_t i) { return mask[static_cast<size_t>(i)] != 0; });
  }
  // What is before the first label of each row.
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

  const data::Tokenizer& tokenizer_;
  const WrittenTextsOptions options_;
  const StatusOr<models::GenerationConfig> settings_;
};

// The settings of the model's folder, but for those of the options, with all ends of texts.
StatusOr<models::GenerationConfig> WritingSettings(const TaskInput& input,
                                                   const data::Tokenizer& tokenizer,
                                                   const WrittenTextsOptions& options,
                                                   std::vector<std::string>* warnings) {
  std::optional<MountedFolder> mounted;
  TESSERA_ASSIGN_OR_RETURN(const std::string folder,
                           models::ModelFolderAt(input.config.model, &mounted));
  TESSERA_ASSIGN_OR_RETURN(models::GenerationConfig config,
                           models::ReadGenerationConfig(folder, input.model));
  const std::string not_applied = models::NotApplied(input.config.model, config);
  if (options.judged && !not_applied.empty()) warnings->push_back(not_applied);
  nlohmann::json asked = {{"max_new_tokens", options.max_new_tokens}, {"num_return_sequences", 1}};
  if (options.num_beams) asked["num_beams"] = *options.num_beams;
  TESSERA_ASSIGN_OR_RETURN(config, models::WithSettings(std::move(config), asked));
  std::vector<int64_t>& ends = config.eos_token_ids;
  ends.insert(ends.end(), options.eos_ids.begin(), options.eos_ids.end());
  if (options.eos_ids.empty() && tokenizer.eos_id()) ends.push_back(*tokenizer.eos_id());
  return config;
}

class TextMetrics : public EvaluationMetrics {
 public:
  explicit TextMetrics(std::shared_ptr<const TextWriter> writer) : writer_(std::move(writer)) {}
  size_t num_counts() const override { return NumTextScoreCounts(); }
  Reads reads() const override { return Reads::kTexts; }
  StatusOr<std::vector<double>> Count(const data::Batch& batch,
                                      const BatchResult& result) const override {
    return CountTextScores(result.texts, writer_->References(batch));
  }
  nlohmann::ordered_json Finish(const std::vector<double>& sums) const override {
    return FinishTextScores(sums);
  }

 private:
  const std::shared_ptr<const TextWriter> writer_;
};

}  // namespace

Status WriteTexts(const TaskInput& input, const WrittenTextsOptions& options, TaskData* data) {
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  auto settings = WritingSettings(input, *tokenizer, options, &data->warnings);
  if (options.judged) TESSERA_RETURN_IF_ERROR(settings.status());
  Objective* const objective = &data->objective;
  const auto writer = std::make_shared<const TextWriter>(*tokenizer, options, std::move(settings));
  objective->write = [writer](models::Model& model, const data::Batch& batch,
                              const models::LargestOverRanks& ranks) {
    return writer->Write(model, batch, ranks);
  };
  objective->predict = [writer, labelled = objective->labelled](const data::Batch& batch,
                                                                const BatchResult& result) {
    return writer->Predict(result.texts, batch, labelled);
  };
  if (!options.judged || !objective->labelled || options.shown == nullptr) return OkStatus();
  objective->metrics = std::make_shared<TextMetrics>(writer);
  objective->samples = [writer](models::Model& model) { return writer->Samples(model); };
  return OkStatus();
}

}  // namespace tessera::train
