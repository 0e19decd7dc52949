// SPDX-License-Identifier: Apache-2.0
// What becomes of Hugging Face's TrainingArguments (4.57 and 5) that are no aliases of our keys.
#include "nlohmann/json.hpp"
#include "train/foreign/fsdp_keys.h"
#include "train/foreign/run_keys.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

// "none", "all", or the forms themselves; "none" takes back what a file asked for.
StatusOr<Json> ReportTo(const Json& value) {
  const Json one = value.is_array() && value.size() == 1 ? value[0] : value;
  if (one == "none") return Json{{"report_to", Json::array()}};
  if (one == "all") return Json{{"report_to", FindRunConfigKey("report_to")->notes.choices}};
  return Json{{"report_to", value.is_string() ? Json::array({value}) : value}};
}

// -1 is "none".
StatusOr<Json> MaxSteps(const Json& value) {
  return value == -1 ? Json() : Json{{"max_steps", value}};
}

// A key of ours, with values of Hugging Face's.
ForeignKey OwnName(const char* name, KeyConversion convert) {
  return {
      .name = name, .fate = KeyFate::kHonoured, .reason = kOwnKey, .convert = std::move(convert)};
}

void AddSteps(ForeignTable* table) {
  table->insert(
      table->end(),
      {OwnName("max_steps", MaxSteps),
       OwnName("report_to", ReportTo),
       Switch(NoEffect("do_train", "`tessera train` trains, whatever it says")),
       Switch(Read("do_eval", "eval_strategy")),
       Switch(Refused("do_predict", "`tessera predict` does", {false})),
       Switch(Refused("prediction_loss_only", "an evaluation has the task's metrics", {false})),
       NoEffect("per_device_eval_batch_size",
                "an evaluation gives the same with batches of any size; they are of batch_size"),
       NoEffect("per_gpu_eval_batch_size",
                "an evaluation gives the same with batches of any size; they are of batch_size"),
       NoEffect("eval_accumulation_steps", "an evaluation keeps no predictions"),
       NoEffect("torch_empty_cache_steps", "the allocator gives memory back when it runs short"),
       Refused("eval_delay", "use eval_interval", {0}),
       Switch(Refused("eval_on_start", "use `tessera eval`", {false})),
       Read("adam_beta1", "betas"),
       Read("adam_beta2", "betas"),
       Read("lr_scheduler_type", "lr_schedule, min_lr, schedule_offset"),
       Read("lr_scheduler_kwargs",
            "min_lr, lr_cycles, lr_power, lr_decay_steps, lr_decay_type, warmup_type, "
            "schedule_steps"),
       WarmupShare("warmup_ratio"),
       Read("optim", "optimizer"),
       WhereTrue("adafactor", "optimizer",
                 {{"optimizer", "adafactor"}, {"scale_parameter", false}}),
       Refused("optim_args", "give the optimizer's own keys"),
       Refused("optim_target_modules", "every module is trained"),
       Switch(Refused("auto_find_batch_size", "nothing tunes itself", {false})),
       Switch(Refused("average_tokens_across_devices",
                      "losses are divided by the targets of all ranks", {true})),
       Switch(Renamed("full_determinism", "deterministic")),
       Becomes("train_sampling_strategy", "shuffle, group_by_length",
               [](const Json& value) -> StatusOr<Json> {
                 if (value == "group_by_length") return Json{{"group_by_length", true}};
                 return Json{{"shuffle", value != "sequential"}};
               }),
       NoEffect("length_column_name", "lengths are counted"),
       Switch(
           Refused("ignore_data_skip", "a resumed run continues where its data were", {false}))});
}

void AddPrecision(ForeignTable* table) {
  table->insert(
      table->end(),
      {WhereTrue("bf16", "autocast", {{"autocast", "bfloat16"}}),
       WhereTrue("fp16", "autocast", {{"autocast", "float16"}}),
       NoEffect("fp16_opt_level", "it is Apex's"),
       Refused("half_precision_backend", "autocast is the one way",
               {"auto", "cuda_amp", "cpu_amp"}),
       Refused("fp16_backend", "autocast is the one way", {"auto", "cuda_amp", "cpu_amp"}),
       Switch(Refused("bf16_full_eval", "an evaluation is in the run's precision", {false})),
       Switch(Refused("fp16_full_eval", "an evaluation is in the run's precision", {false})),
       Switch(Refused("tf32", "products of float32 are in float32", {false}))});
}

