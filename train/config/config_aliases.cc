#include "train/config/config_aliases.h"

namespace tessera::train {

const std::vector<ConfigAlias>& ConfigAliases() {
  static const auto* aliases = new std::vector<ConfigAlias>{
      {"model_parallel_size", "tp", "FlagAI"},
      {"save_dir", "out", "FlagAI"},
      {"model_name", "model", "FlagAI"},
      {"clip_grad", "max_grad_norm", "FlagAI"},
      {"warm_up_iters", "warmup_steps", "FlagAI"},
      {"shuffle_dataset", "shuffle", "FlagAI"},
      {"pytorch_device", "device", "FlagAI"},
      {"deepspeed_activation_checkpointing", "checkpoint_activations", "FlagAI"},
      {"tp_size", "tp", "Colossal-AI"},
      {"pp_size", "pp", "Colossal-AI"},
      {"microbatch_size", "batch_size", "Colossal-AI"},
      {"precision", "dtype", "Colossal-AI"},
      {"enable_sequence_parallelism", "sequence_parallel", "Colossal-AI"},
      {"ddp_bucket_cap_mb", "bucket_cap_mb", "Colossal-AI"},
      {"zero_stage", "zero", "Colossal-AI"},
      {"overlap_communication", "overlap_comm", "Colossal-AI"},
      {"max_norm", "max_grad_norm", "Colossal-AI"},
      {"sharding_strategy", "zero", "PyTorch FSDP"},
      {"enable_cuda_graph", "cuda_graph", "Megatron-LM"},
      {"mixed_precision", "autocast", "Hugging Face Accelerate"},
      {"learning_rate", "lr", "Hugging Face"},
      {"num_train_epochs", "epochs", "Hugging Face"},
      {"per_device_train_batch_size", "batch_size", "Hugging Face"},
      {"logging_steps", "log_interval", "Hugging Face"},
      {"save_steps", "save_interval", "Hugging Face"},
      {"eval_steps", "eval_interval", "Hugging Face"},
      {"save_total_limit", "num_checkpoints", "Hugging Face"},
      {"adam_epsilon", "eps", "Hugging Face"},
      {"gradient_checkpointing", "checkpoint_activations", "Hugging Face"},
      {"train_file", "data", "Hugging Face"},
      {"validation_file", "val_data", "Hugging Face"},
      {"max_seq_length", "seq_len", "Hugging Face"},
      {"label_column_name", "label_columns", "Hugging Face"},
      {"text_column_name", "text_column", "Hugging Face"},
  };
  return *aliases;
}

std::string_view CanonicalKey(std::string_view name) {
  for (const ConfigAlias& alias : ConfigAliases()) {
    if (alias.name == name) return alias.key;
  }
  return name;
}

std::string_view CanonicalValue(std::string_view key, std::string_view text) {
  struct Value {
    std::string_view key;
    std::string_view there;
    std::string_view here;
  };
  static constexpr Value kValues[] = {
      {"dtype", "fp32", "float32"},
      {"dtype", "bf16", "bfloat16"},
      {"dtype", "fp16", "float16"},
      {"autocast", "no", ""},
      {"autocast", "bf16", "bfloat16"},
      {"autocast", "fp16", "float16"},
      {"grad_dtype", "fp32", "float32"},
      {"grad_dtype", "bf16", "bfloat16"},
      {"grad_dtype", "fp16", "float16"},
      {"communication_dtype", "fp32", "float32"},
      {"communication_dtype", "bf16", "bfloat16"},
      {"communication_dtype", "fp16", "float16"},
      {"zero", "no_shard", "0"},
      {"zero", "NO_SHARD", "0"},
      {"zero", "shard_grad_op", "2"},
      {"zero", "SHARD_GRAD_OP", "2"},
      {"zero", "full_shard", "3"},
      {"zero", "FULL_SHARD", "3"},
      {"env_type", "pytorch", "single"},
      {"env_type", "pytorchDDP", "ddp"},
      {"env_type", "deepspeed", "zero"},
      {"env_type", "deepspeed+mpu", "zero+tp"},
  };
  for (const Value& value : kValues) {
    if (value.key == key && value.there == text) return value.here;
  }
  return text;
}

}  // namespace tessera::train
