// SPDX-License-Identifier: Apache-2.0
#include "dist/store/zero_options.h"

#include <algorithm>
#include <cctype>

namespace tessera::dist {
namespace {

std::string Lower(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

}  // namespace

Status ZeroOptions::Validate() const {
  if (stage < 0 || stage > 3) return InvalidArgument("zero: stage ", stage, " is not 0 to 3");
  if (!(bucket_cap_mb > 0)) return InvalidArgument("zero: bucket_cap_mb is ", bucket_cap_mb);
  if (auto_wrap_min_params < 0 || prefetch_elements < 0 || max_live_elements < 1 ||
      persistence_threshold < 0) {
    return InvalidArgument("zero: a number of elements is negative");
  }
  if (!auto_wrap_classes.empty() && auto_wrap_min_params > 0) {
    return InvalidArgument("zero: auto_wrap_classes and auto_wrap_min_params exclude each other");
  }
  if (!(offload_fraction >= 0 && offload_fraction <= 1)) {
    return InvalidArgument("zero: offload_fraction ", offload_fraction, " is not from 0 to 1");
  }
  if (stage == 0 && (offload_optimizer || offload_parameters)) {
    return InvalidArgument("zero: off-loading needs stage 1, 2 or 3");
  }
  if (stage > 0 && (static_graph || check_reduction || !gradient_as_bucket_view)) {
    return InvalidArgument(
        "zero: static_graph, check_reduction and gradient_as_bucket_view are stage 0's");
  }
  if (stage < 3 && offload_parameters) {
    return InvalidArgument("zero: off-loading parameters needs stage 3, not ", stage);
  }
  if (offload_parameters && (!offload_optimizer || offload_fraction < 1)) {
    return InvalidArgument(
        "zero: off-loading parameters needs all of the optimizer's states off-loaded too");
  }
  if (communication_dtype) {
    if (deterministic) {
      return InvalidArgument("zero: communication_dtype does not go with deterministic");
    }
    if (!IsHalf(*communication_dtype) && *communication_dtype != DType::kFloat32) {
      return InvalidArgument("zero: communication_dtype must be float32, bfloat16 or float16");
    }
    if (stage == 0) return InvalidArgument("zero: communication_dtype needs stage 1, 2 or 3");
  }
  return OkStatus();
}

StatusOr<int> ParseShardingStrategy(std::string_view name) {
  const std::string lower = Lower(name);
  if (lower == "no_shard") return 0;
  if (lower == "shard_grad_op") return 2;
  if (lower == "full_shard") return 3;
  return InvalidArgument("sharding strategy '", name,
                         "' is not known; use full_shard, shard_grad_op or no_shard");
}

StatusOr<BackwardPrefetch> ParseBackwardPrefetch(std::string_view name) {
  const std::string lower = Lower(name);
  if (lower == "none") return BackwardPrefetch::kNone;
  if (lower == "backward_pre") return BackwardPrefetch::kPre;
  if (lower == "backward_post") return BackwardPrefetch::kPost;
  return InvalidArgument("backward_prefetch '", name,
                         "' is not known; use backward_pre, backward_post or none");
}

}  // namespace tessera::dist
