// SPDX-License-Identifier: Apache-2.0
#include "train/boost/plugins.h"

#include "nlohmann/json.hpp"
#include "train/foreign/run_keys.h"

namespace tessera::train {
namespace {

template <typename T>
PluginArguments OrNone(const std::optional<T>& value) {
  return value ? PluginArguments(*value) : PluginArguments();
}

}  // namespace

// Where they differ from a run's.
PluginArguments DataParallelPlugin::Defaults() { return {{"max_grad_norm", 0}}; }
PluginArguments LowLevelZeroPlugin::Defaults() {
  return {{"zero", 1}, {"dtype", "float16"}, {"max_grad_norm", 0}};
}
PluginArguments GeminiPlugin::Defaults() {
  return {{"zero", 3}, {"dtype", "float16"}, {"max_grad_norm", 0}};
}
PluginArguments HybridParallelPlugin::Defaults() {
  return {{"dtype", "float16"}, {"max_grad_norm", 0}};
}

PluginArguments DataParallelPlugin::Arguments() const {
  return {{"bucket_cap_mb", bucket_cap_mb},
          {"find_unused_parameters", find_unused_parameters},
          {"static_graph", static_graph},
          {"check_reduction", check_reduction}};
}

PluginArguments LowLevelZeroPlugin::Arguments() const {
  return {{"stage", stage},
          {"precision", precision},
          {"max_norm", max_norm},
          {"initial_scale", initial_scale},
          {"cpu_offload", cpu_offload},
          {"overlap_communication", overlap_communication},
          {"communication_dtype", communication_dtype}};
}

PluginArguments GeminiPlugin::Arguments() const {
  return {{"shard_param_frac", shard_param_frac},
          {"offload_optim_frac", offload_optim_frac},
          {"offload_param_frac", offload_param_frac},
          {"precision", precision},
          {"max_norm", max_norm},
          {"initial_scale", initial_scale},
          {"tp_size", tp_size},
          {"enable_sequence_parallelism", enable_sequence_parallelism}};
}

PluginArguments HybridParallelPlugin::Arguments() const {
  return {{"tp_size", tp_size},
          {"pp_size", pp_size},
          {"ep_size", ep_size},
          {"zero_stage", zero_stage},
          {"precision", precision},
          {"num_microbatches", OrNone(num_microbatches)},
          {"microbatch_size", OrNone(microbatch_size)},
          {"pp_style", pp_style},
          {"num_model_chunks", OrNone(num_model_chunks)},
          {"enable_sequence_parallelism", enable_sequence_parallelism},
          {"max_norm", max_norm},
          {"initial_scale", initial_scale},
          {"cpu_offload", cpu_offload}};
}

PluginArguments Plugin::Given(const PluginArguments& fields, const PluginArguments& more,
                              const PluginArguments& usual) {
  PluginArguments given = PluginArguments::Object();
  for (const auto& [name, value] : fields->items()) {
    if (value != usual->at(name)) given[name] = value;
  }
  for (const auto& [name, value] : more->items()) given[name] = value;
  return given;
}

Status Plugin::ApplyTo(RunConfig* config) const {
  TESSERA_RETURN_IF_ERROR(ApplyRunConfigJson(defaults_, name_, config));
  return ApplyRunConfigJson(arguments_, name_, config);
}

}  // namespace tessera::train
