// From a configuration to what the trainer needs: tokenizer, data and model.
//
//   TESSERA_ASSIGN_OR_RETURN(const dist::Mesh mesh, MakeMesh(config, world));
//   TESSERA_ASSIGN_OR_RETURN(RunSetup setup, PrepareRun(config, mesh));
//
// `model` is a preset (random weights) or a folder (its weights are loaded when it has any).
// `data` is text (a file, a directory, JSON lines), tokenised once into `<out>/data/` and reused
// on the next start, or a dataset that `tessera tokenize` or Megatron-LM made. A preset takes the
// tokenizer's vocabulary; a folder's must be large enough for it. In a parallel run one rank of
// each host makes the data, and the others map the same file.
#ifndef TESSERA_TRAIN_RUN_SETUP_H_
#define TESSERA_TRAIN_RUN_SETUP_H_

#include <memory>
#include <string>

#include "core/status.h"
#include "data/dataset/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "dist/mesh/mesh.h"
#include "models/model.h"
#include "train/config.h"

namespace tessera::train {

struct RunSetup {
  std::unique_ptr<models::Model> model;
  std::unique_ptr<data::Tokenizer> tokenizer;  // null for a ready dataset without one
  std::shared_ptr<const data::Dataset> train_data;
  std::shared_ptr<const data::Dataset> val_data;  // null: no evaluation
  // The configuration with what was left to the model filled in (seq_len, tokenizer).
  RunConfig config;
};

// The ranks as the configuration lays them out. Fails, on all ranks alike, where the sizes do not
// fit the world, or where a rank was started with another configuration: that rank and the key are
// named. Collective over `world`.
absl::StatusOr<dist::Mesh> MakeMesh(const RunConfig& config, const dist::Group& world);

// Collective over the mesh's world; a failure of any rank is every rank's (train/agreement.h).
absl::StatusOr<RunSetup> PrepareRun(const RunConfig& config, const dist::Mesh& mesh = {});

// Whether a model learns from running text: a causal language model. Others are named.
absl::Status CheckIsCausal(const models::Model& model);

// One dataset of whole documents, as `tessera eval` uses it.
absl::StatusOr<std::shared_ptr<const data::Dataset>> OpenEvaluationData(
    const std::string& data, const data::Tokenizer* tokenizer, const std::string& cache_prefix,
    int64_t seq_len, int64_t vocab_size, const std::string& json_key);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RUN_SETUP_H_
