// From a configuration to what the trainer needs: tokenizer, data and model.
//
//   TESSERA_ASSIGN_OR_RETURN(RunSetup setup, PrepareRun(config));
//
// `model` is a preset (random weights) or a folder (its weights are loaded when it has any).
// `data` is text (a file, a directory, JSON lines), tokenised once into `<out>/data/` and reused
// on the next start, or a dataset that `tessera tokenize` or Megatron-LM made. A preset takes the
// tokenizer's vocabulary; a folder's must be large enough for it.
#ifndef TESSERA_TRAIN_RUN_SETUP_H_
#define TESSERA_TRAIN_RUN_SETUP_H_

#include <memory>
#include <string>

#include "core/status.h"
#include "data/dataset/token_dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "models/model.h"
#include "train/config.h"

namespace tessera::train {

struct RunSetup {
  std::unique_ptr<models::Model> model;
  std::unique_ptr<data::Tokenizer> tokenizer;  // null for a ready dataset without one
  std::shared_ptr<const data::TokenDataset> train_data;
  std::shared_ptr<const data::TokenDataset> val_data;  // null: no evaluation
  // The configuration with what was left to the model filled in (seq_len, tokenizer).
  RunConfig config;
};

absl::StatusOr<RunSetup> PrepareRun(const RunConfig& config);

// One dataset of whole documents, as `tessera eval` uses it.
absl::StatusOr<std::shared_ptr<const data::TokenDataset>> OpenEvaluationData(
    const std::string& data, const data::Tokenizer* tokenizer, const std::string& cache_prefix,
    int64_t seq_len, int64_t vocab_size, const std::string& json_key);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RUN_SETUP_H_
