// SPDX-License-Identifier: Apache-2.0
#include "train/tasks/label_setup.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_join.h"
#include "data/classification/labels.h"
#include "models/classification.h"
#include "nlohmann/json.hpp"
#include "train/config/comma_list.h"

namespace tessera::train {
namespace {

std::vector<std::string> Numbers(size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

bool Contains(const std::vector<std::string>& all, const std::vector<std::string>& some) {
  return std::all_of(some.begin(), some.end(), [&](const std::string& name) {
    return std::any_of(all.begin(), all.end(),
                       [&](const std::string& known) { return data::LabelName(known) == name; });
  });
}

}  // namespace

std::vector<std::string> ModelLabels(const nlohmann::json& model,
                                     const std::vector<std::string>& found) {
  const std::vector<std::string> names = models::LabelNames(model);
  if (Contains(names, found)) return names;
  const std::vector<std::string> ids = Numbers(names.size());
  if (Contains(ids, found)) return ids;
  return {};
}

std::vector<std::string> ChooseLabels(const TaskInput& input, const std::vector<std::string>& found,
                                      TaskData* data) {
  data->replaces_head = true;  // a folder without this head gets one
  if (input.model.contains("id2label")) {
    const std::vector<std::string> names = models::LabelNames(input.model);
    const std::vector<std::string> known = ModelLabels(input.model, found);
    const bool named = !names.empty() && names[0] != "LABEL_0";
    const bool few_ids = named && known != names && found.size() < known.size();
    if (!known.empty() && !few_ids) return known;
  }
  models::SetLabels(found, &*data->model_changes);
  data->model_changes["num_labels"] = nullptr;
  return found;
}

std::vector<std::string> NamesAfterTraining(const TaskInput& input, const TaskData& data,
                                            const std::vector<std::string>& names) {
  return data.model_changes->contains("id2label") ? names : models::LabelNames(input.model);
}

StatusOr<std::vector<std::string>> LabelsForEvaluation(const TaskInput& input,
                                                       const std::vector<std::string>& found) {
  std::vector<std::string> known = ModelLabels(input.model, found);
  if (!known.empty()) return known;
  return InvalidArgument(input.sources[0].path,
                         ": has labels that the model does not know; it has: ",
                         absl::StrJoin(models::LabelNames(input.model), ", "));
}

StatusOr<Tensor> ClassWeights(const std::string& text, const std::vector<std::string>& names,
                              const std::vector<int64_t>& labels) {
  if (text.empty()) return Tensor();
  std::vector<float> weights;
  if (text == "balanced") {
    std::vector<int64_t> counts(names.size(), 0);
    for (const int64_t label : labels) ++counts.at(static_cast<size_t>(label));
    for (const int64_t count : counts) {
      const auto share = static_cast<double>(std::ssize(names) * std::max<int64_t>(count, 1));
      weights.push_back(static_cast<float>(static_cast<double>(labels.size()) / share));
    }
  } else {
    for (const std::string& part : SplitAtCommas(text)) {
      float weight = 0;
      const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), weight);
      if (error != std::errc() || end != part.data() + part.size() || !(weight >= 0) ||
          !std::isfinite(weight)) {
        return InvalidArgument("class_weights: '", part, "' is no weight; give 'balanced', or a ",
                               "number for each label");
      }
      weights.push_back(weight);
    }
    if (weights.size() != names.size()) {
      return InvalidArgument("class_weights has ", weights.size(), " numbers for ", names.size(),
                             " labels");
    }
  }
  return Tensor::FromVector(weights, {std::ssize(weights)});
}

}  // namespace tessera::train
