// SPDX-License-Identifier: Apache-2.0
// What becomes of the arguments of Colossal-AI's plugins (HybridParallelPlugin,
// MoeHybridParallelPlugin, LowLevelZeroPlugin, GeminiPlugin, TorchDDPPlugin) that are no aliases of
// our keys, and of its configuration files from before the plugins (`BATCH_SIZE`, `zero`,
// `parallel`, ...), with the hooks of its trainer.
#include <algorithm>
#include <map>

#include "base/nearest_name.h"
#include "nlohmann/json.hpp"
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

// --- Configuration files -------------------------------------------------------------------------

// "HybridAdam" of "colossalai.nn.optimizer.HybridAdam", "TensorShardStrategy" of a call of it: in a
// Python file these are objects.
std::string LastName(const Json& value) {
  std::string name = value.is_string() ? value.get<std::string>() : "";
  if (name.ends_with("()")) name.resize(name.size() - 2);
  return name.substr(name.rfind('.') + 1);
}

// One of some names, and the keys that it is.
ForeignKey OneName(std::string name, std::string ours, std::map<std::string, Json> names) {
  return Becomes(std::move(name), std::move(ours),
                 [names = std::move(names)](const Json& value) -> StatusOr<Json> {
                   const auto found = names.find(LastName(value));
                   if (found != names.end()) return found->second;
                   std::vector<std::string> known;
                   for (const auto& [theirs, keys] : names) known.push_back(theirs);
                   return InvalidArgument("is ", Printed(value), "; it may be ", OneOf(known));
                 });
}

StatusOr<Json> MicroBatches(const Json& value) {
  if (value.is_number_integer() && value.get<int64_t>() >= 1) {
    return Json{{"num_microbatches", value}};
  }
  return InvalidArgument("must be an integer, at least 1, not ", Printed(value));
}

// The arguments of a hook; fails where one is neither among `known` nor among those that every hook
// has.
Status CheckArguments(const Json& value, const std::vector<std::string>& known) {
  if (!value.is_object() && value != true) {
    return InvalidArgument("must be an object with the hook's arguments, not ", Printed(value));
  }
  for (const auto& [name, argument] : value.items()) {
    if (!value.is_object() || name == "priority" || name == "logger") continue;
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return InvalidArgument("has '", name, "', which is not here");
    }
  }
  return OkStatus();
}

// A hook that is one key of ours, whatever its arguments are.
ForeignKey Hook(std::string name, std::vector<std::string> arguments, Json keys) {
  const std::string ours = keys.begin().key();
  return Becomes(std::move(name), ours,
                 [arguments = std::move(arguments),
                  keys = std::move(keys)](const Json& value) -> StatusOr<Json> {
                   TESSERA_RETURN_IF_ERROR(CheckArguments(value, arguments));
                   return keys;
                 });
}

StatusOr<Json> ScheduleHook(const Json& value) {
  TESSERA_RETURN_IF_ERROR(CheckArguments(value, {"by_epoch", "store_lr_in_state"}));
  if (!value.is_object() || !value.contains("by_epoch")) {
    return InvalidArgument("must have by_epoch; lr_schedule is the schedule");
  }
  return Json{{"schedule_by_epoch", value.at("by_epoch")}};
}

StatusOr<Json> CheckpointHook(const Json& value) {
  TESSERA_RETURN_IF_ERROR(CheckArguments(value, {"interval", "checkpoint_dir", "save_by_iter"}));
  const Json arguments = value.is_object() ? value : Json::object();
  const Json interval = arguments.value("interval", Json(1));
  Json keys = {{"save_strategy", "epoch"}};
  if (arguments.value("save_by_iter", Json(false)) == true) {
    keys = {{"save_strategy", "steps"}, {"save_interval", interval}};
  } else if (interval != 1) {
    return InvalidArgument("has the interval ", Printed(interval),
                           "; checkpoints come after every epoch, or with save_by_iter by steps");
  }
  if (arguments.contains("checkpoint_dir")) keys["out"] = arguments.at("checkpoint_dir");
  return keys;
}

constexpr char kMemory[] = "it tunes how Colossal-AI uses memory";
constexpr char kNvme[] = "nothing is off-loaded to NVMe";

