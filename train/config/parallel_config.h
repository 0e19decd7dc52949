// SPDX-License-Identifier: Apache-2.0
// How a run's work is laid out over ranks: dp is what tp and pp leave of them; cp and ep divide dp.
// Layouts change how fast a run is and what it needs, not what it computes.
#ifndef TESSERA_TRAIN_CONFIG_PARALLEL_CONFIG_H_
#define TESSERA_TRAIN_CONFIG_PARALLEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/options_fwd.h"

namespace tessera::train {

struct ParallelConfig {
  std::string env_type;  // any
  int64_t tp = 1;
  bool sequence_parallel = false;

  int64_t cp = 1;
  int64_t ep = 1;

  int64_t pp = 1;
  std::string schedule = "1f1b";
  std::optional<int64_t> num_model_chunks;

  // Sums over data-parallel ranks (dist/store/gradient_lanes.h).
  double bucket_cap_mb = 25;
  bool overlap_comm = true;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool check_reduction = false;
  bool gradient_as_bucket_view = true;

  // What is kept for the backward pass (dist/activations/activation_store.h).
  bool offload_activations = false;
  bool partition_activations = false;

  bool check_collectives = false;
  double collective_timeout = 600;  // seconds

  static const OptionTable& Table();
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_PARALLEL_CONFIG_H_
