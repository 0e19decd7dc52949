// SPDX-License-Identifier: Apache-2.0
#include "train/config/model_config.h"

#include "base/options.h"

namespace tessera::train {

const OptionTable& ModelConfig::Table() {
  static const auto* table = new OptionTable(
      OptionTable::Of<ModelConfig>("Model")
          .Add("model", &ModelConfig::model,
               "in a file: the preset or folder that is first on the command line",
               {.changes_results = false, .aliases = {{"model_name_or_path", "Hugging Face"}}})
          .Add("model_type", &ModelConfig::model_type,
               "the family of a folder whose config.json does not say it", {.type = "glm"})
          .Add("config_overrides", &ModelConfig::config_overrides,
               "keys of the model's configuration: `d_model=256,num_layers=3`")
          .Add("ignore_mismatched_sizes", &ModelConfig::ignore_mismatched_sizes,
               "initialise a head that the weights lack or have in another shape, instead of "
               "refusing")
          .Add("dropout", &ModelConfig::dropout, "sets every dropout probability",
               {.least = 0, .below = 1, .unset = "the model's"})
          .Add("neftune_noise_alpha", &ModelConfig::neftune_noise_alpha,
               "noise on the token embeddings in training (NEFTune, Jain et al. 2023)",
               {.least = 0, .neutral = 0})
          .Add("label_smoothing", &ModelConfig::label_smoothing,
               "share of each target that is spread over all words or classes (Szegedy et al. "
               "2016), in evaluations during training too; of tokens and of single labels. Of "
               "preferences the share that is the wrong way round",
               {.least = 0,
                .most = 1,
                .neutral = 0,
                .aliases = {{"label_smoothing_factor", "Hugging Face"}}})
          .Add("checkpoint_activations", &ModelConfig::checkpoint_activations,
               "recompute activations in the backward pass",
               {.changes_results = false,
                .aliases = {{"deepspeed_activation_checkpointing", "FlagAI"},
                            {"gradient_checkpointing", "Hugging Face"},
                            {"activation_checkpointing", "Hugging Face"}}}));
  return *table;
}

}  // namespace tessera::train
