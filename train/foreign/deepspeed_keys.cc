// SPDX-License-Identifier: Apache-2.0
#include "train/foreign/deepspeed_keys.h"

#include <utility>

#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

constexpr char kOrder[] = "it tunes DeepSpeed's own order of work";
constexpr char kNvme[] = "it tunes off-loading to NVMe, which is not here";
constexpr char kMasters[] = "master weights and states are float32";
constexpr char kLoss[] = "losses are summed and divided once, by the targets of the step";

void AddTopLevel(ForeignTable* table) {
  table->insert(
      table->end(),
      {Read("train_batch_size", "batch_size, gradient_accumulation_steps"),
       Read("train_micro_batch_size_per_gpu", "batch_size"),
       Read("gradient_accumulation_steps", "gradient_accumulation_steps"),
       Renamed("steps_per_print", "log_interval"),
       Renamed("gradient_clipping", "max_grad_norm"),
       Renamed("wall_clock_breakdown", "wall_clock_breakdown"),
       Renamed("seed", "seed"),
       Read("communication_data_type", "communication_dtype"),
       NoEffect("zero_allow_untested_optimizer", "every optimizer serves"),
       NoEffect("zero_force_ds_cpu_optimizer", "there is one optimizer for every device"),
       NoEffect("fp32_allreduce", "sums of half precision go through float32"),
       NoEffect("prescale_gradients", kLoss),
       NoEffect("gradient_predivide_factor", kLoss),
       Refused("gradient_allreduce_op", "gradients are those of the mean loss", {"mean"}),
       NoEffect("disable_allgather", "parameters are gathered as the stage asks"),
       NoEffect("dump_state", "the configuration is printed at the start"),
       NoEffect("memory_breakdown", "rows of metrics have the peak memory"),
       NoEffect("disable_python_gc", "there is no Python"),
       NoEffect("managed_gradient_accumulation", "the trainer counts the micro-batches"),
       NoEffect("log_level", "it is DeepSpeed's own logger's"),
       NoEffect("use_data_before_expert_parallelism", "the ranks of an ep group are neighbours"),
       NoEffect("use_node_local_storage", "every rank's part of a checkpoint goes to `out`"),
       NoEffect("aio", kNvme),
       Refused("sparse_gradients", "gradients of embeddings are dense", {false}),
       Renamed("dataloader_drop_last", "drop_last"),
       Refused("seq_parallel_communication_data_type", "activations travel as they are", {"fp32"}),
       Refused("keep_in_fp32_modules", "a model has one dtype", {Json::array()}),
       Refused("amp", "use fp16 or bf16"),
       Refused("autotuning", "nothing tunes itself"),
       Refused("elasticity",
               "`tessera launch --max-restarts N --min-ranks K`; a checkpoint loads on any number "
               "of ranks"),
       Refused("sparse_attention", "attention is dense"),
       Refused("curriculum_learning", "the order of data is a permutation"),
       Refused("data_efficiency", "the order of data is a permutation"),
       Refused("progressive_layer_drop", "every layer is trained"),
       Refused("eigenvalue", "it serves quantisation, which is not here"),
       Refused("quantize_training", "there is no quantised training"),
       Refused("weight_quantization", "there is no quantised training"),
       Refused("compression_training", "there is no compression"),
       Refused("hybrid_engine", "it serves reinforcement learning, which is not here"),
       Refused("compile", "kernels are compiled with the program"),
       Refused("pipeline", "use pp and schedule"),
       Renamed("sequence_parallel_size", "cp"),
       Refused("nebula", "use async_save"),
       Refused("vocabulary_size", "it belongs to the model"),
       Becomes("tensor_parallel.autotp_size", "tp",
               [](const Json& value) -> StatusOr<Json> {
                 return value == 0 ? Json() : Json{{"tp", value}};
               }),
       NoEffect("tensor_parallel.tp_grain_size", "heads are shared out evenly"),
       NoEffect("tensor_parallel.tp", "the ranks of a group follow one another"),
       NoEffect("tensor_parallel.enabled", "autotp_size says so")});
  Add(*table, {"tensorboard.enabled", "csv_monitor.enabled"},
      [](std::string name) { return Read(std::move(name), "report_to"); });
  Add(*table,
      {"tensorboard.output_path", "tensorboard.job_name", "csv_monitor.output_path",
       "csv_monitor.job_name"},
      [](std::string name) { return NoEffect(std::move(name), "metrics go to `out`"); });
  Add(*table, {"wandb", "comet"}, [](std::string name) {
    return Refused(std::move(name), "report_to has tensorboard and csv");
  });
  Add(*table, {"flops_profiler", "comms_logger"}, [](std::string name) {
    return Refused(std::move(name), "use profile_summary or wall_clock_breakdown");
  });
  Add(*table,
      {"checkpoint.tag_validation", "checkpoint.load_universal", "checkpoint.parallel_write"},
      [](std::string name) {
        return NoEffect(std::move(name),
                        "checkpoints load into any layout, and ranks write side by side");
      });
  table->push_back(Refused("checkpoint.use_node_local_storage", "ranks share one `out`", {false}));
}

