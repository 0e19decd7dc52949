// SPDX-License-Identifier: Apache-2.0
// What becomes of TRL's arguments beside those of transformers: SFTConfig, DPOConfig, ModelConfig
// and ScriptArguments of versions 0.25 and 1.16.
#include "nlohmann/json.hpp"
#include "train/foreign/run_keys.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

void AddTexts(ForeignTable* table) {
  const std::string files = "--data and --val_data take files of this machine";
  const std::string whole = "what is longer than seq_len is an error, or what long_samples says";
  table->insert(
      table->end(),
      {Renamed("max_length", "seq_len"),
       Refused("dataset_text_field", "texts are those of the column 'text'", {"text"}),
       Refused("dataset_config", files),
       Refused("dataset_train_split", files, {"train"}),
       Refused("dataset_test_split", files, {"test"}),
       Switch(Refused("dataset_streaming", "data are read from files once", {false})),
       Refused("dataset_kwargs", "data are prepared as their task says", {Json::object()}),
       NoEffect("dataset_num_proc", "texts are tokenised by all threads"),
       Refused("chat_template_path", "put chat_template.jinja into the tokenizer's folder"),
       Refused("eos_token", "the tokenizer's folder says what ends a text"),
       NoEffect("pad_token", "padding changes no result"),
       NoEffect("padding_value", "padding changes no result"),
       NoEffect("pad_to_multiple_of", "padding changes no result"),
       Switch(NoEffect("padding_free", "padding changes no result")),
       Switch(NoEffect("eval_packing", "an evaluation gives the same, packed or not")),
       Refused("packing_strategy", "samples are packed whole, by best fit", {"bfd"}),
       Switch(Refused("completion_only_loss", "chat learns what the assistant wrote", {true})),
       Switch(Refused("assistant_only_loss", "chat learns what the assistant wrote", {true})),
       Refused("tools", "each record has its tools"),
       Refused("max_prompt_length", whole),
       Refused("max_completion_length", whole),
       NoEffect("truncation_mode", whole)});
}

void AddLosses(ForeignTable* table) {
  const std::string reference =
      "the reference is reference_model, or the model without its adapter";
  const std::string sync = "the reference stays as it is";
  const std::string one_loss = "preference has DPO's sigmoid loss, other tasks the cross-entropy";
  table->insert(
      table->end(),
      {Refused("loss_type", one_loss,
               {"nll", "chunked_nll", "sigmoid", Json::array({"nll"}), Json::array({"sigmoid"})}),
       Refused("loss_weights", one_loss, {Json::array({1.0})}),
       Refused("f_divergence_type", one_loss, {"reverse_kl"}),
       NoEffect("f_alpha_divergence_coef", "only f_divergence_type alpha_divergence reads it"),
       NoEffect("discopop_tau", "only loss_type discopop reads it"),
       NoEffect("label_pad_token_id", "it is no part of a result"),
       Switch(Refused("reference_free", one_loss, {false})),
       Switch(Refused("use_weighting", one_loss, {false})),
       Refused("rpo_alpha", one_loss),
       Refused("ld_alpha", one_loss),
       Refused("router_aux_loss_coef",
               "the model has it: --config-overrides router_aux_loss_coef=..."),
       Refused("model_adapter_name", reference),
       Refused("ref_adapter_name", reference),
       Switch(Refused("force_use_ref_model", reference, {false})),
       Refused("ref_model_init_kwargs", reference, {Json::object()}),
       Switch(NoEffect("precompute_ref_log_probs", "the reference is always computed once")),
       NoEffect("precompute_ref_batch_size", "the reference's batches change no result"),
       Switch(Refused("sync_ref_model", sync, {false})),
       NoEffect("ref_model_mixup_alpha", sync),
       NoEffect("ref_model_sync_steps", sync),
       Switch(NoEffect("use_logits_to_keep", "it changes no result")),
       Switch(NoEffect("use_liger_loss", "fused operations serve wherever they apply")),
       Switch(Refused("generate_during_eval", "use sample_prompts", {false})),
       NoEffect("base_model_attribute_name", "only its fused losses read it")});
}

void AddModels(ForeignTable* table) {
  const std::string dense = "weights in training are not quantised";
  const std::string unread = "only load_in_4bit reads it";
  table->insert(
      table->end(),
      {Renamed("torch_dtype", "dtype"),
       Refused("model_init_kwargs", "give dtype, and other keys of the model by config_overrides",
               {Json::object()}),
       NoEffect("attn_implementation", "there is one attention, which is exact"),
       Switch(Read("use_peft", "adapter")), Switch(Read("use_rslora", "adapter")),
       Switch(Read("use_dora", "adapter")), NoEffect("lora_task_type", "the task says it"),
       Refused("lora_target_parameters", "adapters are of linear layers; use target_modules"),
       Switch(Refused("load_in_8bit", dense, {false})),
       Switch(Refused("load_in_4bit", dense, {false})), NoEffect("bnb_4bit_quant_type", unread),
       NoEffect("bnb_4bit_quant_storage", unread), Switch(NoEffect("use_bnb_nested_quant", unread)),
       Switch(Refused("activation_offloading", "use checkpoint_activations", {false})),
       Switch(NoEffect("gradient_checkpointing_use_reentrant", "there is one way to recompute")),
       Switch(NoEffect("ignore_bias_buffers", "models have no buffers that change"))});
}

}  // namespace

const ForeignSystem& Trl() {
  static const auto* system = [] {
    auto* arguments = new ForeignSystem{"TRL", {}};
    AddTexts(&arguments->keys);
    AddLosses(&arguments->keys);
    AddModels(&arguments->keys);
    return arguments;
  }();
  return *system;
}

// An adapter there has other sizes than ours has by default.
void TranslateTrl(ForeignKeys& run) {
  const bool rslora = run.Bool("use_rslora").value_or(false);
  const bool dora = run.Bool("use_dora").value_or(false);
  if (!run.Bool("use_peft").value_or(false)) {
    for (const char* key : {"use_peft", "use_rslora", "use_dora"}) {
      run.Ignore(key, "no adapter is asked for");
    }
    return;
  }
  if (rslora && dora) return run.Fail("use_dora", "and 'use_rslora' are one key (adapter)");
  if (run.keys().contains("adapter")) {
    return run.Fail("use_peft", "and 'adapter' are one key (adapter)");
  }
  run.Put("adapter", Json(rslora ? "rslora" : dora ? "dora" : "lora"));
  run.defaults().update({{"lora_r", 16}, {"lora_alpha", 32}, {"lora_dropout", 0.05}});
}

}  // namespace tessera::train
