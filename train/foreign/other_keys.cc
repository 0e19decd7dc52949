// SPDX-License-Identifier: Apache-2.0
// Names of systems whose files are not read as such: LLaMA-Factory, axolotl, LitGPT, torchtune,
// nanoGPT, Lightning and LLM Foundry. What one of their keys asks for is refused with the key of
// ours that does it, since values, defaults and units may differ.
#include "nlohmann/json.hpp"
#include "train/foreign/run_keys.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;
using Names = std::vector<std::string>;

// Refuses all of `names`.
void Instead(ForeignTable* table, const Names& names, const std::string& reason) {
  Add(*table, names, [&](std::string name) { return Refused(std::move(name), reason); });
}

// Refuses switches where they ask for something.
void InsteadOfSwitches(ForeignTable* table, const Names& names, const std::string& reason,
                       bool neutral) {
  Add(*table, names,
      [&](std::string name) { return Switch(Refused(std::move(name), reason, {neutral})); });
}

void AddOtherModels(ForeignTable* table) {
  Instead(table, {"base_model", "checkpoint_dir", "initial_checkpoint_dir", "init_from"},
          "use model");
  Instead(table, {"tokenizer_dir"}, "use tokenizer");
  Instead(table, {"template", "chat_template"},
          "put chat_template.jinja into the tokenizer's folder");
  Instead(table, {"special_tokens"}, "the tokenizer's folder has the special tokens");
  Instead(table, {"block_size", "cutoff_len", "sequence_len", "max_seq_len"}, "use seq_len");
  Instead(table, {"n_layer", "n_head", "n_embd"},
          "give it to the model: --config-overrides n_layer=4,n_head=4,n_embd=128");
  Instead(table, {"finetuning_type"}, "use adapter, or leave it out where all of the model trains");
  Instead(table, {"adapter_name_or_path", "lora_model_dir"},
          "give the folder of the adapter as adapter");
  InsteadOfSwitches(table, {"lora_target_linear"}, "use target_modules all-linear", false);
  InsteadOfSwitches(
      table, {"lora_query", "lora_key", "lora_value", "lora_projection", "lora_mlp", "lora_head"},
      "use target_modules", false);
  InsteadOfSwitches(table, {"pissa_init"}, "use init_lora_weights pissa", false);
}

void AddOtherData(ForeignTable* table) {
  Instead(table, {"dataset", "datasets", "dataset_dir", "train_loader"},
          "give files of this machine as data, and what they hold as task (chat, preference)");
  Instead(table, {"eval_dataset", "test_datasets", "eval_loader"}, "use val_data");
  for (const char* key : {"val_size", "val_set_size"}) {
    table->push_back(Refused(key, "use val_fraction", {0}));
  }
  Instead(table, {"max_samples"}, "every row is used");
  Instead(table, {"rl", "pref_loss"}, "use task preference, which has DPO's sigmoid loss");
  InsteadOfSwitches(table, {"sample_packing", "neat_packing"}, "use packing", false);
  InsteadOfSwitches(table, {"train_on_prompt", "train_on_inputs", "mask_history"},
                    "chat learns every answer, and no prompt", false);
}

void AddOtherSteps(ForeignTable* table) {
  Instead(table, {"num_epochs", "max_epochs"}, "use epochs");
  Instead(table, {"max_iters"}, "use max_steps");
  Instead(table, {"max_duration"}, "use epochs or max_steps");
  Instead(table, {"accumulate_grad_batches"}, "use gradient_accumulation_steps");
  Instead(table, {"device_train_microbatch_size"}, "use batch_size");
  Instead(table, {"global_train_batch_size"}, "use global_batch_size");
  Instead(table, {"gradient_clip_val", "grad_clip"}, "use max_grad_norm");
  Instead(table, {"lr_scheduler"}, "use lr_scheduler_type");
  InsteadOfSwitches(table, {"decay_lr"}, "use lr_schedule constant", true);
  Instead(table, {"loss_watchdog_threshold", "loss_watchdog_patience"}, "use spike_factor");
  Instead(table, {"noisy_embedding_alpha"}, "use neftune_noise_alpha");
}

void AddOtherReports(ForeignTable* table) {
  Instead(table, {"out_dir", "save_folder", "default_root_dir"}, "use out");
  Instead(table, {"evals_per_epoch", "val_check_interval"}, "use eval_interval");
  Instead(table, {"saves_per_epoch", "always_save_checkpoint"}, "use save_interval");
  Instead(table, {"limit_val_batches"}, "use eval_batches");
  Instead(table, {"log_every_n_steps", "console_log_interval"}, "use log_interval");
  InsteadOfSwitches(table, {"eval_only"}, "`tessera eval` does", false);
  InsteadOfSwitches(table, {"enable_activation_checkpointing"}, "use checkpoint_activations",
                    false);
  InsteadOfSwitches(table, {"enable_activation_offloading"}, "use offload_activations", false);
  InsteadOfSwitches(table, {"wandb_log"}, "metrics go to <out>/metrics.jsonl", false);
  for (const char* key : {"wandb_project", "wandb_entity", "wandb_watch", "wandb_name",
                          "wandb_run_name", "wandb_run_id", "wandb_log_model"}) {
    table->push_back(NoEffect(key, "metrics go to <out>/metrics.jsonl"));
  }
  table->push_back(Switch(NoEffect("plot_loss", "`tessera report` draws charts")));
  const std::string fused = "fused attention serves wherever it applies";
  for (const char* key : {"flash_attention", "xformers_attention", "sdp_attention"}) {
    table->push_back(Switch(NoEffect(key, fused)));
  }
  table->push_back(NoEffect("flash_attn", fused));
  table->push_back(Switch(NoEffect("compile", "kernels are compiled with the program")));
  table->push_back(Switch(NoEffect("pad_to_sequence_len", "padding changes no result")));
  table->push_back(NoEffect("dataset_prepared_path", "the run's directory has the prepared data"));
}

}  // namespace

const ForeignSystem& OtherSystems() {
  static const auto* system = [] {
    auto* others = new ForeignSystem{"other systems", {}};
    AddOtherModels(&others->keys);
    AddOtherData(&others->keys);
    AddOtherSteps(&others->keys);
    AddOtherReports(&others->keys);
    return others;
  }();
  return *system;
}

}  // namespace tessera::train