// AutoEP. Which layers have experts, and how tokens find them, a model's own configuration says.
void AddExperts(ForeignTable* table) {
  constexpr char kRouter[] = "config_overrides changes the model's router";
  table->insert(table->end(),
                {Read("expert_parallel.enabled", "ep"), Read("expert_parallel.autoep_size", "ep"),
                 Refused("expert_parallel.load_balance_coeff",
                         "router_bias_update_rate of the model balances experts", {0}),
                 Refused("expert_parallel.route_scale", kRouter, {1})});
  for (const char* key : {"preset_model", "moe_layer_pattern", "expert_pattern", "router_pattern",
                          "expert_w1", "expert_w2", "expert_w3", "num_experts_attr", "top_k_attr",
                          "has_shared_experts", "shared_experts_pattern"}) {
    table->push_back(
        NoEffect(Concat("expert_parallel.", key), "the model knows its experts and their names"));
  }
  for (const char* key : {"use_grouped_mm", "grouped_mm_backend"}) {
    table->push_back(NoEffect(Concat("expert_parallel.", key), "experts are run one by one"));
  }
  for (const char* key : {"route_norm", "score_apply", "num_expert_groups", "num_limited_groups",
                          "score_func", "top_k", "routed_scaling_factor"}) {
    table->push_back(Refused(Concat("expert_parallel.", key), kRouter));
  }
}

void AddPrecision(ForeignTable* table) {
  Add(*table, {"fp16.enabled", "bf16.enabled", "bfloat16.enabled"},
      [](std::string name) { return Read(std::move(name), "dtype"); });
  table->insert(
      table->end(),
      {Read("fp16.loss_scale", "loss_scale"), Read("fp16.initial_scale_power", "initial_scale"),
       Read("fp16.loss_scale_window", "growth_interval"), Read("fp16.hysteresis", "hysteresis"),
       Read("fp16.min_loss_scale", "min_scale"),
       Refused("fp16.auto_cast", "batches are cast where the model needs it", {false}),
       Refused("fp16.consecutive_hysteresis",
               "hysteresis is renewed when the scale grows, not at each good step", {false}),
       Refused("fp16.fp16_master_weights_and_grads", kMasters, {false}),
       Read("torch_autocast.enabled", "autocast"), Read("torch_autocast.dtype", "autocast"),
       Refused("torch_autocast.lower_precision_safe_modules",
               "which operations are in half precision is fixed", {Json::array()}),
       Refused("data_types.grad_accum_dtype", "gradients are collected in float32",
               {"fp32", "float32"})});
  for (const char* section : {"bf16.", "bfloat16."}) {
    table->insert(
        table->end(),
        {NoEffect(Concat(section, "immediate_grad_update"), "gradients are added as they come"),
         Refused(Concat(section, "check_grad_overflow"), "bfloat16 has the range of float32",
                 {false}),
         Refused(Concat(section, "bf16_master_weights_and_grads"), kMasters, {false}),
         Refused(Concat(section, "bf16_optimizer_states"), kMasters, {false})});
  }
}