// Names and conversions of the file itself.
ForeignTable FileKeys() {
  const std::string launcher = "the ranks find one another through their launcher";
  ForeignTable keys = {
      Renamed("BATCH_SIZE", "batch_size"),
      Renamed("NUM_EPOCHS", "epochs"),
      Renamed("SEQ_LEN", "seq_len"),
      Renamed("SEQ_LENGTH", "seq_len"),
      Becomes("NUM_MICRO_BATCHES", "batch_size, gradient_accumulation_steps", MicroBatches),
      Renamed("gradient_accumulation", "gradient_accumulation_steps"),
      Renamed("clip_grad_norm", "max_grad_norm"),
      Renamed("parallel.pipeline", "pp"),
      Renamed("parallel.pipeline.size", "pp"),
      Renamed("parallel.tensor", "tp"),
      Renamed("parallel.tensor.size", "tp"),
      Refused("parallel.tensor.mode", "layers are cut along one dimension", {"1d"}),
      Refused("parallel.tensor.depth", "layers are cut along one dimension", {1}),
      Refused("parallel.data", "the ranks that tp and pp leave are data parallel", {1}),
      WhereTrue("cudnn_deterministic", "deterministic", {{"deterministic", true}}),
      NoEffect("cudnn_benchmark", "kernels are chosen by their shapes"),
      NoEffect("gradient_handler", "ranks that share a parameter sum its gradients"),
      Switch(NoEffect("from_torch", launcher))};
  Add(keys, {"host", "port", "world_size", "rank", "local_rank", "backend"},
      [&](std::string name) { return NoEffect(std::move(name), launcher); });
  Add(keys, {"HIDDEN_SIZE", "TENSOR_SHAPE"}, [](std::string name) {
    return NoEffect(std::move(name), "the model says what its stages send");
  });
  Add(keys, {"TENSOR_PARALLEL", "PIPELINE", "MODE", "DEPTH"}, [](std::string name) {
    return NoEffect(std::move(name), "a name within the file; `parallel` has the value");
  });
  for (const char* key : {"find_unused_parameters", "static_graph", "bucket_cap_mb",
                          "gradient_as_bucket_view", "check_reduction"}) {
    keys.push_back(Renamed(Concat("torch_ddp.", key), key));
  }
  keys.push_back(NoEffect("torch_ddp.broadcast_buffers", "models have no buffers that change"));
  return keys;
}

// `zero`, before version 0.1 and since.
ForeignTable ZeroKeys() {
  const Json states = {{"cpu_offload", true}};
  const Json host = {{"cpu_offload", true}, {"offload_parameters", true}};
  const Json sharded = {{"zero", 3}};
  ForeignTable keys = {
      Read("zero", "zero, dtype"),
      Read("zero.level", "zero"),
      Renamed("zero.clip_grad", "max_grad_norm"),
      Renamed("zero.overlap_comm", "overlap_comm"),
      WhereTrue("zero.cpu_offload", "cpu_offload", states),
      Refused("zero.dynamic_loss_scale", "give loss_scale, which is fixed", {true}),
      OneName("zero.offload_optimizer_config.device", "cpu_offload",
              {{"cpu", states}, {"none", Json()}}),
      OneName("zero.offload_param_config.device", "cpu_offload, offload_parameters",
              {{"cpu", host}, {"none", Json()}}),
      OneName("zero.model_config.shard_strategy", "zero",
              {{"TensorShardStrategy", sharded}, {"BucketTensorShardStrategy", sharded}}),
      OneName("zero.model_config.tensor_placement_policy", "cpu_offload, offload_parameters",
              {{"cpu", host}, {"cuda", Json()}}),
      OneName("zero.model_config.offload_config.device", "cpu_offload, offload_parameters",
              {{"cpu", host}, {"cuda", Json()}}),
      NoEffect("zero.model_config.reduce_scatter_bucket_size_mb",
               "with zero 3 the gradients of a block travel as one"),
      WhereTrue("zero.model_config.fp32_reduce_scatter", "communication_dtype",
                {{"communication_dtype", "float32"}}),
      NoEffect("zero.model_config.reuse_fp16_shard", "grad_dtype says what gradients are kept in"),
      Refused("zero.model_config.gradient_predivide_factor", "sums are taken in float32", {1}),
      WhereTrue("zero.optimizer_config.cpu_offload", "cpu_offload", states)};
  for (const char* section : {"zero.offload_optimizer_config.", "zero.offload_param_config."}) {
    for (const char* key : {"pin_memory", "fast_init", "pipeline", "buffer_count", "buffer_size",
                            "max_in_cpu", "pipeline_read", "pipeline_write"}) {
      keys.push_back(NoEffect(Concat(section, key), kMemory));
    }
    keys.push_back(Refused(Concat(section, "nvme_path"), kNvme));
  }
  for (const char* key :
       {"block_size", "queue_depth", "thread_count", "single_submit", "overlap_events"}) {
    keys.push_back(Refused(Concat("zero.aio_config.", key), kNvme));
  }
  Add(keys,
      {"zero.model_config.use_memory_tracer", "zero.model_config.user_static_memstats",
       "zero.optimizer_config.gpu_margin_mem_ratio", "zero.optimizer_config.keep_unsharded"},
      [](std::string name) { return NoEffect(std::move(name), kMemory); });
  Add(keys,
      {"zero.model_config.process_group", "zero.model_config.reduce_scatter_process_group",
       "zero.optimizer_config.dp_process_group", "zero.optimizer_config.mp_process_group"},
      [](std::string name) {
        return Refused(std::move(name), "tp, pp and the ranks make the groups");
      });
  return keys;
}

