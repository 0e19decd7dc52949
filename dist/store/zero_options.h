// SPDX-License-Identifier: Apache-2.0
// A parameter store's policy (dist/store/parameter_store.h), and by which other names it is known.
//
//   ZeroOptions options{.stage = 3, .offload_optimizer = true};
//   options.stage = *ParseShardingStrategy("shard_grad_op");                  // FSDP's names
//
// Stages (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models"): 0 replicates everything on the data-parallel ranks, 1 shards the optimizer's states
// over them, 2 gradients too, 3 parameters too.
//
// FSDP (PyTorch)                     here
//   no_shard                         stage 0: plain data parallelism
//   shard_grad_op                    stage 2 (parameters stay whole between steps as well)
//   full_shard                       stage 3
//   auto_wrap by class / by size     auto_wrap_classes / auto_wrap_min_params
//   backward_prefetch                backward_prefetch: kPre, kPost, kNone
//   forward_prefetch                 forward_prefetch
//   limit_all_gathers                limit_all_gathers
//   reshard_after_forward (FSDP2)    reshard_after_forward
//   cpu_offload                      offload_optimizer and offload_parameters
//   full / sharded state dict        ParameterStore::FullStateDict / CheckpointTensors
//
// DeepSpeed's `zero_optimization`: train/foreign/deepspeed_config.h.
#ifndef TESSERA_DIST_STORE_ZERO_OPTIONS_H_
#define TESSERA_DIST_STORE_ZERO_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/dtype.h"

namespace tessera::dist {

// When the backward pass begins to gather the next unit's parameters.
enum class BackwardPrefetch {
  kNone,
  kPre,   // "backward_pre": before the present unit's gradients are computed
  kPost,  // "backward_post": after them; one unit less is alive
};

struct ZeroOptions {
  int stage = 1;  // 0 to 3
  bool replicates() const { return stage == 0; }
  bool shards_gradients() const { return stage >= 2; }
  bool shards_parameters() const { return stage == 3; }

  // --- Gradients ---------------------------------------------------------------------------------
  // Megabytes (2^20) of gradients per bucket (a stage 3 bucket is a unit).
  double bucket_cap_mb = 25;
  // Any number of ranks gives the bits of one process, as dist/store/gradient_lanes.h says. With
  // more than one micro-batch whole gradients are then kept until the last one, at every stage.
  bool deterministic = false;
  // Some ranks may have no gradient for some leaves: those count as zero there, and a leaf without
  // gradient on every rank has none. Otherwise a leaf without gradient is an error that names it.
  // At stage 3 all ranks must nevertheless run the same modules.
  bool find_unused_parameters = false;
  // Otherwise gradients travel when the step's backward passes are over.
  bool overlap = true;
  // Stage 0: the same leaves in the same order in every step; buckets follow the order in which the
  // gradients of the first step came on rank 0.
  bool static_graph = false;
  // Stage 0: after every step compares the checksums of all buckets over the ranks; throws Error
  // that names the ranks and the first leaf of a bucket that differs.
  bool check_reduction = false;
  // Stage 0: otherwise leaves keep gradients of their own, which are copied to the buckets and
  // back. Of a sharded leaf they always lie in the bucket.
  bool gradient_as_bucket_view = true;
  // What gradients travel in (float32, bfloat16 or float16); nullopt: as they are. Sums are taken
  // in float32 whatever it is. Not with `deterministic`.
  std::optional<DType> communication_dtype = std::nullopt;

  // --- Parameters (stage 3) ----------------------------------------------------------------------
  // Units are gathered and released together: modules of these kinds ("TransformerBlock"), else
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

  // --- Checkpoints -------------------------------------------------------------------------------
  // False leaves out parameters that do not train: whoever resumes has them, as an adapter's base.
  bool frozen_in_checkpoints = true;

  // --- Off-load ----------------------------------------------------------------------------------
  // Optimizer states, and gradient shards, live in host memory (dist/store/host_memory.h), where
  // the CPU's multi-threaded kernels update them. On a CPU that computes, host memory is an
  // allocator of its own: the same machine memory, counted and limited apart.
  bool offload_optimizer = false;
  // The share of elements (0 to 1) that is off-loaded, in whole buckets; the other states stay on
  // the device ("hybrid").
  double offload_fraction = 1.0;
  // Parameter shards as well (stage 3).
  bool offload_parameters = false;

  // InvalidArgument names the option.
  Status Validate() const;
};

// What `deterministic` asks of the numbers of ranks and of micro-batches.
inline bool IsPowerOfTwo(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

// "full_shard", "shard_grad_op", "no_shard" (FSDP, any case) to a stage.
StatusOr<int> ParseShardingStrategy(std::string_view name);
// "backward_pre", "backward_post", "none".
StatusOr<BackwardPrefetch> ParseBackwardPrefetch(std::string_view name);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_ZERO_OPTIONS_H_