void AddOptimizer(ForeignTable* table) {
  table->insert(table->end(),
                {Read("optimizer.type", "optimizer"),
                 NoEffect("optimizer.legacy_fusion", "there is one implementation"),
                 NoEffect("optimizer.params.torch_adam",
                          "there is one implementation, with its usual weight_decay")});
  Add(*table, {"lr", "betas", "eps", "weight_decay", "momentum"},
      [](std::string name) { return Read("optimizer.params." + name, name); });
  table->insert(table->end(),
                {Read("optimizer.params.adam_w_mode", "optimizer"),
                 Read("optimizer.params.nesterov", "nesterov"),
                 Read("optimizer.params.max_grad_norm", "max_grad_norm"),
                 Refused("optimizer.params.bias_correction", "Adam corrects its moments", {true}),
                 Refused("optimizer.params.amsgrad", "there is no AMSGrad", {false}),
                 Refused("optimizer.params.dampening", "momentum is not damped", {0})});
  Add(*table,
      {"max_coeff", "min_coeff", "freeze_step", "cuda_aware", "comm_backend_name",
       "var_freeze_step", "var_update_scaler", "local_step_scaler", "local_step_clipper",
       "coeff_beta", "factor_max", "factor_min", "factor_threshold", "muon_lr", "adam_lr",
       "ns_method"},
      [](std::string name) {
        return Refused("optimizer.params." + name, "it belongs to an optimizer that is not here");
      });
  table->push_back(Read("scheduler.type", "lr_schedule"));
  for (const auto& [theirs, ours] : {std::pair{"warmup_min_lr", "warmup_min_lr"},
                                     {"warmup_max_lr", "lr"},
                                     {"warmup_num_steps", "warmup_steps"},
                                     {"warmup_type", "warmup_type"},
                                     {"total_num_steps", "schedule_steps"},
                                     {"last_batch_iteration", "schedule_offset"},
                                     {"warmup_min_ratio", "warmup_min_lr"},
                                     {"cos_min_ratio", "min_lr"}}) {
    table->push_back(Read(Concat("scheduler.params.", theirs), ours));
  }
  Add(*table,
      {"lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate",
       "lr_range_test_staircase", "cycle_min_lr", "cycle_max_lr", "decay_lr_rate",
       "cycle_first_step_size", "cycle_second_step_size", "cycle_first_stair_count",
       "cycle_second_stair_count", "decay_step_size", "cycle_momentum", "cycle_min_mom",
       "cycle_max_mom", "decay_mom_rate"},
      [](std::string name) {
        return Refused("scheduler.params." + name, "it belongs to LRRangeTest or OneCycle");
      });
}