// `fp16`, and the scale of the loss wherever it stands.
ForeignTable PrecisionKeys() {
  const Json half = {{"dtype", "float16"}}, autocast = {{"autocast", "float16"}};
  ForeignTable keys = {
      OneName("fp16.mode", "dtype, autocast",
              {{"NAIVE", half},
               {"naive", half},
               {"APEX", half},
               {"apex", half},
               {"TORCH", autocast},
               {"torch", autocast}}),
      Renamed("fp16.clip_grad_norm", "max_grad_norm"),
      Refused("fp16.dynamic_grad_scale", "give loss_scale, which is fixed", {true}),
      Refused("fp16.opt_level", "it is Apex's"),
      Renamed("fp16.init_scale", "initial_scale"),
      Renamed("loss_args.init_scale", "initial_scale")};
  for (const char* section : {"fp16.", "zero.optimizer_config."}) {
    for (const char* key : {"initial_scale", "min_scale", "max_scale", "growth_factor",
                            "backoff_factor", "growth_interval", "hysteresis"}) {
      keys.push_back(Renamed(Concat(section, key), key));
    }
    keys.push_back(NoEffect(Concat(section, "verbose"), "log_level says how much is printed"));
  }
  return keys;
}

// `model`, `loss` and `optimizer`.
ForeignTable ModelKeys() {
  const auto named = [](const char* ours, const std::map<std::string, const char*>& names) {
    std::map<std::string, Json> keys;
    for (const auto& [theirs, name] : names) keys[theirs] = {{ours, name}};
    return keys;
  };
  ForeignTable keys = {
      OneName("model.type", "model",
              named("model", {{"gpt2_small", "gpt2"},
                              {"gpt2_medium", "gpt2-medium"},
                              {"gpt2_large", "gpt2-large"},
                              {"gpt2_xl", "gpt2-xl"},
                              {"GPT2_small", "gpt2"},
                              {"GPT2_medium", "gpt2-medium"},
                              {"GPT2_large", "gpt2-large"},
                              {"GPT2_exlarge", "gpt2-xl"},
                              {"gpt2_small_pipeline", "gpt2"},
                              {"GPT2_small_pipeline_hybrid", "gpt2"}})),
      WhereTrue("model.checkpoint", "checkpoint_activations", {{"checkpoint_activations", true}}),
      OneName("model.dtype", "dtype",
              named("dtype", {{"half", "float16"},
                              {"float16", "float16"},
                              {"float", "float32"},
                              {"float32", "float32"}})),
      Becomes("model.num_chunks", "schedule, num_model_chunks",
              [](const Json& value) -> StatusOr<Json> {
                if (value == 1) return Json();
                return Json{{"schedule", "interleaved"}, {"num_model_chunks", value}};
              }),
      OneName("optimizer.type", "optimizer",
              named("optimizer", {{"HybridAdam", "adamw"},
                                  {"CPUAdam", "adamw"},
                                  {"FusedAdam", "adamw"},
                                  {"DeepSpeedCPUAdam", "adamw"},
                                  {"AdamW", "adamw"},
                                  {"Adam", "adam"},
                                  {"Lamb", "lamb"},
                                  {"FusedLAMB", "lamb"},
                                  {"SGD", "sgd"},
                                  {"FusedSGD", "sgd"}})),
      Refused("optimizer.bias_correction", "Adam corrects its moments", {true}),
      Refused("optimizer.adamw_mode", "give the type Adam", {true}),
      Refused("optimizer.amsgrad", "there is no AMSGrad", {false}),
      Refused("optimizer.nvme_offload_fraction", kNvme, {0}),
      Refused("optimizer.nvme_offload_dir", kNvme)};
  for (const char* key : {"lr", "weight_decay", "betas", "eps", "momentum"}) {
    keys.push_back(Renamed(Concat("optimizer.", key), key));
  }
  for (const char* loss : {"loss.type", "loss_fn.type"}) {
    keys.push_back(
        Refused(loss, "task says the loss", {"GPTLMLoss", "vocab_parallel_cross_entropy"}));
  }
  return keys;
}

