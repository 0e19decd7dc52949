// SPDX-License-Identifier: Apache-2.0
// Which of two completions people prefer: direct preference optimisation.
#include <tuple>
#include <utility>

#include "base/file.h"
#include "base/options.h"
#include "data/dataset/subset.h"
#include "data/preference/preference_dataset.h"
#include "models/family.h"
#include "models/hub/adapter_config.h"
#include "nlohmann/json.hpp"
#include "train/preferences/preference_loss.h"
#include "train/task.h"

namespace tessera::train {
namespace {

using data::PreferenceDataset;

struct PreferenceOptions {
  double beta = 0.1;
  bool disable_dropout = true;
  std::string reference_model;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<PreferenceOptions>("preference")
            .Add("beta", &PreferenceOptions::beta,
                 "what a log-probability that differs from the reference model's is worth as a "
                 "reward; smaller numbers let the model go further from it",
                 {.above = 0, .evaluation = true, .aliases = {{"pref_beta", "LLaMA-Factory"}}})
            .Add("disable_dropout", &PreferenceOptions::disable_dropout,
                 "the model and its adapter train without dropout, as the reference model judges; "
                 "false: with the dropout that they have")
            .Add("reference_model", &PreferenceOptions::reference_model,
                 "folder of the model that rewards are relative to",
                 {.type = "DIR",
                  .unset = "the model that the run begins with, without its adapter",
                  .evaluation = true,
                  .aliases = {{"ref_model", "LLaMA-Factory"}}}));
    return *table;
  }
};

// Counts of the loss as TRL calls their means.
class PreferenceMetrics : public EvaluationMetrics {
 public:
  size_t num_counts() const override { return static_cast<size_t>(PreferenceCount::kNumCounts); }
  Reads reads() const override { return Reads::kLossCounts; }
  StatusOr<std::vector<double>> Count(const data::Batch&,
                                      const BatchResult& result) const override {
    return CopyTo(result.outputs.at(keys::kLossCounts), Device::Cpu()).ToVector<double>();
  }
  nlohmann::ordered_json Finish(const std::vector<double>& sums) const override {
    const auto mean = [&](PreferenceCount count) {
      const double pairs = sums[static_cast<size_t>(PreferenceCount::kPairs)];
      return sums[static_cast<size_t>(count)] / (pairs > 0 ? pairs : 1);
    };
    const double chosen = mean(PreferenceCount::kChosenRewards);
    const double rejected = mean(PreferenceCount::kRejectedRewards);
    return {{"rewards/chosen", chosen},
            {"rewards/rejected", rejected},
            {"rewards/accuracies", mean(PreferenceCount::kWon)},
            {"rewards/margins", chosen - rejected},
            {"logps/chosen", mean(PreferenceCount::kChosenLogProbabilities)},
            {"logps/rejected", mean(PreferenceCount::kRejectedLogProbabilities)}};
  }
};

int FitPreference(const RunConfig&, const models::Architecture*) { return 0; }

Status CheckKeys(const TaskInput& input, const PreferenceOptions& keys) {
  const RunConfig& config = input.config;
  if (config.label_smoothing >= 0.5) {
    return InvalidArgument("label_smoothing is ", config.label_smoothing,
                           "; of preferences it is the share that is the wrong way round, below "
                           "0.5");
  }
  const auto& [dropout, key] = config.dropout.value_or(0) > 0
                                   ? std::pair(*config.dropout, "dropout")
                                   : std::pair(config.lora_dropout, "lora_dropout");
  if (keys.disable_dropout && dropout > 0) {
    return InvalidArgument(key, " is ", dropout, ", and disable_dropout is true; give it false");
  }
  if (!keys.reference_model.empty()) return OkStatus();
  if (IsDirectory(config.adapter)) {
    TESSERA_ASSIGN_OR_RETURN(const auto adapter, models::AdapterConfig::Read(config.adapter));
    if (adapter.modules_to_save.empty() && adapter.bias == "none") return OkStatus();
    return InvalidArgument("reference_model is missing: the adapter '", config.adapter,
                           "' replaces parameters of the model (modules_to_save, bias), so "
                           "that the model without it is not at hand");
  }
  if (!config.adapter.empty()) return OkStatus();
  if (input.evaluation) {
    return InvalidArgument(
        "reference_model is missing: the folder of the model that was trained on preferences does "
        "not say what it began with");
  }
  if (models::FindPreset(config.model) == nullptr) return OkStatus();
  return InvalidArgument("reference_model is missing: '", config.model,
                         "' begins with random weights, and there is no adapter beside a model to "
                         "hold on to");
}

StatusOr<std::shared_ptr<PreferenceDataset>> OpenPreferences(const TaskInput& input,
                                                             const std::string& path,
                                                             const char* name) {
  const RunConfig& config = input.config;
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  return PreferenceDataset::Open(
      path, *tokenizer, JoinPath(input.cache, name),
      {.max_length = input.SeqLen(0), .overwrite_cache = config.overwrite_cache});
}

Objective ObjectiveOf(const RunConfig& config, double beta) {
  const PreferenceLossOptions options = {.beta = beta, .label_smoothing = config.label_smoothing};
  Objective objective;
  objective.metrics = std::make_shared<PreferenceMetrics>();
  objective.loss_of_tokens = {
      .run =
          [options](const Tensor& token_losses, const models::Bundle& batch) {
            return PreferenceLoss(SequenceLogProbabilities(token_losses),
                                  batch.at(keys::kReferenceLogProbabilities), options);
          },
      .capturable = true};
  objective.loss_reads = {keys::kReferenceLogProbabilities};
  return objective;
}

StatusOr<TaskData> OpenPreference(const TaskInput& input) {
  const RunConfig& config = input.config;
  TESSERA_ASSIGN_OR_RETURN(const auto keys, config.Part<PreferenceOptions>());
  TESSERA_RETURN_IF_ERROR(CheckKeys(input, keys));
  TESSERA_ASSIGN_OR_RETURN(const std::string source, input.OneSource());
  TESSERA_RETURN_IF_ERROR(MakeDirectories(input.cache));
  TESSERA_ASSIGN_OR_RETURN(const auto pairs,
                           OpenPreferences(input, source, input.evaluation ? "val" : "train"));
  TaskData data;
  data.preferences = {pairs};
  if (input.evaluation) {
    data.validation = pairs;
  } else if (!config.Validation().empty()) {
    data.train = pairs;
    TESSERA_ASSIGN_OR_RETURN(const auto held_out,
                             OpenPreferences(input, config.Validation(), "val"));
    data.validation = held_out;
    data.preferences.push_back(held_out);
  } else {
    std::tie(data.train, data.validation) =
        data::SplitDataset(pairs, {.fraction = config.val_fraction, .from_end = true});
  }
  data.objective = ObjectiveOf(config, keys.beta);
  data.disables_dropout = keys.disable_dropout;
  data.reference_model = keys.reference_model;
  data.seq_len = input.SeqLen(0);
  return data;
}

const TaskKind kPreference = {.name = "preference",
                              .help = "pairs of completions of which one is preferred (DPO)",
                              .capability = models::Capability::kNextToken,
                              .fit = FitPreference,
                              .options = &PreferenceOptions::Table(),
                              .open = OpenPreference};
const TaskRegistration registered_preference(&kPreference);

}  // namespace
}  // namespace tessera::train
