// What the ZeRO engine (dist/zero/zero_engine.h) is asked for, and by which other names.
//
//   ZeroOptions options{.stage = 3, .offload_optimizer = true};
//   options.stage = *ParseShardingStrategy("shard_grad_op");                  // FSDP's names
//
// Stages (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models"): 1 shards the optimizer's states over the data-parallel ranks, 2 gradients too, 3
// parameters too.
//
// FSDP (PyTorch)                     here
//   no_shard                         stage 0: what plain data parallelism does
//   shard_grad_op                    stage 2 (parameters stay whole between steps as well)
//   full_shard                       stage 3
//   auto_wrap by class / by size     auto_wrap_classes / auto_wrap_min_params
//   backward_prefetch                backward_prefetch: kPre, kPost, kNone
//   forward_prefetch                 forward_prefetch
//   limit_all_gathers                limit_all_gathers
//   reshard_after_forward (FSDP2)    reshard_after_forward
//   cpu_offload                      offload_optimizer and offload_parameters
//   full / sharded state dict        ZeroEngine::FullStateDict / ZeroEngine::CheckpointTensors
//
// DeepSpeed's `zero_optimization`: train/config/deepspeed_config.h.
#ifndef TESSERA_DIST_ZERO_ZERO_OPTIONS_H_
#define TESSERA_DIST_ZERO_ZERO_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"

namespace tessera::dist {

// When the backward pass begins to gather the next unit's parameters.
enum class BackwardPrefetch {
  kNone,
  kPre,   // "backward_pre": before the present unit's gradients are computed
  kPost,  // "backward_post": after them; one unit less is alive
};

struct ZeroOptions {
  int stage = 1;  // 0 to 3

  // --- Gradients ---------------------------------------------------------------------------------
  // Megabytes (2^20) of gradients per bucket (stages 1 and 2; a stage 3 bucket is a unit).
  double bucket_cap_mb = 25;
  // Any number of ranks gives the bits of one process, as dist/ddp/gradient_reducer.h says. With
  // more than one micro-batch whole gradients are then kept until the last one, at every stage.
  bool deterministic = false;
  // As GradientReducer's. At stage 3 all ranks must nevertheless run the same modules.
  bool find_unused_parameters = false;
  // Otherwise gradients travel in Finish (stages 1 and 2).
  bool overlap = true;
  // What gradients travel in (float32, bfloat16 or float16); nullopt: as they are. Sums are taken
  // in float32 whatever it is. Not with `deterministic`.
  std::optional<DType> communication_dtype = std::nullopt;

  // --- Parameters (stage 3) ----------------------------------------------------------------------
  // Units are gathered and released together: modules of these classes ("TransformerBlock"), else
  // modules that have at least this many parameters outside of other units; with neither, the
  // members of the model's lists of blocks ("transformer.h.3"). What is left is gathered by the
  // module that has it.
  std::vector<std::string> auto_wrap_classes = {};
  int64_t auto_wrap_min_params = 0;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;
  bool forward_prefetch = true;
  // At most one unit is gathered ahead; otherwise as many as `prefetch_elements` allow.
  bool limit_all_gathers = true;
  int64_t prefetch_elements = 50'000'000;
  // No unit is gathered ahead that would make more elements than this alive.
  int64_t max_live_elements = 1'000'000'000;
  // Parameters with fewer elements stay gathered between uses.
  int64_t persistence_threshold = 0;
  // False keeps a unit from its forward to its backward pass.
  bool reshard_after_forward = true;

  // --- Off-load ----------------------------------------------------------------------------------
  // Optimizer states, and gradient shards, live in host memory (Device::Host()), where the CPU's
  // multi-threaded kernels update them. On a CPU that computes, host memory is an allocator of its
  // own: the same machine memory, counted and limited apart.
  bool offload_optimizer = false;
  // The share of elements (0 to 1) that is off-loaded, in whole buckets; the other states stay on
  // the device ("hybrid").
  double offload_fraction = 1.0;
  // Parameter shards as well (stage 3).
  bool offload_parameters = false;

  // Whether no rank has whole parameters between uses: whatever runs the model is collective then.
  bool shards_parameters() const { return stage == 3; }

  // InvalidArgument names the option.
  absl::Status Validate() const;
};

// "full_shard", "shard_grad_op", "no_shard" (FSDP, any case) to a stage.
absl::StatusOr<int> ParseShardingStrategy(std::string_view name);
// "backward_pre", "backward_post", "none".
absl::StatusOr<BackwardPrefetch> ParseBackwardPrefetch(std::string_view name);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_ZERO_ZERO_OPTIONS_H_
