// SPDX-License-Identifier: Apache-2.0
#include "train/config/steps_config.h"

#include "base/options.h"

namespace tessera::train {

const std::vector<std::string>& DialectNames() {
  static const auto* names = new std::vector<std::string>{
      "tessera", "hugging-face", "deepspeed", "colossal-ai", "flagai", "megatron"};
  return *names;
}

const OptionTable& StepsConfig::Table() {
  static const auto* table = new OptionTable(
      OptionTable::Of<StepsConfig>("Steps")
          .Add("dialect", &StepsConfig::dialect,
               "the system whose defaults hold where nothing is said "
               "([migration.md](migration.md#dialects)); without it, the system whose names are "
               "used",
               {.choices = DialectNames(), .changes_results = false})
          .Add("out", &StepsConfig::out, "the run's directory",
               {.type = "DIR",
                .changes_results = false,
                .aliases = {{"save_dir", "FlagAI"}, {"output_dir", "Hugging Face"}}})
          .Add("max_steps", &StepsConfig::max_steps, "optimizer steps; wins over `epochs`",
               {.least = 1, .unset = "by `epochs`"})
          .Add("epochs", &StepsConfig::epochs, "passes over the data",
               {.above = 0, .most = 1e9, .aliases = {{"num_train_epochs", "Hugging Face"}}})
          .Add("batch_size", &StepsConfig::batch_size,
               "rows of one forward pass, on each data-parallel rank",
               {.least = 1,
                .most = 1 << 20,
                .changes_results = false,
                .evaluation = true,
                .aliases = {{"per_device_train_batch_size", "Hugging Face"},
                            {"per_gpu_train_batch_size", "Hugging Face"}}})
          .Add("gradient_accumulation_steps", &StepsConfig::gradient_accumulation_steps,
               "forward passes per optimizer step",
               {.least = 1, .most = 1 << 20, .changes_results = false})
          .Add("loss_average", &StepsConfig::loss_average,
               "what a step's loss is the mean of: its `targets` (tokens or rows, so that it is "
               "the same on every layout), or the means of its `micro_batches` on all ranks, as "
               "loops over PyTorch, DeepSpeed, FlagAI and Colossal-AI have it; `trainer` is "
               "transformers' Trainer: targets for GPT-2, Llama and their like, micro-batches for "
               "other models",
               {.choices = {"targets", "micro_batches", "trainer"}})
          .Add("seq_len", &StepsConfig::seq_len, "tokens per row",
               {.least = 1,
                .most = 1 << 24,
                .unset = "the model's",
                .evaluation = true,
                .aliases = {{"max_seq_length", "Hugging Face"}}})
          .Add("shuffle", &StepsConfig::shuffle, "visit the data in a random order",
               {.aliases = {{"shuffle_dataset", "FlagAI"}}})
          .Add("seed", &StepsConfig::seed, "of initialisation, data order and dropout",
               {.least = 0, .evaluation = true})
          .Add("data_seed", &StepsConfig::data_seed, "of the data's order alone",
               {.least = 0, .unset = "`seed`"})
          .Add(
              "group_by_length", &StepsConfig::group_by_length,
              "batches of samples of like lengths, so that less is padded: the samples of every 50 "
              "steps are sorted, the longest first")
          .Add("drop_last", &StepsConfig::drop_last,
               "an epoch has as many whole steps as its samples fill (whole micro-batches of all "
               "ranks, where join_epochs is off); the rest of its order is not drawn. Without it "
               "epochs run on without a break, a step may hold the end of one and the beginning "
               "of the next, and the run's last step the rest",
               {.aliases = {{"dataloader_drop_last", "Hugging Face"}}})
          .Add(
              "join_epochs", &StepsConfig::join_epochs,
              "a step may have samples of two epochs. With false no step has: an epoch's last step "
              "takes the remaining samples, as PyTorch's loaders do")
          .Add("time_limit", &StepsConfig::time_limit,
               "seconds after which the run saves and stops",
               {.least = 0, .unset = "none", .changes_results = false})
          .Add("on_non_finite", &StepsConfig::on_non_finite,
               "where the loss or the gradients' norm is no number (beside overflows that loss "
               "scaling skips, unless 20 come in a row at a scale that cannot fall): `stop` with "
               "exit "
               "1 and the last good checkpoint, `skip` the update, or `continue`",
               {.choices = {"stop", "skip", "continue"}})
          .Add("check_finite", &StepsConfig::check_finite,
               "look through what every operation and every gradient function gives, and stop at "
               "the first that is no number, with the operation, its module, its operands and the "
               "samples. Slow; without it a run that stops takes its last step again to look",
               {.needs = {{{"dtype", {"float32", "bfloat16"}}},
                          {{"autocast", {""}}, {"autocast", {"bfloat16"}}},
                          {{"on_non_finite", {"stop"}}}},
                .changes_results = false,
                .aliases = {{"detect_anomaly", "PyTorch"}}})
          .Add("spike_factor", &StepsConfig::spike_factor,
               "name the samples of a step whose loss is more than this many times the mean of "
               "about the last 20 steps, and stop the run; with on_non_finite `skip` or "
               "`continue`, print a warning instead. The first 10 steps are let pass; 0: do not "
               "look",
               {.least = 0})
          .Add("overwrite", &StepsConfig::overwrite,
               "begin afresh in an `out` that holds an earlier run's checkpoints, metrics or "
               "model, which are removed",
               {.changes_results = false, .aliases = {{"overwrite_output_dir", "Hugging Face"}}}));
  return *table;
}

}  // namespace tessera::train
