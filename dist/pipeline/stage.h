// SPDX-License-Identifier: Apache-2.0
// What one rank of a pipeline has: some chunks of a model, and weights that other ranks use too.
//
//   TESSERA_ASSIGN_OR_RETURN(Stage stage, BuildStage(config_json, context, cuts, mesh.pp()));
//   std::vector<optim::Parameter> parameters = stage.OptimizedParameters();
//   ... all micro-batches, reduction over data-parallel ranks ...
//   stage.JoinTiedGradients();      // then norm, clipping and optimizer, as in one process
//
// Tied weights (GPT's `wte` and `lm_head`, T5's `shared` and relative biases) are replicated on the
// stages that use them. Initialisation is a function of the name, so replicas begin equal; loading
// is by name. Each use collects a gradient of its own; JoinTiedGradients brings those of all stages
// together and adds them up in the order of one process (the weight's own use first, then the tied
// ones in the order of the model), the same bits on every stage, so that replicas stay equal.
//
// A rank with two chunks that both hold a weight has it once: the later chunk's is tied to the
// earlier's.
#ifndef TESSERA_DIST_PIPELINE_STAGE_H_
#define TESSERA_DIST_PIPELINE_STAGE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/communicator.h"
#include "models/block_keys.h"
#include "models/model.h"
#include "nlohmann/json_fwd.hpp"
#include "nn/module.h"
#include "optim/parameter.h"

namespace tessera::dist {

// One chunk: what runs, and the modules whose parameters train in it (none, one or several).
struct Chunk {
  std::vector<nn::Module*> modules = {};
  std::function<models::Bundle(const models::Bundle& in, const models::RunOptions& options)> run;
  // What it takes and gives; absent: nothing is known of it, and nothing checked.
  std::optional<models::BlockKeys> keys = std::nullopt;
};

class Stage {
 public:
  using Group = std::shared_ptr<Communicator>;
  // Its messages have tags from here on.
  static constexpr int kFirstTag = kLargestTag / 2;

  // `models` are this rank's chunks, first to last: chunks rank, rank + stages, ... of the model.
  // Collective over `pp`: ranks tell each other which weights they hold, and what their chunks take
  // and give. Throws Error, on every rank, for a chunk that takes what none before it gives.
  Stage(std::vector<std::unique_ptr<models::Model>> models, Group pp);
  // Of any modules, which the caller keeps.
  Stage(std::vector<Chunk> chunks, Group pp);
  Stage(Stage&&) = default;

  const Group& group() const { return pp_; }
  int rank() const { return pp_->rank(); }
  int stages() const { return pp_->size(); }
  // Where the parameters lie (the CPU for none).
  Device device() const;
  const std::vector<Chunk>& chunks() const { return chunks_; }
  // The models it was built of, if it was.
  const std::vector<std::unique_ptr<models::Model>>& models() const { return models_; }
  std::vector<std::unique_ptr<models::Model>>& models() { return models_; }

  // All parameters of this rank, chunk by chunk, tied ones included.
  std::vector<nn::Parameter*> Parameters() const;
  // What an optimizer takes: parameters that train, tied ones with their leaves.
  std::vector<optim::Parameter> OptimizedParameters() const;
  // The leaves of one chunk that train, in order, each use of a tied weight by itself: what a
  // reducer of data parallelism takes, one per chunk.
  std::vector<nn::Parameter*> LeavesOfChunk(int local_chunk) const;
  void ZeroGrad() const;

  // Of several ranks that hold a parameter, the first one counts it in norms and writes it to
  // checkpoints. By the parameter's (not a tied use's) name.
  bool Owns(const std::string& name) const;

  // Gradients of weights that several ranks hold: afterwards the parameter's leaf has the whole sum
  // on each of them and its tied leaves have none. Collective over the pp group; once per step,
  // after sums over other groups.
  void JoinTiedGradients() const;
  // The same for gradients that lie elsewhere (shards): `get` gives this rank's part for a leaf
  // (undefined: no gradient), `set` takes the sum. The parts of one weight must be the same range
  // on every stage.
  using GetGradient = std::function<Tensor(const nn::Parameter& use)>;
  using SetGradient = std::function<void(const nn::Parameter& weight, const Tensor& sum)>;
  void JoinTiedGradients(const GetGradient& get, const SetGradient& set) const;
  // Names of the weights that other ranks hold as well.
  std::vector<std::string> SharedWeights() const;

 private:
  // A leaf that a weight is used by.
  struct Use {
    int rank = 0;
    nn::Parameter* parameter = nullptr;  // where the rank is this one
  };
  // A weight that several ranks hold, this one among them.
  struct Tie {
    nn::Parameter* weight = nullptr;
    std::vector<int> holders;
    std::vector<Use> uses;  // in the order of one process
  };
  struct Place {
    int64_t index = 0;  // among those of the whole model, on every rank the same
    int owner = 0;
  };

  void ShareReplicas();
  void ExchangeNames();
  void CheckKeys() const;
  void Join(const Tie& tie, int tag, const GetGradient& get, const SetGradient& set) const;

  std::vector<std::unique_ptr<models::Model>> models_;
  std::vector<Chunk> chunks_;
  Group pp_;
  std::map<std::string, Place> places_;  // of the whole model's parameters
  std::vector<Tie> ties_;
};

// Builds the chunks of one rank: chunk c has the blocks [cuts[c], cuts[c + 1]).
StatusOr<Stage> BuildStage(const nlohmann::json& config, const nn::BuildContext& context,
                           const std::vector<int>& cuts, const Stage::Group& pp);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_PIPELINE_STAGE_H_