void AddZero(ForeignTable* table) {
  const std::string zero = "zero_optimization.";
  table->insert(table->end(),
                {Read(zero + "stage", "zero"),
                 Renamed(zero + "overlap_comm", "overlap_comm"),
                 Read(zero + "contiguous_gradients", "gradient_as_bucket_view"),
                 Renamed(zero + "ignore_unused_parameters", "find_unused_parameters"),
                 Read(zero + "reduce_bucket_size", "bucket_cap_mb"),
                 NoEffect(zero + "allgather_bucket_size",
                          "parameters are gathered by the buckets of their gradients"),
                 NoEffect(zero + "reduce_scatter", "each rank takes its share of the sum only"),
                 NoEffect(zero + "allgather_partitions", "parameters are gathered, not broadcast"),
                 Read(zero + "cpu_offload", "cpu_offload"),
                 Read(zero + "cpu_offload_params", "offload_parameters"),
                 Read(zero + "cpu_offload_param", "offload_parameters"),
                 NoEffect(zero + "cpu_offload_use_pin_memory", "it is how fast copies are"),
                 Read(zero + "offload_optimizer.device", "cpu_offload"),
                 Read(zero + "offload_optimizer.ratio", "offload_fraction"),
                 Refused(zero + "offload_optimizer.super_offload", "use cpu_offload", {false}),
                 Read(zero + "offload_param.device", "offload_parameters"),
                 Read(zero + "stage3_prefetch_bucket_size", "prefetch_elements, limit_all_gathers"),
                 Read(zero + "stage3_max_live_parameters", "max_live_elements"),
                 Read(zero + "stage3_param_persistence_threshold", "persistence_threshold"),
                 NoEffect(zero + "elastic_checkpoint", "checkpoints load on any number of ranks"),
                 NoEffect(zero + "load_from_fp32_weights", "master weights are saved and loaded"),
                 Refused(zero + "zenflow", "updates are not put off")});
  Add(*table, {"offload_optimizer.pin_memory", "offload_param.pin_memory"},
      [&](std::string name) { return NoEffect(zero + name, "it is how fast copies are"); });
  Add(*table,
      {"offload_optimizer.nvme_path", "offload_optimizer.buffer_count",
       "offload_optimizer.buffer_size", "offload_optimizer.fast_init", "offload_optimizer.pipeline",
       "offload_optimizer.pipeline_read", "offload_optimizer.pipeline_write",
       "offload_param.nvme_path", "offload_param.buffer_count", "offload_param.buffer_size",
       "offload_param.max_in_cpu"},
      [&](std::string name) { return NoEffect(zero + name, kNvme); });
  Add(*table,
      {"stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save"},
      [&](std::string name) { return NoEffect(zero + name, "the model is always saved whole"); });
  Add(*table,
      {"sub_group_size",
       "stage3_max_reuse_distance",
       "stage3_model_persistence_threshold",
       "stage3_module_granularity_threshold",
       "stage3_use_all_reduce_for_fetch_params",
       "stage3_allgather_sequential",
       "round_robin_gradients",
       "use_multi_rank_bucket_allreduce",
       "grad_hooks",
       "legacy_stage1",
       "memory_efficient_linear",
       "parameter_alignment",
       "pipeline_loading_checkpoint",
       "override_module_apply",
       "log_trace_cache_warnings",
       "enable_sanity_checks",
       "save_muon_momentum_buffer_in_memory",
       "compute_grad_norm",
       "leaf_module",
       "offload_optimizer.cpuadam_cores_perc"},
      [&](std::string name) { return NoEffect(zero + name, kOrder); });
  for (const char* name : {"zero_hpz_partition_size", "mics_shard_size"}) {
    table->push_back(Refused(zero + name, "ZeRO++ and MiCS are not here", {1, -1}));
  }
  Add(*table,
      {"zero_quantized_weights", "zero_quantized_gradients", "zero_quantized_nontrainable_weights",
       "mics_hierarchical_params_gather"},
      [&](std::string name) {
        return Refused(zero + name, "ZeRO++ and MiCS are not here", {false});
      });
}

void AddActivations(ForeignTable* table) {
  const std::string section = "activation_checkpointing.";
  table->insert(
      table->end(),
      {Read(section + "partition_activations", "checkpoint_activations, partition_activations"),
       Read(section + "cpu_checkpointing", "checkpoint_activations, offload_activations"),
       NoEffect(section + "contiguous_memory_optimization", "the allocator reuses blocks"),
       NoEffect(section + "synchronize_checkpoint_boundary", "there is nothing to synchronise"),
       NoEffect(section + "number_checkpoints", "every block of the model is one"),
       Refused(section + "profile", "use profile_summary or wall_clock_breakdown", {false})});
}

}  // namespace

const ForeignTable& DeepSpeedKeys() {
  static const auto* table = [] {
    auto* keys = new ForeignTable;
    AddTopLevel(keys);
    AddExperts(keys);
    AddPrecision(keys);
    AddOptimizer(keys);
    AddZero(keys);
    AddActivations(keys);
    return keys;
  }();
  return *table;
}

}  // namespace tessera::train