// One name or a list of them.
StatusOr<Json> CheckFiniteOf(const Json& value) {
  const std::vector<Json> names =
      value.is_array() ? value.get<std::vector<Json>>() : std::vector<Json>{value};
  bool checks = false;
  for (const Json& name : names) {
    if (name == "underflow_overflow") {
      checks = true;
    } else if (name != "") {
      return InvalidArgument("has ", Printed(name), ", expected underflow_overflow");
    }
  }
  return Json{{"check_finite", checks}};
}

void AddReports(ForeignTable* table) {
  table->insert(
      table->end(),
      {NoEffect("logging_dir", "metrics go to `out`, event files to <out>/tensorboard"),
       NoEffect("run_name", "a run is known by its folder, `out`"),
       NoEffect("project", "only Trackio reads it"),
       NoEffect("trackio_space_id", "only Trackio reads it"),
       NoEffect("trackio_bucket_id", "only Trackio reads it"),
       NoEffect("trackio_static_space_id", "only Trackio reads it"),
       Switch(Refused("logging_first_step", "rows come every log_interval steps", {false})),
       Switch(NoEffect("logging_nan_inf_filter",
                       "on_non_finite says what becomes of losses that are no number")),
       Switch(Becomes("disable_tqdm", "progress_bar",
                      [](const Json& value) -> StatusOr<Json> {
                        return Json{{"progress_bar", !IsTrue(value)}};
                      })),
       Switch(NoEffect("skip_memory_metrics", "rows have the peak memory")),
       Switch(NoEffect("include_tokens_per_second", "rows have tokens_per_second")),
       Refused("include_num_input_tokens_seen", "rows have tokens_per_second", {false, "no"}),
       Switch(Refused("include_inputs_for_metrics", "metrics are the task's own", {false})),
       Refused("include_for_metrics", "metrics are the task's own", {Json::array()}),
       Switch(NoEffect("batch_eval_metrics", "metrics are summed up batch by batch")),
       Switch(NoEffect("eval_do_concat_batches", "metrics are summed up batch by batch")),
       Switch(NoEffect("eval_use_gather_object", "metrics are summed up over the ranks")),
       Switch(NoEffect("use_legacy_prediction_loop", "there is one loop")),
       Becomes("debug", "check_finite", CheckFiniteOf)});
}

void AddSaving(ForeignTable* table) {
  table->insert(
      table->end(),
      {Switch(Refused("save_safetensors", "weights are safetensors", {true})),
       Switch(Refused("save_on_each_node", "ranks share one `out`", {false})),
       Switch(Refused("save_only_model", "a checkpoint keeps the whole run", {false})),
       NoEffect("restore_callback_states_from_checkpoint", "they are always restored"),
       Switch(NoEffect("enable_jit_checkpoint", "a signal to stop makes a run save")),
       Read("resume_from_checkpoint", "resume"),
       Switch(Refused("push_to_hub", "there is no hub; `out` has the model's folder", {false})),
       Switch(Refused("hub_private_repo", "there is no hub", {false})),
       Switch(Refused("hub_always_push", "there is no hub", {false}))});
  Add(*table,
      {"hub_model_id", "hub_strategy", "hub_token", "hub_revision", "push_to_hub_model_id",
       "push_to_hub_organization", "push_to_hub_token"},
      [](std::string name) {
        // The last two are what TrainingArguments writes in the place of a token.
        return Refused(std::move(name), "there is no hub",
                       {"every_save", "<HUB_TOKEN>", "<PUSH_TO_HUB_TOKEN>"});
      });
}

