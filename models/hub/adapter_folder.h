// SPDX-License-Identifier: Apache-2.0
// An adapter's folder as its file has it, for those who merge and convert; models/hub/adapter.h
// attaches one to a model.
#ifndef TESSERA_MODELS_HUB_ADAPTER_FOLDER_H_
#define TESSERA_MODELS_HUB_ADAPTER_FOLDER_H_

#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "core/tensor.h"
#include "models/hub/adapter.h"
#include "models/hub/adapter_config.h"
#include "models/hub/adapter_terms.h"
#include "models/hub/weight_file.h"
#include "models/model.h"
#include "nn/module.h"

namespace tessera::models {

// The folder of an adapter of weights, held to a model: every tensor of it has a place there, of
// its shape.
class AdapterFolder {
 public:
  // `model` may have some of the blocks, or be on meta. Failures name the file and the tensor: one
  // that no layer of the model has, one that is missing, another shape. InvalidArgument for a
  // prefix, which is no part of a weight.
  static StatusOr<AdapterFolder> Open(const std::string& folder, const Model& model,
                                      int adapter = 0);

  // Of a layer's weight.
  using Term = AdapterPlan::Term;

  const AdapterConfig& config() const { return config_; }
  // By the layer's path; at least one. Their parameters are `<path>.` and nn::LowRankNames' a
  // [rank, inputs] and b [outputs, rank].
  const std::map<std::string, Term>& terms() const { return plan_.terms; }
  // Whether it changes or replaces this parameter of the model.
  bool Changes(const std::string& parameter) const;
  // Whether it does so with this one alone, not with all that are tied to it: by a term, or by
  // modules_to_save.
  bool ChangesAlone(const std::string& parameter) const;
  // Parameters of the model that the file has values of, on which terms go.
  const std::map<std::string, std::string>& base_entries() const { return base_entry_of_; }
  // The whole of a parameter of the adapter, or of one that it replaces; on the CPU, in the file's
  // dtype.
  StatusOr<Tensor> Read(const std::string& parameter) const;
  // A whole parameter of the model as the adapter makes it.
  StatusOr<Tensor> Merged(const nn::Parameter& parameter, const Tensor& whole) const;

 private:
  friend StatusOr<AttachedAdapter> LoadAdapter(Model& model, const std::string& folder,
                                               int adapter);

  // Finds what the file has by the names of transformers' version 4 or 5.
  Status ReadBy(int version, const std::string& folder, const Model& model);
  // Gives the model what the file has of it, and says so in `changed`.
  Status WriteBase(Model& model, const std::string& folder, AttachedAdapter* attached) const;

  AdapterConfig config_;
  AdapterPlan plan_;
  std::map<std::string, std::string> entry_of_;       // by the parameter's name
  std::map<std::string, std::string> base_entry_of_;  // the same, of the model's
  int adapter_ = 0;
  std::shared_ptr<const WeightFile> file_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_ADAPTER_FOLDER_H_
