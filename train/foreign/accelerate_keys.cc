// SPDX-License-Identifier: Apache-2.0
// What becomes of each key of Accelerate's files.
#include "train/foreign/accelerate_config.h"
#include "train/foreign/fsdp_keys.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

constexpr char kNoTpu[] = "there are no TPUs";

ForeignKey Launch(std::string name) { return Read(std::move(name), "how ranks are started"); }

void AddTopLevel(ForeignTable* table) {
  Add(*table,
      {"num_processes", "num_machines", "machine_rank", "main_process_ip", "main_process_port",
       "gpu_ids"},
      Launch);
  table->insert(table->end(),
                {Refused("compute_environment", "runs are started on machines of one's own",
                         {"LOCAL_MACHINE"}),
                 Read("distributed_type", "zero"),
                 Read("use_cpu", "device"),
                 Read("mixed_precision", "dtype, autocast"),
                 Renamed("debug", "check_collectives"),
                 NoEffect("rdzv_backend", "ranks find one another through mpirun"),
                 NoEffect("rdzv_conf", "ranks find one another through mpirun"),
                 NoEffect("same_network", "mpirun chooses the network"),
                 NoEffect("main_training_function", "the program's command is what runs"),
                 NoEffect("enable_cpu_affinity", "the launcher binds ranks to cores"),
                 Refused("downcast_bf16", kNoTpu, {"no", false}),
                 Refused("ipex_config", "there are no extensions to load", {Json::object()}),
                 Refused("xpu_config", "there are no extensions to load", {Json::object()}),
                 Read("mpirun_config.mpirun_hostfile", "how ranks are started"),
                 NoEffect("mpirun_config.mpirun_ccl", "collectives are MPI's own"),
                 Refused("tpu_name", kNoTpu),
                 Refused("tpu_zone", kNoTpu),
                 Refused("tpu_use_cluster", kNoTpu, {false}),
                 Refused("tpu_use_sudo", kNoTpu, {false}),
                 Refused("tpu_vm", kNoTpu, {Json::array()}),
                 Refused("tpu_env", kNoTpu, {Json::array()}),
                 Refused("command_file", kNoTpu),
                 Refused("commands", kNoTpu, {Json::array()})});
  Add(*table,
      {"iam_role_name", "image_uri", "profile", "region", "base_job_name", "pytorch_version",
       "transformers_version", "py_version", "sagemaker_inputs_file", "sagemaker_metrics_file",
       "additional_args", "ec2_instance_type"},
      [](std::string name) { return Refused(std::move(name), "it belongs to SageMaker"); });
  for (const char* name :
       {"backend", "mode", "use_fullgraph", "use_dynamic", "use_regional_compilation"}) {
    for (const char* prefix : {"dynamo_config.dynamo_", "dynamo_config."}) {
      table->push_back(NoEffect(Concat(prefix, name), "kernels are compiled with the program"));
    }
  }
  for (const char* name :
       {"backend", "use_autocast_during_eval", "margin", "interval", "fp8_format", "format",
        "amax_history_length", "amax_history_len", "amax_compute_algorithm", "amax_compute_algo",
        "override_linear_precision", "optimization_level", "opt_level",
        "enable_fsdp_float8_all_gather", "pad_inner_dim"}) {
    for (const char* prefix : {"fp8_config.fp8_", "fp8_config."}) {
      table->push_back(Refused(Concat(prefix, name), "there are no 8-bit floats"));
    }
  }
}

void AddDeepSpeed(ForeignTable* table) {
  constexpr char kNvme[] = "nothing is off-loaded to NVMe";
  const ForeignTable keys = {
      Read("deepspeed_config_file", "the keys of that file"),
      Read("zero_stage", "zero"),
      Read("offload_optimizer_device", "cpu_offload"),
      Read("offload_param_device", "offload_parameters"),
      Refused("offload_optimizer_nvme_path", kNvme, {"none"}),
      Refused("offload_param_nvme_path", kNvme, {"none"}),
      Renamed("gradient_accumulation_steps", "gradient_accumulation_steps"),
      Becomes("gradient_clipping", "max_grad_norm",
              [](const Json& value) -> StatusOr<Json> {
                return value == "none" ? Json() : Json{{"max_grad_norm", value}};
              }),
      NoEffect("zero3_init_flag", "parameters are cut while they are made"),
      NoEffect("zero3_save_16bit_model", "the model is always saved whole"),
      Launch("deepspeed_hostfile"),
      NoEffect("deepspeed_multinode_launcher", "the built-in launcher serves"),
      Refused("deepspeed_inclusion_filter", "give a host file with the hosts that are to run",
              {""}),
      Refused("deepspeed_exclusion_filter", "give a host file with the hosts that are to run",
              {""}),
      NoEffect("deepspeed_moe_layer_cls_names", "a block is gathered whole, with its experts"),
  };
  for (ForeignKey key : keys) {
    key.name = "deepspeed_config." + key.name;
    table->push_back(std::move(key));
  }
}

