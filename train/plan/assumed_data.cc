// SPDX-License-Identifier: Apache-2.0
#include "train/plan/assumed_data.h"

#include <algorithm>
#include <vector>

#include "base/file.h"
#include "data/dataset/indexed_dataset.h"
#include "data/dataset/indexed_dataset_writer.h"
#include "models/family.h"
#include "models/open/describe_model.h"
#include "nlohmann/json.hpp"
#include "train/ranks/rank_model.h"

namespace tessera::train {
namespace {

bool IsThere(const std::string& path) {
  return PathExists(path) || data::IndexedDatasetPrefix(path).has_value();
}

// The tokens of a row: the run's, else as many as the model has positions.
StatusOr<int64_t> RowTokens(const RunConfig& config) {
  constexpr int64_t kUnlimited = 1024;
  if (config.seq_len) return *config.seq_len;
  TESSERA_ASSIGN_OR_RETURN(models::DescribedModel model, models::DescribeModel(config.model));
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json overrides,
                           OverridesOf(config, model.config, config.model));
  model.Change(overrides);
  nn::BuildContext dry;
  dry.device = Device::Meta();
  TESSERA_ASSIGN_OR_RETURN(const auto shape, models::BuildModel(model.config, dry));
  return shape->max_positions() > 0 ? shape->max_positions() : kUnlimited;
}

}  // namespace

bool LacksData(const RunConfig& config) {
  const std::vector<DataSource> sources = config.Sources();
  return sources.empty() ||
         std::any_of(sources.begin(), sources.end(),
                     [](const DataSource& source) { return !IsThere(source.path); }) ||
         (!config.Validation().empty() && !IsThere(config.Validation()));
}

Status AssumeData(int data_ranks, const std::string& folder, RunConfig* config) {
  constexpr int kVocabulary = 1 << 15;  // two bytes each
  constexpr int32_t kToken = 200;       // of any vocabulary, and no special one
  constexpr int64_t kSequence = int64_t{1} << 20;
  TESSERA_ASSIGN_OR_RETURN(const int64_t row, RowTokens(*config));
  // A held-out share must leave a step of training data.
  const int64_t rows = config->batch_size * config->accumulation_steps() * data_ranks + 1;
  const auto share = 1 - std::min(config->val_fraction, 0.99);
  auto left = static_cast<int64_t>(static_cast<double>(rows * row + 2) / share) + row;
  TESSERA_RETURN_IF_ERROR(MakeDirectories(folder));
  const std::string prefix = JoinPath(folder, "assumed");
  TESSERA_ASSIGN_OR_RETURN(const auto writer,
                           data::IndexedDatasetWriter::Create(prefix, kVocabulary));
  const std::vector<int32_t> tokens(static_cast<size_t>(std::min(left, kSequence)), kToken);
  for (; left > 0; left -= kSequence) {
    TESSERA_RETURN_IF_ERROR(
        writer->AddSequence({tokens.data(), static_cast<size_t>(std::min(left, kSequence))}));
    writer->EndDocument();
  }
  TESSERA_RETURN_IF_ERROR(writer->Finish());
  config->data = {prefix};
  if (!config->Validation().empty()) config->val_data = prefix;
  config->split.clear();
  config->val_split.clear();
  return OkStatus();
}

}  // namespace tessera::train
