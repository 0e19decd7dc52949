// SPDX-License-Identifier: Apache-2.0
// What becomes of the arguments of FlagAI's Trainer that are no aliases of our keys.
#include <map>
#include <optional>
#include <string>

#include "base/file.h"
#include "nlohmann/json.hpp"
#include "train/foreign/run_keys.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

// FlagAI's own launcher (ResolveRun puts the files and flags together).
void TranslateLaunch(ForeignKeys& run) {
  for (const char* key : {"num_nodes", "num_gpus"}) {
    if (const std::optional<int64_t> value = run.Integer(key, 1)) run.Put(key, Json(*value));
  }
  if (const auto file = run.String("hostfile")) run.Put("hostfile", Json(*file));
  if (const auto started = run.Bool("not_call_launch")) run.Put("not_call_launch", Json(*started));
}

// FlagAI's hub names its models itself, and keeps them in folders of these names.
std::string PresetOfFlagAi(const std::string& name) {
  static const auto* const presets =
      new std::map<std::string, std::string>{{"GLM-large-ch", "glm-large-chinese"},
                                             {"GLM-large-en", "glm-large"},
                                             {"GLM-10b-ch", "glm-10b-chinese"},
                                             {"BERT-base-en", "bert-base-uncased"},
                                             {"BERT-base-ch", "bert-base-chinese"},
                                             {"gpt2-base-en", "gpt2"},
                                             {"GPT2-base-en", "gpt2"},
                                             {"GPT2-xlarge-en", "gpt2-xl"},
                                             {"vit-base-p16-224", "vit-base-patch16-224"}};
  const auto found = presets->find(name);
  return found == presets->end() ? name : found->second;
}

void TranslateModelName(ForeignKeys& run) {
  const std::optional<std::string> name = run.String("model_name");
  const std::optional<std::string> folder = run.String("download_path");
  if (!name) return run.Ignore("download_path", "there is no model_name");
  const std::string local = folder ? JoinPath(*folder, *name) : "";
  if (folder && IsDirectory(local)) return run.Put("model", Json(local));
  run.Put("model", Json(PresetOfFlagAi(*name)));
}

}  // namespace

const ForeignSystem& FlagAi() {
  static const auto* system = [] {
    auto* trainer = new ForeignSystem{
        "FlagAI",
        {WarmupShare("warm_up"),
         WarmupShare("warmup"),
         Renamed("warmup_start_lr", "warmup_min_lr"),
         Refused("skip_iters", "a run continues where its checkpoint says", {0}),
         Renamed("optimizer_type", "optimizer"),
         NoEffect("experiment_name", "a run is known by its folder, `out`"),
         Read("load_dir", "resume"),
         Read("model_name", "model"),
         Read("download_path", "model"),
         Refused("load_type", "--resume takes the newest checkpoint, or the one named", {"latest"}),
         Switch(Refused("load_optim", "--resume restores the whole run", {true})),
         Switch(Refused("load_rng", "--resume restores the whole run", {true})),
         Switch(Refused("save_optim", "a checkpoint keeps the whole run", {true})),
         Switch(Refused("save_rng", "a checkpoint keeps the whole run", {true})),
         Refused("save_best", "it is a function; load_best_model_at_end keeps the best checkpoint"),
         Switch(Refused("resume_dataset", "a resumed run continues where its data were", {true})),
         WhereTrue("tensorboard", "report_to",
                   {{"report_to", nlohmann::json::array({"tensorboard"})}}),
         NoEffect("tensorboard_dir", "event files go to <out>/tensorboard"),
         Switch(Refused("wandb", "metrics go to <out>/metrics.jsonl", {false})),
         NoEffect("wandb_dir", "metrics go to <out>/metrics.jsonl"),
         NoEffect("wandb_key", "metrics go to <out>/metrics.jsonl"),
         Read("deepspeed_config", "the keys of that file"),
         NoEffect("training_script", "the program's command is what runs"),
         NoEffect("timers", "wall_clock_breakdown has the times"),
         NoEffect("extra_args", "a program adds its own (train/config/arguments.h)"),
         Switch(Refused("already_fp16", "the folder's weights are cast to dtype", {false})),
         Refused("yaml_config", "give the keys by --config"),
         Refused("IGNORE_INDEX", "targets of -100 do not count", {-100}),
         WhereTrue("lora", "adapter", {{"adapter", "lora"}}),
         Switch(NoEffect("enable_flash_attn_models", "fused attention serves wherever it applies")),
         Read("num_nodes", "how ranks are started"),
         Read("num_gpus", "how ranks are started"),
         Read("hostfile", "how ranks are started"),
         Switch(Read("not_call_launch", "how ranks are started"))}};
    Add(trainer->keys, {"master_ip", "master_port"}, [](std::string name) {
      return NoEffect(std::move(name), "the ranks find one another through their launcher");
    });
    Add(trainer->keys, {"bmt_cpu_offload", "bmt_async_load", "bmt_pre_load"}, [](std::string name) {
      return Switch(Refused(std::move(name), "it is BMTrain's", {false}));
    });
    Add(trainer->keys, {"bmt_lr_decay_style", "bmt_loss_scale", "bmt_loss_scale_steps"},
        [](std::string name) { return Refused(std::move(name), "it is BMTrain's"); });
    Add(trainer->keys,
        {"pre_load_dir", "enable_sft_dataset_dir", "enable_sft_dataset_file",
         "enable_sft_dataset_val_file"},
        [](std::string name) { return Refused(std::move(name), "give `data` and `task`"); });
    Add(trainer->keys,
        {"enable_sft_dataset", "enable_sft_dataset_text", "enable_sft_dataset_jsonl",
         "enable_sft_conversations_dataset", "enable_sft_conversations_dataset_v2",
         "enable_sft_conversations_dataset_v3", "enable_weighted_dataset_v2"},
        [](std::string name) {
          return Switch(Refused(std::move(name), "give `data` and `task`", {false}));
        });
    return trainer;
  }();
  return *system;
}

void TranslateFlagAi(ForeignKeys& run) {
  TranslateLaunch(run);
  TranslateModelName(run);
}

}  // namespace tessera::train
