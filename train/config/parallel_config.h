// The part of a run's configuration that says how its work is laid out over ranks: dp is what tp
// and pp leave of them. Layouts change how fast a run is and what it needs, not what it computes.
#ifndef TESSERA_TRAIN_CONFIG_PARALLEL_CONFIG_H_
#define TESSERA_TRAIN_CONFIG_PARALLEL_CONFIG_H_

#include <cstdint>
#include <string>

namespace tessera::train {

struct ParallelConfig {
  std::string env_type;  // single, ddp, zero, zero+tp; empty: as the other keys say
  int64_t tp = 1;
  bool sequence_parallel = false;
  bool deterministic = false;

  // Sums over data-parallel ranks (dist/store/gradient_lanes.h).
  double bucket_cap_mb = 25;
  bool overlap_comm = true;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool check_reduction = false;
  bool gradient_as_bucket_view = true;

  // Pipelines (dist/pipeline/schedule.h).
  int64_t pp = 1;
  std::string schedule;          // empty: 1f1b
  int64_t num_model_chunks = 0;  // per rank; 0: 2 where the schedule interleaves, else 1

  // ZeRO (dist/store/zero_options.h).
  int64_t zero = 0;
  std::string communication_dtype;  // empty: gradients travel as they are
  bool cpu_offload = false;         // optimizer states in host memory
  double offload_fraction = 1;      // the share of them
  bool offload_parameters = false;
  std::string auto_wrap_classes;  // with commas between
  int64_t auto_wrap_min_params = 0;
  std::string backward_prefetch = "backward_pre";
  bool forward_prefetch = true;
  bool limit_all_gathers = true;
  bool reshard_after_forward = true;
  int64_t prefetch_elements = 50'000'000;
  int64_t max_live_elements = 1'000'000'000;
  int64_t persistence_threshold = 0;

  // What is kept for the backward pass (dist/activations/activation_store.h).
  bool offload_activations = false;
  bool partition_activations = false;

  bool check_collectives = false;
  double collective_timeout = 600;  // seconds
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_PARALLEL_CONFIG_H_
