// SPDX-License-Identifier: Apache-2.0
#include "models/classification.h"

#include "models/config_reader.h"
#include "models/input_check.h"
#include "nlohmann/json.hpp"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/reduction.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

constexpr int64_t kMostLabels = 1 << 24;

constexpr struct {
  const char* name;
  ProblemType problem;
} kProblems[] = {
    {"regression", ProblemType::kRegression},
    {"single_label_classification", ProblemType::kSingleLabel},
    {"multi_label_classification", ProblemType::kMultiLabel},
};

Tensor Reduced(const Tensor& rows, LossReduction reduction) {
  if (reduction == LossReduction::kNone) return rows;
  return reduction == LossReduction::kSum ? Sum(rows) : Mean(rows);
}

}  // namespace

StatusOr<LabelSpec> LabelSpec::FromJson(const nlohmann::json& json, const std::string& family) {
  LabelSpec spec;
  ConfigReader reader(json, family);
  std::string problem;
  reader.Read("num_labels", &spec.count, SizeBelow(kMostLabels));
  reader.Read("problem_type", &problem);
  if (json.contains("id2label") && !json["id2label"].is_null()) {
    reader.Require(json["id2label"].is_object() && !json["id2label"].empty(),
                   "'id2label' must be an object that names every label");
    spec.count = static_cast<int64_t>(json["id2label"].size());
  }
  reader.Require(spec.count > 0 && spec.count < kMostLabels,
                 Concat("'num_labels' is out of range: ", spec.count));
  for (const auto& known : kProblems) {
    if (problem == known.name) spec.problem = known.problem;
  }
  reader.Require(problem.empty() || spec.problem.has_value(),
                 Concat("'problem_type': \"", problem, "\" is not known"));
  TESSERA_RETURN_IF_ERROR(reader.status());
  return spec;
}

ProblemType LabelSpec::ProblemOf(const Tensor& labels) const {
  if (problem) return *problem;
  if (count == 1) return ProblemType::kRegression;
  return IsFloating(labels.dtype()) ? ProblemType::kMultiLabel : ProblemType::kSingleLabel;
}

void SetLabels(const std::vector<std::string>& names, nlohmann::json* config) {
  nlohmann::json names_of_ids = nlohmann::json::object();
  nlohmann::json ids_of_names = nlohmann::json::object();
  for (size_t i = 0; i < names.size(); ++i) {
    names_of_ids[std::to_string(i)] = names[i];
    ids_of_names[names[i]] = i;
  }
  (*config)["id2label"] = std::move(names_of_ids);
  (*config)["label2id"] = std::move(ids_of_names);
  config->erase("num_labels");
}

std::vector<std::string> LabelNames(const nlohmann::json& config) {
  const auto spec = LabelSpec::FromJson(config, "labels");
  std::vector<std::string> names(spec.ok() ? static_cast<size_t>(spec->count) : 0);
  for (size_t i = 0; i < names.size(); ++i) {
    names[i] = Concat("LABEL_", i);
    if (!config.contains("id2label") || !config["id2label"].is_object()) continue;
    const auto found = config["id2label"].find(std::to_string(i));
    if (found != config["id2label"].end() && found->is_string()) {
      names[i] = found->get<std::string>();
    }
  }
  return names;
}

Tensor ClassificationLoss(const Tensor& logits, const Tensor& labels, const LabelSpec& spec,
                          const RunOptions& options) {
  const ProblemType problem = spec.ProblemOf(labels);
  if (problem == ProblemType::kSingleLabel) {
    CrossEntropyOptions loss = LossOptionsOf(options);
    loss.class_weights = options.class_weights;
    return CrossEntropy(logits, labels, loss);
  }
  TESSERA_CHECK(!options.class_weights.defined(), "classification",
                "class weights are for single labels");
  TESSERA_CHECK(options.label_smoothing == 0, "classification",
                "label smoothing is for single labels");
  const int64_t columns = logits.size(-1);
  const Tensor x = Reshape(logits, {-1, columns});
  const Tensor y = Reshape(CastCopy(labels, logits.dtype()), x.shape());
  // -y log s(x) - (1 - y) log(1 - s(x)) = softplus(x) - x y.
  const Tensor each =
      problem == ProblemType::kRegression ? Square(Sub(x, y)) : Sub(Softplus(x), Mul(x, y));
  return Reduced(Mean(each, {-1}), options.loss_reduction);
}

Status CheckLabels(const std::string& source, const Tensor& labels, int64_t rows,
                   const LabelSpec& spec) {
  const ProblemType problem = spec.ProblemOf(labels);
  const bool by_row = labels.shape() == Shape{rows} || labels.shape() == Shape{rows, 1};
  if (problem == ProblemType::kSingleLabel) {
    if (labels.shape() != Shape{rows} || IsFloating(labels.dtype())) {
      return InvalidArgument(source, ": 'labels' must be ", rows, " integers, one per row, not ",
                             labels.shape());
    }
    return CheckRange(source + ": 'labels'", labels, spec.count, -100, "labels");
  }
  if (labels.shape() != Shape{rows, spec.count} && !(spec.count == 1 && by_row)) {
    return InvalidArgument(source, ": 'labels' must have shape ", Shape{rows, spec.count}, ", not ",
                           labels.shape());
  }
  return OkStatus();
}

}  // namespace tessera::models
