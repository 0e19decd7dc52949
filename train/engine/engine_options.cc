// SPDX-License-Identifier: Apache-2.0
#include "train/engine/engine_options.h"

namespace tessera::train {

StatusOr<EngineOptions> EngineOptionsOf(const RunConfig& config, const dist::Mesh& mesh) {
  EngineOptions options;
  TESSERA_ASSIGN_OR_RETURN(options.rule, config.update_rule());
  TESSERA_ASSIGN_OR_RETURN(options.store, config.zero_options());
  TESSERA_ASSIGN_OR_RETURN(options.schedule, config.pipeline_schedule());
  options.store.frozen_in_checkpoints = config.adapter.empty();
  options.weight_decay = config.weight_decay;
  options.max_grad_norm = config.max_grad_norm;
  if (config.scales_loss()) options.loss_scaling = config.scaler_options();
  // A run that stops keeps the weights of before, with which it looks for where it began. Where
  // gradients go into the update as they come, nothing is known of them in time.
  const bool keeps = config.on_non_finite == "stop" && config.max_grad_norm > 0;
  options.skip_non_finite = config.on_non_finite == "skip" || keeps;
  options.check_finite = config.check_finite;
  options.products = config.product_dtype();
  if (config.offload_activations || config.partition_activations) {
    options.activations = dist::ActivationStoreOptions{
        .offload = config.offload_activations,
        .partition = config.partition_activations ? mesh.tp() : nullptr};
  }
  options.time_phases = config.wall_clock_breakdown;
  return options;
}

}  // namespace tessera::train
