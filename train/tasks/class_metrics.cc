// SPDX-License-Identifier: Apache-2.0
#include "train/tasks/class_metrics.h"

#include <span>

#include "data/classification/metrics.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

std::vector<float> Logits(const models::Bundle& outputs) {
  return CopyTo(CastCopy(outputs.at(keys::kLogits).Detach(), DType::kFloat32), Device::Cpu())
      .ToVector<float>();
}

class SingleLabel : public EvaluationMetrics {
 public:
  explicit SingleLabel(int64_t num_labels) : num_labels_(num_labels) {}
  size_t num_counts() const override { return static_cast<size_t>(3 * num_labels_); }
  StatusOr<std::vector<double>> Count(const data::Batch& batch,
                                      const BatchResult& result) const override {
    return data::LabelCounts(Logits(result.outputs), batch.at(keys::kLabels).ToVector<int64_t>(),
                             num_labels_);
  }
  nlohmann::ordered_json Finish(const std::vector<double>& sums) const override {
    const data::ClassScores scores = data::ScoresOfLabels(sums, num_labels_);
    nlohmann::ordered_json json;
    json["accuracy"] = scores.accuracy;
    json["f1"] = scores.f1;
    json["matthews"] = scores.matthews;
    return json;
  }

 private:
  const int64_t num_labels_;
};

class Top : public EvaluationMetrics {
 public:
  explicit Top(int64_t num_labels) : num_labels_(num_labels) {}
  size_t num_counts() const override { return 3; }
  StatusOr<std::vector<double>> Count(const data::Batch& batch,
                                      const BatchResult& result) const override {
    return data::TopCounts(Logits(result.outputs), batch.at(keys::kLabels).ToVector<int64_t>(),
                           num_labels_, 5);
  }
  nlohmann::ordered_json Finish(const std::vector<double>& sums) const override {
    const double rows = sums[2] > 0 ? sums[2] : 1;
    nlohmann::ordered_json json;
    json["accuracy"] = sums[0] / rows;
    if (num_labels_ > 5) json["top5"] = sums[1] / rows;
    return json;
  }

 private:
  const int64_t num_labels_;
};

class Answers : public EvaluationMetrics {
 public:
  size_t num_counts() const override { return 5; }
  StatusOr<std::vector<double>> Count(const data::Batch& batch,
                                      const BatchResult& result) const override {
    return data::AnswerCounts(Logits(result.outputs), batch.at(keys::kLabels).ToVector<float>());
  }
  nlohmann::ordered_json Finish(const std::vector<double>& sums) const override {
    const double both = 2 * sums[2] + sums[3] + sums[4];
    nlohmann::ordered_json json;
    json["accuracy"] = sums[1] > 0 ? sums[0] / sums[1] : 0.0;
    json["f1"] = both > 0 ? 2 * sums[2] / both : 0.0;
    return json;
  }
};

class Numbers : public EvaluationMetrics {
 public:
  size_t num_counts() const override { return kMoments; }
  // The moments, and behind them each guess with its truth.
  StatusOr<std::vector<double>> Count(const data::Batch& batch,
                                      const BatchResult& result) const override {
    const std::vector<float> guesses = Logits(result.outputs);
    const std::vector<float> truths = batch.at(keys::kLabels).ToVector<float>();
    std::vector<double> counts = data::MomentCounts(guesses, truths);
    for (size_t i = 0; i < guesses.size(); ++i) {
      counts.insert(counts.end(), {guesses[i], truths[i]});
    }
    return counts;
  }
  nlohmann::ordered_json Finish(const std::vector<double>& sums) const override {
    nlohmann::ordered_json json;
    json["pearson"] = data::PearsonOfMoments(sums);
    json["spearman"] = data::SpearmanOfPairs(std::span(sums).subspan(kMoments));
    json["mse"] = sums[0] > 0 ? sums[6] / sums[0] : 0.0;
    return json;
  }

 private:
  static constexpr size_t kMoments = 7;
};

}  // namespace

std::shared_ptr<const EvaluationMetrics> SingleLabelMetrics(int64_t num_labels) {
  return std::make_shared<SingleLabel>(num_labels);
}
std::shared_ptr<const EvaluationMetrics> TopMetrics(int64_t num_labels) {
  return std::make_shared<Top>(num_labels);
}
std::shared_ptr<const EvaluationMetrics> AnswerMetrics() { return std::make_shared<Answers>(); }
std::shared_ptr<const EvaluationMetrics> NumberMetrics() { return std::make_shared<Numbers>(); }

}  // namespace tessera::train