// Hooks of the trainer, with their arguments.
ForeignTable HookKeys() {
  return {NoEffect("hooks.LossHook", "rows of metrics have the loss"),
          NoEffect("hooks.AccuracyHook", "evaluations give the metrics of the task"),
          NoEffect("hooks.ThroughputHook", "rows of metrics have tokens_per_second"),
          NoEffect("hooks.LogMetricByEpochHook", "epochs.jsonl has a row for every epoch"),
          NoEffect("hooks.LogMemoryByEpochHook", "rows of epochs.jsonl have peak_bytes"),
          Hook("hooks.LogMetricByStepHook", {}, {{"log_interval", 1}}),
          Hook("hooks.LogTimingByEpochHook",
               {"timer", "interval", "log_eval", "ignore_num_train_steps"},
               {{"wall_clock_breakdown", true}}),
          Hook("hooks.TensorboardHook", {"log_dir", "ranks", "parallel_mode"},
               {{"report_to", Json::array({"tensorboard"})}}),
          Becomes("hooks.LRSchedulerHook", "schedule_by_epoch", ScheduleHook),
          Becomes("hooks.SaveCheckpointHook", "save_strategy, save_interval, out", CheckpointHook)};
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
         Becomes("stage", "zero",
                 [](const Json& value) -> StatusOr<Json> {
                   if (Plain(value).is_string()) {
                     return InvalidArgument(
                         "is ", Printed(value),
                         "; ZeRO's is a number, and of "
                         "LLaMA-Factory's use task (chat, causal_lm, preference)");
                   }
                   return Json{{"zero", Plain(value)}};
                 }),
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
         Becomes("sp_size", "cp",
                 [](const Json& value) -> StatusOr<Json> {
                   return Plain(value) == 1 ? Json() : Json{{"cp", Plain(value)}};
                 }),
         Refused("sequence_parallelism_mode",
                 "sequences are split and gathered around tp (sequence_parallel), or their keys "
                 "travel in a ring (cp)",
                 {"split_gather", "ring_attn"}),
         Refused("custom_policy", "layers are built for their ranks"),
         Refused("scheduler_nodes", "use schedule"),
         Refused("num_layers_per_stage", "stages are cut by their cost"),
         Refused("gradient_checkpoint_config", "use checkpoint_activations"),
         NoEffect("inner_ring_size", "keys and values travel in one ring"),
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
         "overlap_allgather", "enable_gradient_accumulation", "pin_memory", "force_outputs_fp32",
         "force_overlap_comm"},
        [&](std::string name) { return Switch(NoEffect(std::move(name), order)); });
    Add(plugins->keys,
        {"chunk_config_dict", "chunk_init_device", "max_prefetch", "warmup_non_model_data_ratio",
         "steady_cuda_cap_ratio", "search_range_m", "hidden_dim", "min_chunk_size_m", "memstats",
         "gpu_margin_mem_ratio"},
        [&](std::string name) { return NoEffect(std::move(name), order); });
    for (const auto& keys : {FileKeys(), ZeroKeys(), PrecisionKeys(), ModelKeys(), HookKeys()}) {
      plugins->keys.insert(plugins->keys.end(), keys.begin(), keys.end());
    }
    return plugins;
  }();
  return *system;
}

}  // namespace tessera::train
