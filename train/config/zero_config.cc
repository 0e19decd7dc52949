// SPDX-License-Identifier: Apache-2.0
#include "train/config/zero_config.h"

#include <vector>

#include "base/options.h"
#include "train/config/precision_config.h"

namespace tessera::train {

const OptionTable& ZeroConfig::Table() {
  const std::vector<OptionValue> sharded = {{"zero", {"1", "2", "3"}}};
  const std::vector<OptionValue> parameters = {{"zero", {"3"}}};
  static const auto* table = new OptionTable(
      OptionTable::Of<ZeroConfig>("ZeRO")
          .Add("zero", &ZeroConfig::zero,
               "the stage ([distributed.md](distributed.md#zero)): 1 shares optimizer states out "
               "over the data-parallel ranks, 2 gradients too, 3 parameters too; `no_shard`, "
               "`shard_grad_op`, `full_shard` are 0, 2, 3",
               {.least = 0,
                .most = 3,
                .changes_results = false,
                .aliases = {{"zero_stage", "Colossal-AI"}, {"sharding_strategy", "PyTorch FSDP"}},
                .values = {{"no_shard", "0"},
                           {"NO_SHARD", "0"},
                           {"shard_grad_op", "2"},
                           {"SHARD_GRAD_OP", "2"},
                           {"full_shard", "3"},
                           {"FULL_SHARD", "3"}}})
          .Add("communication_dtype", &ZeroConfig::communication_dtype,
               "what gradients travel in; sums are taken in float32",
               {.choices = {"float32", "bfloat16", "float16"},
                .unset = "as they are",
                .needs = {sharded},
                .values = DTypeNames()})
          .Add("cpu_offload", &ZeroConfig::cpu_offload,
               "optimizer states and gradient shards live, and are updated, in host memory",
               {.needs = {sharded}, .changes_results = false})
          .Add("offload_fraction", &ZeroConfig::offload_fraction,
               "the share of the states that does",
               {.least = 0,
                .most = 1,
                .needs = {{{"cpu_offload", {"true"}}}},
                .neutral = 1,
                .changes_results = false})
          .Add("offload_parameters", &ZeroConfig::offload_parameters, "parameter shards as well",
               {.needs = {parameters}, .changes_results = false})
          .Add("auto_wrap_classes", &ZeroConfig::auto_wrap_classes,
               "modules that are gathered as one, by class, with commas",
               {.unset = "the model's blocks", .needs = {parameters}, .changes_results = false})
          .Add("auto_wrap_min_params", &ZeroConfig::auto_wrap_min_params,
               "or modules with so many parameters; 0: any",
               {.least = 0, .needs = {parameters}, .neutral = 0, .changes_results = false})
          .Add("backward_prefetch", &ZeroConfig::backward_prefetch,
               "when the backward pass begins to gather the next block: before the present one's "
               "gradients, after, or when it is needed",
               {.choices = {"backward_pre", "backward_post", "none"},
                .needs = {parameters},
                .changes_results = false})
          .Add("forward_prefetch", &ZeroConfig::forward_prefetch,
               "the next block is gathered while one computes",
               {.needs = {parameters}, .changes_results = false})
          .Add("limit_all_gathers", &ZeroConfig::limit_all_gathers,
               "one block ahead at most; otherwise `prefetch_elements`",
               {.needs = {parameters}, .changes_results = false})
          .Add("prefetch_elements", &ZeroConfig::prefetch_elements,
               "elements gathered ahead, without `limit_all_gathers`",
               {.least = 0,
                .needs = {parameters, {{"limit_all_gathers", {"false"}}}},
                .changes_results = false})
          .Add("max_live_elements", &ZeroConfig::max_live_elements,
               "nothing is gathered ahead beyond so many elements",
               {.least = 0, .needs = {parameters}, .changes_results = false})
          .Add("persistence_threshold", &ZeroConfig::persistence_threshold,
               "parameters with fewer elements stay gathered",
               {.least = 0, .needs = {parameters}, .neutral = 0, .changes_results = false})
          .Add("reshard_after_forward", &ZeroConfig::reshard_after_forward,
               "false keeps blocks from their forward to their backward pass",
               {.needs = {parameters}, .changes_results = false}));
  return *table;
}

}  // namespace tessera::train