void AddMegatron(ForeignTable* table) {
  const ForeignTable keys = {
      Renamed("tp_degree", "tp"),
      Renamed("pp_degree", "pp"),
      Renamed("context_parallel_size", "cp"),
      Renamed("expert_model_parallel_size", "ep"),
      Renamed("num_micro_batches", "gradient_accumulation_steps"),
      Renamed("sequence_parallelism", "sequence_parallel"),
      Renamed("recompute_activations", "checkpoint_activations"),
      Renamed("gradient_clipping", "max_grad_norm"),
      Becomes("use_distributed_optimizer", "zero",
              [](const Json& value) -> StatusOr<Json> {
                return value == true || value == "true" ? Json{{"zero", 1}} : Json();
              }),
      Renamed("optimizer_cpu_offload", "cpu_offload"),
      NoEffect("recompute_granularity", "whole blocks are recomputed"),
      NoEffect("recompute_method", "whole blocks are recomputed"),
      NoEffect("recompute_num_layers", "every block is recomputed"),
      NoEffect("attention_backend", "fused attention serves wherever it applies"),
      NoEffect("attention_softmax_in_fp32", "the softmax is in float32"),
      NoEffect("calculate_per_token_loss", "losses are divided by the targets of the step"),
      NoEffect("overlap_cpu_optimizer_d2h_h2d", "copies overlap wherever they can"),
      Refused("no_load_optim", "--resume restores the whole run", {false}),
      Refused("no_save_optim", "checkpoints keep the whole run", {false}),
      Refused("eod_mask_loss", "documents are not told apart in the loss", {false}),
      Refused("use_custom_fsdp", "use zero 3", {false}),
      Refused("use_precision_aware_optimizer", "states are float32", {false}),
      Refused("decoder_last_pipeline_num_layers", "stages are cut by their cost"),
      Refused("expert_tensor_parallel_size", "tp splits experts like all layers", {1}),
      Refused("attention_dropout", "dropout sets every probability"),
      Refused("hidden_dropout", "dropout sets every probability"),
      Refused("use_rotary_position_embeddings", "it belongs to the model"),
  };
  for (ForeignKey key : keys) {
    key.name = "megatron_lm_config.megatron_lm_" + key.name;
    table->push_back(std::move(key));
  }
}

// Ranks that share out the tokens of a row, by whatever messages; 1 leaves it to the other key.
ForeignKey SequenceRanks(const char* name) {
  return Becomes(name, "cp", [](const Json& value) -> StatusOr<Json> {
    return Plain(value) == 1 ? Json() : Json{{"cp", Plain(value)}};
  });
}

void AddParallelism(ForeignTable* table) {
  const ForeignTable keys = {
      Renamed("tp_size", "tp"),
      Read("dp_replicate_size", "zero"),
      Read("dp_shard_size", "zero"),
      SequenceRanks("cp_size"),
      NoEffect("cp_backend", "keys and values travel in a ring"),
      NoEffect("cp_comm_strategy", "keys and values travel in a ring"),
      SequenceRanks("sp_size"),
      NoEffect("sp_backend", "keys and values travel in a ring"),
      NoEffect("sp_seq_length", "the length is the batch's"),
      NoEffect("sp_seq_length_is_variable", "the length is the batch's"),
      NoEffect("sp_attn_implementation", "fused attention serves wherever it applies"),
  };
  for (ForeignKey key : keys) {
    key.name = "parallelism_config.parallelism_config_" + key.name;
    table->push_back(std::move(key));
  }
}

}  // namespace

const ForeignTable& AccelerateKeys() {
  static const auto* table = [] {
    auto* keys = new ForeignTable(FsdpKeys("fsdp_config"));
    AddTopLevel(keys);
    AddDeepSpeed(keys);
    AddMegatron(keys);
    AddParallelism(keys);
    return keys;
  }();
  return *table;
}

}  // namespace tessera::train
