// SPDX-License-Identifier: Apache-2.0
// Labels of a configuration, and the loss of a classifier: what every family with a classification
// head shares.
//
//   TESSERA_ASSIGN_OR_RETURN(const LabelSpec labels, LabelSpec::FromJson(json, "bert"));
//   Tensor loss = ClassificationLoss(logits_BL, in.at(keys::kLabels), labels.problem, options);
//
// Meanings are Hugging Face's. The number of labels is that of `id2label`, else `num_labels`, else
// 2. `problem_type` is "regression" (mean squared error), "single_label_classification"
// (cross-entropy of int64 labels [B]) or "multi_label_classification" (binary cross-entropy of
// floating labels [B, L]); without it one label means regression, integers a single label, other
// labels several.
#ifndef TESSERA_MODELS_CLASSIFICATION_H_
#define TESSERA_MODELS_CLASSIFICATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/tensor.h"
#include "models/model.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

enum class ProblemType { kRegression, kSingleLabel, kMultiLabel };

struct LabelSpec {
  int64_t count = 2;
  std::optional<ProblemType> problem;

  static StatusOr<LabelSpec> FromJson(const nlohmann::json& json, const std::string& family);
  // What these labels ask for.
  ProblemType ProblemOf(const Tensor& labels) const;
};

// Writes `names` into `id2label` and `label2id` of a configuration; for fine-tuning on other
// labels.
void SetLabels(const std::vector<std::string>& names, nlohmann::json* config);
// The names in order of their ids; LABEL_0, ... where the configuration has none.
std::vector<std::string> LabelNames(const nlohmann::json& config);

// The loss of logits [B, L] (or [B, T, L], single labels only) reduced as options.loss_reduction
// says, smoothed by options.label_smoothing and weighted by options.class_weights [L] where those
// are given (single labels only). A
// regression's or several labels' loss of a row is the mean over its L columns.
Tensor ClassificationLoss(const Tensor& logits, const Tensor& labels, const LabelSpec& spec,
                          const RunOptions& options);

// Whether labels fit logits of `rows` rows: the shape, and ids in [0, count) or -100.
Status CheckLabels(const std::string& source, const Tensor& labels, int64_t rows,
                   const LabelSpec& spec);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_CLASSIFICATION_H_
