// SPDX-License-Identifier: Apache-2.0
// GPT-2 as Megatron-LM checkpoints it (`model_optim_rng.pt` of one rank), as Hugging Face has it.
//
//   TESSERA_ASSIGN_OR_RETURN(const MegatronGpt2 megatron,
//   MegatronGpt2::Open("model_optim_rng.pt"));
//   ... BuildModel(megatron.config(), ...) ...
//   TESSERA_ASSIGN_OR_RETURN(const Tensor t, megatron.Read("transformer.h.0.attn.c_attn.weight"));
//
// Linear weights are transposed, rows of the padded vocabulary left out, and the rows of
// query_key_value sorted: `checkpoint_version` 0 has them by projection, head and feature, as GPT-2
// does; 1 by head, feature, projection; 2 and 3 by head, projection, feature. The configuration
// comes from the checkpoint's `args`. Where it has none (NVIDIA's megatron_lm_345m), it comes from
// the shapes, heads being 64 wide, the vocabulary GPT-2's.
#ifndef TESSERA_MODELS_HUB_MEGATRON_GPT2_H_
#define TESSERA_MODELS_HUB_MEGATRON_GPT2_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "core/tensor.h"
#include "models/hub/torch_file/torch_file.h"
#include "nlohmann/json.hpp"

namespace tessera::models {

class MegatronGpt2 {
 public:
  // InvalidArgument for a file that is no such checkpoint, one rank's part of a model that was cut,
  // and arguments that make another model of it, by name.
  static StatusOr<MegatronGpt2> Open(const std::string& path);

  // config.json's content.
  const nlohmann::json& config() const { return config_; }
  // The tensors by Megatron's names.
  const std::vector<TorchFile::Entry>& entries() const { return file_.entries(); }
  // A parameter of GPT2LMHeadModel, by its name. InvalidArgument for one that is missing or of
  // another shape.
  StatusOr<Tensor> Read(const std::string& parameter) const;
  // InvalidArgument if the checkpoint has tensors beside those of the model's parameters.
  Status CheckNothingIsLeft(const std::vector<std::string>& parameters) const;

 private:
  Status ReadArgs(const nlohmann::json& args);
  Status ReadShapes();
  std::string SourceOf(const std::string& parameter) const;

  TorchFile file_;
  std::string layers_;     // "language_model.transformer." or "language_model.encoder."
  std::string attention_;  // "attention" or "self_attention"
  nlohmann::json config_;
  double version_ = 0;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_MEGATRON_GPT2_H_
