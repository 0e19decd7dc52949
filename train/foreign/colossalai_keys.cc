// SPDX-License-Identifier: Apache-2.0
// What becomes of the arguments of Colossal-AI's plugins (HybridParallelPlugin, LowLevelZeroPlugin,
// GeminiPlugin, TorchDDPPlugin) that are no aliases of our keys.
#include "train/foreign/run_keys.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

// Millions (2^20) of float32 elements.
ForeignKey BucketSize(std::string name) {
  return Becomes(std::move(name), "bucket_cap_mb", [](const Json& value) -> StatusOr<Json> {
    if (!value.is_number()) return InvalidArgument("must be a number, not ", Printed(value));
    return Json{{"bucket_cap_mb", 4 * value.get<double>()}};
  });
}

// 0: none, 1: all of them.
ForeignKey WholeShare(std::string name, std::string ours, Json none, Json all) {
  return Becomes(
      std::move(name), std::move(ours),
      [none = std::move(none), all = std::move(all)](const Json& value) -> StatusOr<Json> {
        if (value == 0) return none;
        if (value == 1) return all;
        return InvalidArgument("is ", Printed(value), "; parameters are cut all (1) or ",
                               "not at all (0)");
      });
}

}  // namespace

const ForeignSystem& ColossalAi() {
  static const auto* system = [] {
    const std::string order = "it tunes Colossal-AI's own order of work";
    const std::string fused = "fused operations serve wherever they apply";
    auto* plugins = new ForeignSystem{
        "Colossal-AI",
        {BucketSize("zero_bucket_size_in_m"),
         BucketSize("reduce_bucket_size_in_m"),
         Renamed("stage", "zero"),
         Read("num_microbatches", "batch_size, gradient_accumulation_steps"),
         Read("microbatch_size", "batch_size, gradient_accumulation_steps"),
         Switch(Renamed("enable_async_reduce", "overlap_comm")),
         Becomes("pp_style", "schedule",
                 [](const Json& value) -> StatusOr<Json> {
                   if (value == "zbv") return InvalidArgument("is zbv; use schedule zb-h1");
                   return Json{{"schedule", value}};
                 }),
         WholeShare("shard_param_frac", "zero", Json{{"zero", 2}}, Json{{"zero", 3}}),
         WholeShare("offload_param_frac", "offload_parameters", Json(),
                    Json{{"offload_parameters", true}}),
         Becomes("offload_optim_frac", "cpu_offload, offload_fraction",
                 [](const Json& value) -> StatusOr<Json> {
                   if (value == 0) return Json();
                   return Json{{"cpu_offload", true}, {"offload_fraction", value}};
                 }),
         Refused("placement_policy", "give zero 3 with cpu_offload and offload_parameters",
                 {"static"}),
         Refused("sp_size", "use tp with sequence_parallel", {1}),
         Refused("sequence_parallelism_mode", "sequences are split and gathered around tp",
                 {"split_gather"}),
         Refused("custom_policy", "layers are built for their ranks"),
         Refused("scheduler_nodes", "use schedule"),
         Refused("num_layers_per_stage", "stages are cut by their cost"),
         Refused("gradient_checkpoint_config", "use checkpoint_activations"),
         Refused("inner_ring_size", "there is no ring attention"),
         Refused("norm_type", "gradients are clipped by their Euclidean norm", {2}),
         Switch(Refused("master_weights", "master weights are float32", {true})),
         Refused("extra_dp_size", "the ranks that tp and pp leave are data parallel", {1}),
         Switch(Refused("strict_ddp_mode", "use zero 0", {false})),
         Switch(Refused("use_fp8", "there are no 8-bit floats", {false})),
         Switch(Refused("fp8_communication", "there are no 8-bit floats", {false})),
         Switch(NoEffect("broadcast_buffers", "models have no buffers that change")),
         Switch(NoEffect("cast_inputs", "batches are cast where the model needs it")),
         Switch(NoEffect("verbose", "log_level says how much is printed")),
         NoEffect("make_vocab_size_divisible_by", "shares of a vocabulary may differ by one row")}};
    Add(plugins->keys,
        {"enable_fused_normalization", "enable_flash_attention", "enable_jit_fused",
         "enable_all_optimization", "enable_sequence_overlap"},
        [&](std::string name) { return Switch(NoEffect(std::move(name), fused)); });
    Add(plugins->keys,
        {"parallel_output", "enable_metadata_cache", "dp_outside", "overlap_p2p",
         "overlap_allgather", "enable_gradient_accumulation", "pin_memory", "force_outputs_fp32"},
        [&](std::string name) { return Switch(NoEffect(std::move(name), order)); });
    Add(plugins->keys,
        {"chunk_config_dict", "chunk_init_device", "max_prefetch", "warmup_non_model_data_ratio",
         "steady_cuda_cap_ratio", "search_range_m", "hidden_dim", "min_chunk_size_m", "memstats",
         "gpu_margin_mem_ratio"},
        [&](std::string name) { return NoEffect(std::move(name), order); });
    return plugins;
  }();
  return *system;
}

}  // namespace tessera::train
