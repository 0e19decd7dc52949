// SPDX-License-Identifier: Apache-2.0
#include "train/config/report_config.h"

#include "base/options.h"
#include "nlohmann/json.hpp"

namespace tessera::train {

const OptionTable& ReportConfig::Table() {
  const std::vector<std::string> levels = {"debug", "info", "warning", "error"};
  const std::vector<std::string> times = {"steps", "epoch", "no"};
  const std::vector<OptionValue> evaluates = {{"eval_strategy", {"steps", "epoch"}}};
  const std::vector<OptionValue> judged = {{"load_best_model_at_end", {"true"}},
                                           {"early_stopping_patience"}};
  // Hugging Face's other names.
  const std::vector<std::pair<std::string, std::string>> names = {
      {"detail", "debug"}, {"passive", ""}, {"critical", "error"}};
  static const auto* table = new OptionTable(
      OptionTable::Of<ReportConfig>("Reports and checkpoints")
          .Add("log_interval", &ReportConfig::log_interval,
               "steps between rows of metrics; below 1 a share of all steps",
               {.above = 0,
                .changes_results = false,
                .aliases = {{"logging_steps", "Hugging Face"}}})
          .Add("log_strategy", &ReportConfig::log_strategy,
               "rows every `log_interval` steps, after every pass over the data, or at the end "
               "only",
               {.choices = times,
                .changes_results = false,
                .aliases = {{"logging_strategy", "Hugging Face"}}})
          .Add("eval_interval", &ReportConfig::eval_interval,
               "steps between evaluations; below 1 a share of all steps; 0: at the end",
               {.least = 0, .changes_results = false, .aliases = {{"eval_steps", "Hugging Face"}}})
          .Add("eval_strategy", &ReportConfig::eval_strategy,
               "evaluations every `eval_interval` steps and at the end, after every pass over "
               "the data, or none",
               {.choices = times,
                .changes_results = false,
                .aliases = {{"evaluation_strategy", "Hugging Face"}}})
          .Add("eval_batches", &ReportConfig::eval_batches,
               "rows per evaluation, as multiples of a step's (batch_size * "
               "gradient_accumulation_steps * data-parallel ranks); 0: all",
               {.least = 0, .changes_results = false, .aliases = {{"eval_iters", "Megatron-LM"}}})
          .Add("save_interval", &ReportConfig::save_interval,
               "steps between checkpoints; below 1 a share of all steps; 0: at the end",
               {.least = 0, .changes_results = false, .aliases = {{"save_steps", "Hugging Face"}}})
          .Add("save_strategy", &ReportConfig::save_strategy,
               "checkpoints every `save_interval` steps and at the end, after every pass over the "
               "data, or none but when the run is stopped",
               {.choices = times, .changes_results = false})
          .Add("num_checkpoints", &ReportConfig::num_checkpoints,
               "newest checkpoints that are kept; 0: all",
               {.least = 0,
                .changes_results = false,
                .aliases = {{"save_total_limit", "Hugging Face"}}})
          .Add("async_save", &ReportConfig::async_save,
               "write checkpoints while training continues; a step waits for the copy only",
               {.changes_results = false})
          .Add("early_stopping_patience", &ReportConfig::early_stopping_patience,
               "ends the run after so many evaluations in a row without a better "
               "`metric_for_best_model`",
               {.least = 1, .unset = "off", .needs = {evaluates}})
          .Add("early_stopping_threshold", &ReportConfig::early_stopping_threshold,
               "by how much the metric must be better to count",
               {.least = 0, .needs = {{{"early_stopping_patience"}}}})
          .Add("load_best_model_at_end", &ReportConfig::load_best_model_at_end,
               "the model that is written is the best one by `metric_for_best_model`: an "
               "evaluation that finds a better one saves a checkpoint, which is kept beside the "
               "newest",
               {.needs = {evaluates}})
          .Add("metric_for_best_model", &ReportConfig::metric_for_best_model,
               "`loss` or a metric of the task, with or without `eval_` before it",
               {.needs = {judged}})
          .Add("greater_is_better", &ReportConfig::greater_is_better,
               "whether a greater metric is a better one",
               {.unset = "but for losses and `mse`", .needs = {judged}})
          .Add("report_to", &ReportConfig::report_to,
               "other forms of the rows of `metrics.jsonl`, below `out`: `tensorboard` (event "
               "files in `tensorboard/`, with tags such as `train/loss` and `eval/loss`), `csv` "
               "(`metrics.csv`); `all`: both, `none`: neither",
               {.choices = {"tensorboard", "csv"}, .changes_results = false})
          .Add("sample_prompts", &ReportConfig::sample_prompts,
               "texts that the model continues at every evaluation: shown, and kept in "
               "`samples.jsonl`; given several times for several",
               {.unset = "none", .needs = {evaluates}, .changes_results = false})
          .Add("sample_tokens", &ReportConfig::sample_tokens, "new tokens of each at most",
               {.least = 1, .needs = {{{"sample_prompts"}}}, .changes_results = false})
          .Add("trace", &ReportConfig::trace,
               "`digests`: <out>/digests gets a digest of every result, gradient and weight of "
               "every "
               "step, which `tessera diff` compares. Slow",
               {.choices = {"", "digests"},
                .needs = {{{"check_finite", {"false"}}}},
                .changes_results = false})
          .Add("profile", &ReportConfig::profile,
               "a file for a Chrome trace (chrome://tracing, ui.perfetto.dev) of some steps: "
               "modules, nodes of the backward pass, kernels, memory; and `profile_summary`. Ranks "
               "other than 0 write `NAME.rank<r>.EXT`",
               {.type = "FILE", .unset = "none", .changes_results = false})
          .Add("profile_summary", &ReportConfig::profile_summary,
               "prints where the time of a step goes: of each kind of kernel the time, the rate, "
               "and its share of what this machine can do at most, which is measured then",
               {.changes_results = false})
          .Add("profile_after", &ReportConfig::profile_after,
               "steps of this process before those that are profiled",
               {.least = 0,
                .needs = {{{"profile"}, {"profile_summary", {"true"}}}},
                .changes_results = false})
          .Add("profile_steps", &ReportConfig::profile_steps, "how many steps are profiled",
               {.least = 1,
                .needs = {{{"profile"}, {"profile_summary", {"true"}}}},
                .changes_results = false})
          .Add("wall_clock_breakdown", &ReportConfig::wall_clock_breakdown,
               "adds `data_ms`, `forward_ms`, `backward_ms`, `pipeline_ms`, `reduce_ms`, "
               "`optimizer_ms` (per "
               "step) to the rows; a pipeline writes `pipeline.json`, what each stage computed "
               "when",
               {.changes_results = false})
          .Add("log_level", &ReportConfig::log_level, "of the rank that prints",
               {.choices = levels, .changes_results = false, .values = names})
          .Add(
              "log_level_replica", &ReportConfig::log_level_replica,
              "of the other ranks, which put their rank before each line; a warning that all ranks "
              "have is not repeated",
              {.choices = levels, .changes_results = false, .values = names})
          .Add("log_on_each_node", &ReportConfig::log_on_each_node,
               "one rank of every host speaks at `log_level`", {.changes_results = false})
          .Add("progress_bar", &ReportConfig::progress_bar,
               "on a terminal, a bar for every pass over the data; otherwise lines",
               {.changes_results = false}));
  return *table;
}

}  // namespace tessera::train
