// SPDX-License-Identifier: Apache-2.0
#include "train/config/fine_tuning_config.h"

#include "base/options.h"

namespace tessera::train {

const OptionTable& FineTuningConfig::Table() {
  // A folder says the rest itself.
  const std::vector<OptionValue> made = {{"adapter", {"lora", "rslora", "dora"}}};
  const std::vector<OptionValue> prefix = {{"adapter", {"prefix"}}};
  static const auto* table = new OptionTable(
      OptionTable::Of<FineTuningConfig>("Adapters")
          .Add("adapter", &FineTuningConfig::adapter,
               "train a few parameters beside the model, which stays as it is: `lora`, `rslora` "
               "(scaled by 1/sqrt(r)), `dora`, `prefix` (keys and values before each layer's), or "
               "the folder of an adapter (PEFT's) to train further. `model/` in the run's "
               "directory is "
               "then PEFT's folder",
               {.unset = "none: the model trains", .evaluation = true})
          .Add("lora_r", &FineTuningConfig::lora_r, "rank of an adapter's matrices",
               {.least = 1,
                .most = 1 << 20,
                .needs = {made},
                .aliases = {{"lora_rank", "LLaMA-Factory"}}})
          .Add("lora_alpha", &FineTuningConfig::lora_alpha,
               "what an adapter adds is scaled by lora_alpha / lora_r",
               {.above = 0, .needs = {made}})
          .Add("lora_dropout", &FineTuningConfig::lora_dropout, "of what goes into an adapter",
               {.least = 0, .below = 1, .needs = {made}})
          .Add("target_modules", &FineTuningConfig::target_modules,
               "linear layers that get an adapter, by the ends of their names (`q_proj,v_proj`), a "
               "regular expression of whole names, or `all-linear`",
               {.unset = "what PEFT has for the model",
                .needs = {made},
                .aliases = {{"lora_target_modules", "TRL"}, {"lora_target", "LLaMA-Factory"}}})
          .Add("exclude_modules", &FineTuningConfig::exclude_modules,
               "layers that get none, said likewise", {.unset = "none", .needs = {made}})
          .Add("modules_to_save", &FineTuningConfig::modules_to_save,
               "modules that train whole and belong to the adapter, such as a head (`classifier`); "
               "a head that is made for the data always is one",
               {.unset = "none",
                .needs = {made},
                .aliases = {{"lora_modules_to_save", "TRL"},
                            {"additional_target", "LLaMA-Factory"}}})
          .Add("adapter_bias", &FineTuningConfig::adapter_bias,
               "biases that train, too: those of layers with an adapter, or all",
               {.choices = {"none", "lora_only", "all"}, .needs = {made}})
          .Add("init_lora_weights", &FineTuningConfig::init_lora_weights,
               "first values of an adapter: `true` (it adds nothing), `gaussian` (A normal), "
               "`false` (B random, too), or the part of the weight that it then trains: `pissa` "
               "(the largest singular values), `pissa_niter_K` (about these, in K rounds), `olora` "
               "(of a QR decomposition)",
               {.needs = {made}})
          .Add("pre_seq_len", &FineTuningConfig::pre_seq_len,
               "tokens of a prefix; given without `adapter`, it asks for one",
               {.least = 1, .most = 1 << 20, .needs = {prefix}})
          .Add("prefix_projection", &FineTuningConfig::prefix_projection,
               "a prefix is what two layers make of an embedding, which train in its stead",
               {.needs = {prefix}})
          .Add("prefix_hidden_size", &FineTuningConfig::prefix_hidden_size,
               "width between those two layers",
               {.least = 1,
                .most = 1 << 20,
                .unset = "that of a layer's keys",
                .needs = {{{"prefix_projection", {"true"}}}}}));
  return *table;
}

}  // namespace tessera::train
