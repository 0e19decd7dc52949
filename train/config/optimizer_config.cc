// SPDX-License-Identifier: Apache-2.0
#include "train/config/optimizer_config.h"

#include "base/options.h"
#include "optim/optimizer_kind.h"

namespace tessera::train {

const OptionTable& OptimizerConfig::Table() {
  static const auto* table = new OptionTable(
      OptionTable::Of<OptimizerConfig>("Optimizer")
          .Add("optimizer", &OptimizerConfig::optimizer, "one of the table of optimizers",
               {.choices = optim::OptimizerNames(),
                .values = {{"AdamW", "adamw"},
                           {"HybridAdam", "adamw"},
                           {"CPUAdam", "adamw"},
                           {"FusedAdam", "adamw"},
                           {"DeepSpeedCPUAdam", "adamw"},
                           {"Adam", "adam"}}})
          .Add("lr", &OptimizerConfig::lr, "peak learning rate",
               {.least = 0, .aliases = {{"learning_rate", "Hugging Face"}}})
          .Add("weight_decay", &OptimizerConfig::weight_decay,
               "of all parameters but norms and biases, T5's relative_attention_bias among them",
               {.least = 0})
          .Add("warmup_steps", &OptimizerConfig::warmup_steps,
               "steps of warm-up; below 1 a share of all steps",
               {.least = 0, .aliases = {{"warm_up_iters", "FlagAI"}}})
          .Add("warmup_type", &OptimizerConfig::warmup_type,
               "how the rate rises: with the step, with its logarithm, along half a cosine, or as "
               "1 - "
               "sqrt(1 - x)",
               {.choices = optim::WarmupNames()})
          .Add("warmup_min_lr", &OptimizerConfig::warmup_min_lr, "where warm-up begins",
               {.least = 0})
          .Add("lr_schedule", &OptimizerConfig::lr_schedule,
               "the course of the rate behind the warm-up", {.choices = optim::ScheduleNames()})
          .Add("min_lr", &OptimizerConfig::min_lr, "where the schedule ends",
               {.least = 0,
                .unset = "0.1 `lr`",
                .needs = {{{"lr_schedule",
                            {"cosine", "cosine_with_restarts", "linear", "polynomial",
                             "inverse_sqrt", "warmup_stable_decay"}}}}})
          .Add("lr_cycles", &OptimizerConfig::lr_cycles,
               "waves of a cosine, or restarts with `cosine_with_restarts`",
               {.above = 0,
                .unset = "half a wave; 1 restart",
                .needs = {{{"lr_schedule",
                            {"cosine", "cosine_with_restarts", "warmup_stable_decay"}}}}})
          .Add("lr_power", &OptimizerConfig::lr_power, "exponent of a polynomial",
               {.above = 0, .needs = {{{"lr_schedule", {"polynomial"}}}}})
          .Add("lr_timescale", &OptimizerConfig::lr_timescale,
               "steps behind the warm-up after which `inverse_sqrt` has fallen to 1/sqrt(2)",
               {.least = 1,
                .unset = "`warmup_steps`, or 10000 without",
                .needs = {{{"lr_schedule", {"inverse_sqrt"}}}}})
          .Add("lr_decay_steps", &OptimizerConfig::lr_decay_steps,
               "steps of the decay at the end of `warmup_stable_decay`; below 1 a share of all "
               "steps",
               {.above = 0, .needs = {{{"lr_schedule", {"warmup_stable_decay"}}}}})
          .Add("lr_decay_type", &OptimizerConfig::lr_decay_type, "its form",
               {.choices = optim::DecayNames(),
                .needs = {{{"lr_schedule", {"warmup_stable_decay"}}}}})
          .Add("schedule_steps", &OptimizerConfig::schedule_steps, "when the schedule ends",
               {.least = 1, .unset = "with the run"})
          .Add("schedule_offset", &OptimizerConfig::schedule_offset,
               "steps that the schedule is ahead of the run; -1 and -2 are as Hugging Face's and "
               "DeepSpeed's schedulers count")
          .Add("schedule_counting", &OptimizerConfig::schedule_counting,
               "whose count of steps the schedule follows: Colossal-AI's warm-up begins one step "
               "later, FlagAI's decay is spread over all steps, and neither waits for updates that "
               "are left out for overflows",
               {.choices = optim::CountingNames()})
          .Add("schedule_by_epoch", &OptimizerConfig::schedule_by_epoch,
               "the rate changes from epoch to epoch only: `warmup_steps`, `schedule_steps` and "
               "`schedule_offset` count epochs, and all steps that begin in an epoch have its "
               "rate",
               {.aliases = {{"by_epoch", "Colossal-AI"}}})
          .Add("max_grad_norm", &OptimizerConfig::max_grad_norm,
               "clipping of the global gradient norm; 0 is off",
               {.least = 0, .aliases = {{"clip_grad", "FlagAI"}, {"max_norm", "Colossal-AI"}}}));
  return *table;
}

}  // namespace tessera::train
