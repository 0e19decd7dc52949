// SPDX-License-Identifier: Apache-2.0
// What becomes of Megatron-LM's training arguments that are no aliases of our keys.
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "train/foreign/run_keys.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

// Its schedules begin at step 0, as Hugging Face's do.
StatusOr<Json> DecayStyle(const Json& value) {
  Json schedule = value;
  if (value == "inverse-square-root") schedule = "inverse_sqrt";
  if (value == "WSD") schedule = "warmup_stable_decay";
  return Json{{"lr_schedule", schedule}, {"schedule_offset", -1}};
}

// How the last part of WSD falls.
StatusOr<Json> WsdDecayStyle(const Json& value) {
  if (value == "exponential") {
    return InvalidArgument("is exponential, which is not here; give linear, cosine or minus_sqrt");
  }
  return Json{{"lr_decay_type", value == "minus_sqrt" ? Json("1-sqrt") : value}};
}

// The shares of validation and test are both held out for evaluation.
StatusOr<Json> HeldOut(const Json& value) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<double> shares, Shares(value));
  double all = 0;
  for (const double share : shares) all += share;
  if (!(shares[0] > 0)) return InvalidArgument("leaves nothing to train on");
  return Json{{"val_fraction", (all - shares[0]) / all}};
}

bool IsNumber(const std::string& text) {
  return Option::FromText(Option::Kind::kNumber, text).is_number();
}

// Paths, or weights and paths by turns (0.3 a 0.7 b), which are here paths with their weights.
StatusOr<std::vector<std::string>> Blend(const Json& value) {
  std::vector<std::string> words;
  for (const Json& word : value.is_array() ? value : Json::array({value})) {
    if (!word.is_string() && !word.is_number()) {
      return InvalidArgument("must be paths, or weights and paths by turns, not ", Printed(value));
    }
    words.push_back(word.is_string() ? word.get<std::string>() : word.dump());
  }
  // In a file all may be one text.
  if (words.size() == 1) {
    std::vector<std::string> parts = absl::StrSplit(words[0], ' ', absl::SkipEmpty());
    if (parts.size() > 1 && IsNumber(parts[0])) words = std::move(parts);
  }
  bool by_turns = words.size() % 2 == 0;
  for (size_t i = 0; i < words.size(); i += 2) by_turns = by_turns && IsNumber(words[i]);
  if (!by_turns) return words;
  std::vector<std::string> paths;
  for (size_t i = 0; i < words.size(); i += 2) {
    paths.push_back(absl::StrCat(words[i + 1], ":", words[i]));
  }
  return paths;
}

StatusOr<Json> BlendOfTraining(const Json& value) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> paths, Blend(value));
  return Json{{"data", paths}};
}

StatusOr<Json> BlendOfValidation(const Json& value) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> paths, Blend(value));
  if (paths.size() == 1) {
    const bool weighted = value.is_array() && value.size() == 2;
    return Json{{"val_data", weighted ? value[1] : Json(paths[0])}};
  }
  return InvalidArgument("is a blend of ", paths.size(), ", and an evaluation reads one; give one");
}

// Of "selective" nothing is left to do: attention keeps no scores.
StatusOr<Json> Recomputes(const Json& value) {
  if (value == "full") return Json{{"checkpoint_activations", true}};
  if (value == "selective") return Json();
  return InvalidArgument("is ", Printed(value), ", expected full or selective");
}

// Minutes, which are seconds here.
ForeignKey Minutes(const char* name, const char* ours) {
  return Becomes(name, ours, [ours](const Json& value) -> StatusOr<Json> {
    const Json minutes = Plain(value);
    if (!minutes.is_number()) return InvalidArgument("must be a number, not ", Printed(value));
    return Json{{ours, 60 * minutes.get<double>()}};
  });
}

}  // namespace

StatusOr<std::vector<double>> Shares(const Json& value) {
  std::vector<double> shares;
  const auto add = [&](const Json& number) {
    const bool fits = number.is_number() && number.get<double>() >= 0;
    if (fits) shares.push_back(number.get<double>());
    return fits;
  };
  bool all = true;
  if (value.is_array()) {
    for (const Json& number : value) all = all && add(number);
  } else if (value.is_string()) {
    const std::vector<std::string> parts = absl::StrSplit(value.get<std::string>(), ',');
    for (const std::string& part : parts) {
      const std::string text(absl::StripAsciiWhitespace(part));
      all = all && add(Option::FromText(Option::Kind::kNumber, text));
    }
  } else {
    all = add(value);
  }
  if (all && !shares.empty() && shares.size() <= 3) return shares;
  return InvalidArgument("must be the shares of training, validation and test, as 949,50,1, not ",
                         Printed(value));
}

