// SPDX-License-Identifier: Apache-2.0
#include "train/config/parallel_config.h"

#include "base/options.h"
#include "dist/pipeline/schedule.h"

namespace tessera::train {

const OptionTable& ParallelConfig::Table() {
  static const auto* table = new OptionTable(
      OptionTable::Of<ParallelConfig>("Parallel runs")
          .Add("tp", &ParallelConfig::tp,
               "tensor-parallel ranks: each holds a share of every layer",
               {.least = 1,
                .changes_results = false,
                .aliases = {{"model_parallel_size", "FlagAI"}, {"tp_size", "Colossal-AI"}}})
          .Add("sequence_parallel", &ParallelConfig::sequence_parallel,
               "norms, dropout and residuals on shares of the sequence, beside `tp`",
               {.changes_results = false,
                .aliases = {{"enable_sequence_parallelism", "Colossal-AI"}}})
          .Add("cp", &ParallelConfig::cp,
               "context-parallel ranks: each holds a share of every row's tokens; divides the "
               "data-parallel ranks ([distributed.md](distributed.md#context-parallelism))",
               {.least = 1, .changes_results = false})
          .Add("ep", &ParallelConfig::ep,
               "expert-parallel ranks: each holds a share of every layer's experts; divides the "
               "data-parallel ranks ([distributed.md](distributed.md#expert-parallelism))",
               {.least = 1, .changes_results = false, .aliases = {{"ep_size", "Colossal-AI"}}})
          .Add("pp", &ParallelConfig::pp, "pipeline stages: each holds a run of the blocks",
               {.least = 1, .changes_results = false, .aliases = {{"pp_size", "Colossal-AI"}}})
          .Add("schedule", &ParallelConfig::schedule,
               "of the pipeline ([distributed.md](distributed.md#pipeline))",
               {.choices = dist::ScheduleNames(),
                .changes_results = false,
                .values = {{"zero_bubble", "zb-h1"}}})
          .Add("num_model_chunks", &ParallelConfig::num_model_chunks,
               "chunks of the model on each pipeline rank",
               {.least = 1, .unset = "1; 2 with `interleaved`", .changes_results = false})
          .Add("env_type", &ParallelConfig::env_type,
               "what the run is: one process; data parallel with `zero` 0; with a `zero` that is "
               "given, as a number or by a DeepSpeed file; the same with `tp`. Settings that "
               "contradict it are refused",
               {.choices = {"single", "ddp", "zero", "zero+tp"},
                .unset = "any",
                .changes_results = false,
                .values = {{"pytorch", "single"},
                           {"pytorchDDP", "ddp"},
                           {"deepspeed", "zero"},
                           {"deepspeed+mpu", "zero+tp"}}})
          .Add("bucket_cap_mb", &ParallelConfig::bucket_cap_mb,
               "megabytes (2^20) of gradients that ranks sum in one message",
               {.above = 0,
                .needs = {{{"zero", {"0", "1", "2"}}}},
                .changes_results = false,
                .aliases = {{"ddp_bucket_cap_mb", "Colossal-AI, Hugging Face"}}})
          .Add("overlap_comm", &ParallelConfig::overlap_comm,
               "sum gradients while the backward pass still runs",
               {.changes_results = false, .aliases = {{"overlap_communication", "Colossal-AI"}}})
          .Add("find_unused_parameters", &ParallelConfig::find_unused_parameters,
               "parameters without gradient on some ranks count as zero there; otherwise they are "
               "an error",
               {.changes_results = false,
                .aliases = {{"ddp_find_unused_parameters", "Hugging Face"}}})
          .Add("static_graph", &ParallelConfig::static_graph,
               "messages follow the order in which the first step brought the gradients",
               {.needs = {{{"zero", {"0"}}}},
                .changes_results = false,
                .aliases = {{"ddp_static_graph", "Hugging Face"}}})
          .Add("check_reduction", &ParallelConfig::check_reduction,
               "compares the summed gradients over the ranks after every step",
               {.needs = {{{"zero", {"0"}}}}, .changes_results = false})
          .Add("gradient_as_bucket_view", &ParallelConfig::gradient_as_bucket_view,
               "gradients lie in the messages themselves, instead of being copied",
               {.needs = {{{"zero", {"0"}}}}, .changes_results = false})
          .Add("offload_activations", &ParallelConfig::offload_activations,
               "what the backward pass needs is kept in host memory; with "
               "`checkpoint_activations` the inputs of blocks",
               {.changes_results = false})
          .Add("partition_activations", &ParallelConfig::partition_activations,
               "that is shared out over the `tp` ranks (without `sequence_parallel`, which has "
               "done so)",
               {.needs = {{{"sequence_parallel", {"false"}}}}, .changes_results = false})
          .Add("check_collectives", &ParallelConfig::check_collectives,
               "compares every collective call over the ranks before it starts",
               {.changes_results = false})
          .Add("collective_timeout", &ParallelConfig::collective_timeout,
               "seconds after which a collective that waits ends the job, naming the missing ranks",
               {.least = 1e-3,
                .changes_results = false,
                .aliases = {{"ddp_timeout", "Hugging Face"}}}));
  return *table;
}

}  // namespace tessera::train
