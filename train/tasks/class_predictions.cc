// SPDX-License-Identifier: Apache-2.0
#include "train/tasks/class_predictions.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "models/model_keys.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

// float32 [B, columns] or [B], row by row.
template <typename Visit>
void ForEachRow(const BatchResult& result, int64_t rows, Visit visit) {
  const Tensor logits =
      CopyTo(CastCopy(result.outputs.at(keys::kLogits).Detach(), DType::kFloat32), Device::Cpu());
  const std::vector<float> values = logits.ToVector<float>();
  const auto columns = values.size() / static_cast<size_t>(std::max<int64_t>(rows, 1));
  for (int64_t r = 0; r < rows; ++r) {
    visit(r, std::span<const float>(values).subspan(static_cast<size_t>(r) * columns, columns));
  }
}

std::vector<double> Softmax(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  std::vector<double> shares;
  double sum = 0;
  for (const float logit : logits) {
    shares.push_back(std::exp(static_cast<double>(logit) - most));
    sum += shares.back();
  }
  for (double& share : shares) share /= sum;
  return shares;
}

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

std::vector<std::string> Chosen(const std::vector<std::string>& names,
                                const std::function<bool(size_t)>& is_chosen) {
  std::vector<std::string> chosen;
  for (size_t i = 0; i < names.size(); ++i) {
    if (is_chosen(i)) chosen.push_back(names[i]);
  }
  return chosen;
}

}  // namespace

void PredictNames(std::vector<std::string> names, Objective* objective) {
  objective->predict = [names = std::move(names), labelled = objective->labelled](
                           const data::Batch& batch, const BatchResult& result) {
    std::vector<int64_t> labels;
    if (labelled) labels = batch.at(keys::kLabels).ToVector<int64_t>();
    std::vector<PredictedRow> rows;
    ForEachRow(result, batch.rows, [&](int64_t r, std::span<const float> logits) {
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      PredictedRow row = {{"prediction", names.at(static_cast<size_t>(best))},
                          {"probabilities", Softmax(logits)}};
      const int64_t label = labelled ? labels[static_cast<size_t>(r)] : data::kIgnoreLabel;
      if (label != data::kIgnoreLabel) row["label"] = names.at(static_cast<size_t>(label));
      rows.push_back(std::move(row));
    });
    return rows;
  };
}

void PredictAnswers(std::vector<std::string> names, Objective* objective) {
  objective->predict = [names = std::move(names), labelled = objective->labelled](
                           const data::Batch& batch, const BatchResult& result) {
    std::vector<float> labels;
    if (labelled) labels = batch.at(keys::kLabels).ToVector<float>();
    std::vector<PredictedRow> rows;
    ForEachRow(result, batch.rows, [&](int64_t r, std::span<const float> logits) {
      std::vector<double> probabilities;
      for (const float logit : logits) probabilities.push_back(Sigmoid(logit));
      PredictedRow row = {{"prediction", Chosen(names, [&](size_t i) { return logits[i] > 0; })},
                          {"probabilities", probabilities}};
      if (labelled) {
        const size_t begin = static_cast<size_t>(r) * names.size();
        row["label"] = Chosen(names, [&](size_t i) { return labels[begin + i] != 0; });
      }
      rows.push_back(std::move(row));
    });
    return rows;
  };
}

void PredictNumbers(Objective* objective) {
  objective->predict = [labelled = objective->labelled](const data::Batch& batch,
                                                        const BatchResult& result) {
    std::vector<float> labels;
    if (labelled) labels = batch.at(keys::kLabels).ToVector<float>();
    std::vector<PredictedRow> rows;
    ForEachRow(result, batch.rows, [&](int64_t r, std::span<const float> logits) {
      PredictedRow row = {{"prediction", logits[0]}};
      if (labelled) row["label"] = labels[static_cast<size_t>(r)];
      rows.push_back(std::move(row));
    });
    return rows;
  };
}

}  // namespace tessera::train