const ForeignSystem& MegatronLm() {
  static const auto* system = [] {
    auto* arguments = new ForeignSystem{
        "Megatron-LM",
        {Renamed("micro_batch_size", "batch_size"),
         Read("global_batch_size", "gradient_accumulation_steps"),
         Renamed("train_iters", "max_steps"),
         Renamed("seq_length", "seq_len"),
         Becomes("lr_decay_style", "lr_schedule, schedule_offset", DecayStyle),
         Renamed("lr_warmup_iters", "warmup_steps"),
         WarmupShare("lr_warmup_fraction"),
         Renamed("lr_warmup_init", "warmup_min_lr"),
         Renamed("lr_decay_iters", "schedule_steps"),
         Renamed("lr_wsd_decay_iters", "lr_decay_steps"),
         Becomes("lr_wsd_decay_style", "lr_decay_type", WsdDecayStyle),
         Renamed("adam_eps", "eps"),
         Renamed("sgd_momentum", "momentum"),
         Renamed("initial_loss_scale", "initial_scale"),
         Renamed("min_loss_scale", "min_scale"),
         Renamed("loss_scale_window", "growth_interval"),
         WhereTrue("calculate_per_token_loss", "loss_average", {{"loss_average", "targets"}}),
         WhereTrue("no_check_for_nan_in_loss_and_grad", "on_non_finite",
                   {{"on_non_finite", "continue"}}),
         WhereTrue("deterministic_mode", "deterministic", {{"deterministic", true}}),
         Minutes("exit_duration_in_mins", "time_limit"),
         Renamed("tensor_model_parallel_size", "tp"),
         Renamed("pipeline_model_parallel_size", "pp"),
         Renamed("context_parallel_size", "cp"),
         Renamed("expert_model_parallel_size", "ep"),
         WhereTrue("use_distributed_optimizer", "zero", {{"zero", 1}}),
         Renamed("save", "out"),
         Read("load", "resume"),
         List(Becomes("data_path", "data", BlendOfTraining)),
         List(Becomes("train_data_path", "data", BlendOfTraining)),
         List(Becomes("valid_data_path", "val_data", BlendOfValidation)),
         Renamed("tokenizer_model", "tokenizer"),
         Refused("expert_tensor_parallel_size", "tp splits experts like all layers", {1}),
         Refused("rampup_batch_size", "a run has batches of one size"),
         Refused("train_samples", "give train_iters"),
         Refused("exit_interval", "give train_iters, and lr_decay_iters for the schedule"),
         List(Refused("test_data_path", "training reads no test set; `tessera eval` does")),
         Refused("data_args_path", "give the paths that the file lists as data_path"),
         Refused("per_split_data_args_path",
                 "give the paths that the file lists as train_data_path and valid_data_path"),
         Switch(Refused("mock_data", "give data_path", {false})),
         Switch(Refused("fim_data", "texts are learnt in their order", {false})),
         Refused("dataloader_type", "batches are rows of the data in the order of the seed",
                 {"single", "cyclic"}),
         Refused("start_weight_decay", "weight decay is the same at every step; give weight_decay"),
         Refused("end_weight_decay", "weight decay is the same at every step; give weight_decay"),
         Refused("weight_decay_incr_style",
                 "weight decay is the same at every step; give weight_decay", {"constant"}),
         Refused("decoupled_lr", "every parameter has the rate lr"),
         Refused("decoupled_min_lr", "every parameter has the rate lr"),
         Refused("lion_beta1", "give betas, two numbers"),
         Refused("lion_beta2", "give betas, two numbers"),
         Refused("lr_decay_samples", "give lr_decay_iters"),
         Refused("lr_warmup_samples", "give lr_warmup_iters", {0}),
         Becomes("split", "val_fraction", HeldOut),
         NoEffect("cp_comm_type", "keys and values travel in a ring"),
         NoEffect("num_workers", "batches are made ahead, in order, on a thread of the process"),
         NoEffect("distributed_backend", "the device decides between MPI and NCCL"),
         NoEffect("tensorboard_log_interval", "event files have the rows of log_interval"),
         WhereTrue("overlap_grad_reduce", "overlap_comm", {{"overlap_comm", true}}),
         Becomes("recompute_granularity", "checkpoint_activations", Recomputes),
         Minutes("distributed_timeout_minutes", "collective_timeout")}};
    ForeignTable& keys = arguments->keys;
    Add(keys, {"recompute_method", "recompute_num_layers"}, [](std::string name) {
      return NoEffect(std::move(name),
                      "each block is recomputed by itself, which changes no result");
    });
    Add(keys,
        {"overlap_param_gather", "use_flash_attn", "use_mcore_models", "use_dist_ckpt",
         "no_gradient_accumulation_fusion", "no_masked_softmax_fusion", "no_bias_gelu_fusion",
         "no_bias_swiglu_fusion", "no_bias_dropout_fusion", "no_rope_fusion",
         "no_persist_layer_norm", "no_async_tensor_model_parallel_allreduce"},
        [](std::string name) {
          return Switch(
              NoEffect(std::move(name), "operations are fused and overlapped as they are"));
        });
    keys.push_back(Switch(NoEffect("recompute_activations", "attention keeps no scores")));
    keys.push_back(Switch(NoEffect("attention_softmax_in_fp32", "the softmax is in float32")));
    keys.push_back(Switch(
        NoEffect("accumulate_allreduce_grads_in_fp32", "gradients are collected in float32")));
    keys.push_back(Switch(NoEffect("exit_signal_handler", "a signal to stop makes a run save")));
    Add(keys, {"data_cache_path", "num_dataset_builder_threads"}, [](std::string name) {
      return NoEffect(std::move(name), "the order of samples is computed, not kept");
    });
    keys.push_back(Switch(NoEffect("no_mmap_bin_files", "token files are mapped")));
    keys.push_back(Switch(NoEffect("no_create_attention_mask_in_dataloader",
                                   "attention is causal without a mask of the data's")));
    keys.push_back(
        Switch(Refused("use_checkpoint_args",
                       "give the folder of a model, whose config.json has its shape", {false})));
    Add(keys, {"reset_position_ids", "reset_attention_mask"}, [](std::string name) {
      return Switch(Refused(std::move(name), "give reset_at_documents, which does both", {false}));
    });
    keys.push_back(Switch(Refused("eod_mask_loss", "the loss counts every token", {false})));
    Add(keys, {"transformer_impl", "attention_backend"}, [](std::string name) {
      return NoEffect(std::move(name), "operations are fused and overlapped as they are");
    });
    Add(keys, {"ckpt_format", "dist_ckpt_format"}, [](std::string name) {
      return NoEffect(std::move(name), "a checkpoint continues on any layout");
    });
    Add(keys, {"no_load_optim", "no_load_rng", "no_save_optim", "no_save_rng", "finetune"},
        [](std::string name) {
          return Switch(Refused(std::move(name),
                                "a checkpoint keeps and restores the whole run; a run begins "
                                "afresh from the folder of a model",
                                {false}));
        });
    Add(keys, {"tokenizer_type", "vocab_file", "merge_file", "vocab_size"}, [](std::string name) {
      return Refused(std::move(name), "give the tokenizer's folder as tokenizer_model");
    });
    // Those of Megatron-LM's own scripts for GPT and Llama.
    const std::string shape = "a model's shape is a preset's or a folder's; give config_overrides";
    Add(keys,
        {"num_layers",
         "hidden_size",
         "ffn_hidden_size",
         "num_attention_heads",
         "num_query_groups",
         "kv_channels",
         "max_position_embeddings",
         "position_embedding_type",
         "rotary_base",
         "rotary_percent",
         "normalization",
         "norm_epsilon",
         "layernorm_epsilon",
         "init_method_std",
         "attention_dropout",
         "hidden_dropout",
         "make_vocab_size_divisible_by",
         "num_experts",
         "moe_router_topk",
         "moe_aux_loss_coeff"},
        [&](std::string name) { return Refused(std::move(name), shape); });
    Add(keys,
        {"group_query_attention", "use_rotary_position_embeddings", "swiglu", "squared_relu",
         "disable_bias_linear", "add_qkv_bias", "untie_embeddings_and_output_weights"},
        [&](std::string name) { return Switch(Refused(std::move(name), shape, {false})); });
    return arguments;
  }();
  return *system;
}

}  // namespace tessera::train
