// SPDX-License-Identifier: Apache-2.0
#include "train/config/precision_config.h"

#include "base/options.h"

namespace tessera::train {

const OptionTable& PrecisionConfig::Table() {
  static const auto* table = new OptionTable(
      OptionTable::Of<PrecisionConfig>("Precision")
          .Add("dtype", &PrecisionConfig::dtype,
               "of the parameters: `bfloat16` and `float16` keep float32 master weights; "
               "`float16` scales the loss",
               {.choices = {"float32", "bfloat16", "float16"},
                .aliases = {{"precision", "Colossal-AI"}},
                .values = DTypeNames()})
          .Add("autocast", &PrecisionConfig::autocast,
               "half precision for matrix products and attention; norms and losses in float32, "
               "the rest in the dtype of what it is given; `float16` scales the loss",
               {.choices = {"bfloat16", "float16"},
                .unset = "none",
                .needs = {{{"dtype", {"float32"}}}},
                .aliases = {{"mixed_precision", "Hugging Face Accelerate"}},
                .values = {{"no", ""}, {"bf16", "bfloat16"}, {"fp16", "float16"}}})
          .Add("grad_dtype", &PrecisionConfig::grad_dtype,
               "what gradients are collected in beside a half-precision `dtype`: `float32`, or "
               "the dtype, which saves two bytes per parameter",
               {.choices = {"float32", "bfloat16", "float16"},
                .unset = "`float32`",
                .values = DTypeNames()}));
  return *table;
}

const OptionTable& LossScalingConfig::Table() {
  const std::vector<OptionValue> half = {{"dtype", {"float16"}}, {"autocast", {"float16"}}};
  const std::vector<OptionValue> dynamic = {{"loss_scale", {""}}};
  static const auto* table = new OptionTable(
      OptionTable::Of<LossScalingConfig>("Loss scaling, with float16")
          .Add("loss_scale", &LossScalingConfig::loss_scale, "a fixed scale",
               {.above = 0,
                .unset = "dynamic, as the keys below say",
                .needs = {half},
                .values = {{"dynamic", ""}}})
          .Add("initial_scale", &LossScalingConfig::initial_scale, "where the scale begins",
               {.above = 0, .needs = {half, dynamic}})
          .Add("min_scale", &LossScalingConfig::min_scale, "the least scale",
               {.above = 0, .needs = {half, dynamic}})
          .Add("max_scale", &LossScalingConfig::max_scale, "the greatest scale",
               {.above = 0, .needs = {half, dynamic}})
          .Add("growth_factor", &LossScalingConfig::growth_factor,
               "what the scale grows by after `growth_interval` steps without overflow",
               {.least = 1, .needs = {half, dynamic}})
          .Add("growth_interval", &LossScalingConfig::growth_interval,
               "steps without overflow until it grows", {.least = 1, .needs = {half, dynamic}})
          .Add("backoff_factor", &LossScalingConfig::backoff_factor,
               "what an overflow multiplies it by",
               {.above = 0, .most = 1, .needs = {half, dynamic}})
          .Add("hysteresis", &LossScalingConfig::hysteresis,
               "overflows that are tolerated before it shrinks",
               {.least = 1, .needs = {half, dynamic}}));
  return *table;
}

}  // namespace tessera::train
