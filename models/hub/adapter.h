// SPDX-License-Identifier: Apache-2.0
// Adapters beside a model: LoRA and its kin (nn/low_rank.h) and prefix tuning
// (models/hub/prefix_adapter.h), in PEFT's folders.
//
//   TESSERA_RETURN_IF_ERROR(LoadAdapter(*model, "adapter-folder"));          // to run with
//
//   TESSERA_ASSIGN_OR_RETURN(AttachedAdapter adapter, AttachAdapter(*model, config));
//   TrainOnly(*model, adapter);                                             // to train
//   TESSERA_RETURN_IF_ERROR(SaveAdapter(*model, config, "adapter-folder"));
//
// Terms stand beside the weights of linear layers and of embeddings, which are found by the names
// that they have in transformers (4 or 5), prefixes in self-attention layers. A model carries
// several, number 0, 1, ..., of which a pass names one (nn::ForwardContext::adapter); modules that
// an adapter trains whole are replaced, so that only number 0 may have such.
#ifndef TESSERA_MODELS_HUB_ADAPTER_H_
#define TESSERA_MODELS_HUB_ADAPTER_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "models/hub/adapter_config.h"
#include "models/model.h"

namespace tessera::nn {
class LowRankTerm;  // nn/low_rank.h
}  // namespace tessera::nn

namespace tessera::models {

// What an adapter has of this model (a pipeline's stage has some of it).
struct AttachedAdapter {
  struct Term {
    nn::LowRankTerm* term;
    std::string module;  // the layer's path
  };
  std::vector<Term> terms;
  // Parameters of the model that it replaces: of modules_to_save, and biases.
  std::vector<nn::Parameter*> replaced;
  // Parameters of the model that its folder has other values of, which they have now; the adapter
  // goes on top of these (PEFT's save_embedding_layers).
  std::vector<nn::Parameter*> changed = {};
  // Those of `replaced` that were tied to another one, which keeps its values.
  std::vector<nn::Parameter*> untied = {};
  AttachedPrefix prefix;  // of prefix tuning
  int version = 4;        // of transformers, whose names of modules it has
};

// Makes the terms that `config` asks for, in their first state; of layers that the family names
// where it has no target_modules. InvalidArgument where it names no
// layer of the model, one that takes no term, or a module that cannot be trained apart (a tied
// head).
// Where parameters are cut over ranks, `with_elements` runs `use` while this rank has the elements
// of some of them; without it, first values that need a weight's (DoRA's) are refused. An adapter
// that starts from weights (AdapterConfig::init) is given these first values afterwards
// (nn::LowRankTerm::StartWith).
using WithElements = std::function<void(const std::vector<nn::Parameter*>& parameters,
                                        const std::function<void()>& use)>;
StatusOr<AttachedAdapter> AttachAdapter(Model& model, const AdapterConfig& config, int adapter = 0,
                                        const WithElements& with_elements = nullptr);

// Those of modules_to_save that the model does not have.
StatusOr<std::vector<std::string>> ModulesNotThere(const Model& model, const AdapterConfig& config);

// InvalidArgument for a model with quantised weights, which do not train: "`where`: ... is
// quantised and cannot train; train an adapter (`how`)".
Status CheckWeightsTrain(Model& model, const std::string& where, const std::string& how);

// Every other parameter stops to train.
void TrainOnly(Model& model, const AttachedAdapter& adapter);

// What TrainOnly leaves.
std::vector<nn::Parameter*> ParametersOf(const AttachedAdapter& adapter);

// Whether a parameter's part on this rank has these values (of the whole, on the CPU) already;
// false of one that is not dense.
bool HoldsValues(const nn::Parameter& p, const Tensor& whole);

// Attaches the folder's adapter with its values. Failures are those of AdapterFolder::Open
// (models/hub/adapter_folder.h).
StatusOr<AttachedAdapter> LoadAdapter(Model& model, const std::string& folder, int adapter = 0);

// How the values of an adapter come together, and whether this rank writes them.
struct SaveAdapterOptions {
  // As SaveOptions' (models/hub/save_model.h).
  std::function<StatusOr<Tensor>(nn::Parameter&)> gather = nullptr;
  bool write = true;
  std::vector<std::pair<std::string, std::string>> files = {};
};
// Writes adapter_config.json and adapter_model.safetensors, whole or not at all; what started from
// weights as an adapter of twice the rank that goes with these (AdapterConfig::OfWholeWeights).
// `model` carries the adapter (AttachAdapter); it may be on meta, where `gather` gives the values.
Status SaveAdapter(Model& model, const AdapterConfig& config, const AttachedAdapter& adapter,
                   const std::string& folder, const SaveAdapterOptions& options = {});

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_ADAPTER_H_