void AddDevices(ForeignTable* table) {
  const std::string loader = "batches are made ahead, in order, on a thread of the process";
  const std::string compiled = "kernels are compiled with the program";
  Add(*table,
      {"dataloader_num_workers", "dataloader_prefetch_factor",
       "dataloader_multiprocessing_context"},
      [&](std::string name) { return NoEffect(std::move(name), loader); });
  Add(*table, {"dataloader_pin_memory", "dataloader_persistent_workers", "dataloader_in_order"},
      [&](std::string name) { return Switch(NoEffect(std::move(name), loader)); });
  Add(*table, {"torch_compile", "jit_mode_eval"},
      [&](std::string name) { return Switch(NoEffect(std::move(name), compiled)); });
  Add(*table, {"torch_compile_backend", "torch_compile_mode", "torchdynamo"},
      [&](std::string name) { return NoEffect(std::move(name), compiled); });
  table->insert(
      table->end(),
      {WhereTrue("no_cuda", "device", {{"device", "cpu"}}),
       WhereTrue("use_cpu", "device", {{"device", "cpu"}}),
       Switch(Refused("use_mps_device", "devices are cpu and cuda", {false})),
       Refused("tpu_num_cores", "there are no TPUs"),
       Switch(Refused("tpu_metrics_debug", "there are no TPUs", {false})),
       NoEffect("local_rank", "the launcher's environment says it"),
       NoEffect("_n_gpu", "the launcher says how many ranks there are"),
       NoEffect("ddp_backend", "the device decides between MPI and NCCL"),
       Switch(NoEffect("ddp_broadcast_buffers", "models have no buffers that change")),
       NoEffect("ray_scope", "it is a hyper-parameter search's"),
       Refused("mp_parameters", "it is SageMaker's", {""}),
       Refused("past_index", "a program keeps what it wants with forward_with_mems", {-1}),
       Switch(NoEffect("remove_unused_columns", "a task reads the columns that it names")),
       Refused("label_names", "label_columns names a table's labels",
               {"labels", nlohmann::json::array({"labels"})}),
       NoEffect("gradient_checkpointing_kwargs", "there is one way to recompute"),
       NoEffect("activation_checkpointing_kwargs", "there is one way to recompute"),
       Switch(NoEffect("use_liger_kernel", "fused operations serve wherever they apply")),
       NoEffect("liger_kernel_config", "fused operations serve wherever they apply"),
       Switch(NoEffect("use_cache", "training keeps no keys and values")),
       Refused("accelerator_config", "give Accelerate's file by --accelerate",
               {Json::object(),
                {{"split_batches", false},
                 {"dispatch_batches", nullptr},
                 {"even_batches", true},
                 {"use_seedable_sampler", true},
                 {"non_blocking", false},
                 {"gradient_accumulation_kwargs", nullptr}}}),
       Refused("parallelism_config", "use tp, pp and zero"),
       Read("deepspeed", "the keys of that file"),
       Read("fsdp", "zero"),
       Read("fsdp_min_num_params", "auto_wrap_min_params"),
       Read("fsdp_transformer_layer_cls_to_wrap", "auto_wrap_classes")});
  for (ForeignKey& key : FsdpKeys("fsdp_config")) table->push_back(std::move(key));
}

// Arguments of the example scripts (run_glue, run_translation, ChatGLM's ptuning) beside those of
// the trainer.
void AddScripts(ForeignTable* table) {
  const std::string all = "every row is used";
  Add(*table, {"max_train_samples", "max_eval_samples", "max_predict_samples"},
      [&](std::string name) { return Refused(std::move(name), all); });
  Add(*table, {"dataset_name", "dataset_config_name"}, [](std::string name) {
    return Refused(std::move(name),
                   "nothing is downloaded; --train_file takes a file of this machine");
  });
  table->insert(
      table->end(),
      {NoEffect("test_file", "training reads no test set; `tessera predict` does"),
       NoEffect("cache_dir", "models and data are files of this machine"),
       NoEffect("preprocessing_num_workers", "texts are tokenised by all threads"),
       NoEffect("model_revision", "a folder has one"),
       Switch(NoEffect("use_fast_tokenizer", "there is one tokenizer, with the folder's ids")),
       Switch(NoEffect("pad_to_max_length", "padding changes no result")),
       Switch(NoEffect("trust_remote_code", "no code comes with a folder")),
       Switch(NoEffect("use_auth_token", "nothing is downloaded")),
       NoEffect("token", "nothing is downloaded"),
       Switch(Refused("ignore_pad_token_for_loss", "padding is no target", {true})),
       Refused("config_name", "the model's folder has its configuration"),
       Renamed("tokenizer_name", "tokenizer"),
       Renamed("val_max_target_length", "max_target_length"),
       Renamed("generation_num_beams", "num_beams"),
       Refused("generation_max_length", "use max_target_length"),
       Refused("ptuning_checkpoint", "give the folder of a prefix as adapter"),
       Refused("quantization_bit", "weights are not quantised")});
}

}  // namespace

const ForeignSystem& HuggingFace() {
  static const auto* system = [] {
    auto* arguments = new ForeignSystem{"Hugging Face", {}};
    AddSteps(&arguments->keys);
    AddPrecision(&arguments->keys);
    AddReports(&arguments->keys);
    AddSaving(&arguments->keys);
    AddDevices(&arguments->keys);
    AddScripts(&arguments->keys);
    return arguments;
  }();
  return *system;
}

}  // namespace tessera::train
