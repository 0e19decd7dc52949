// SPDX-License-Identifier: Apache-2.0
// An operation graph (ops/attention/sdpa_graph.h) as a plan that cuDNN runs in its fused kernels.
//
//   auto plan = CudnnPlan::Build(SdpaForwardGraph(shape), *CudnnPropertiesOfActiveDevice(), limit);
//   if (plan.ok()) {
//     const Workspace workspace(plan->workspace_bytes());
//     status = plan->Run({SdpaUid::kQ, ...}, {q, ...}, workspace.data());
//   }
#ifndef TESSERA_OPS_ATTENTION_CUDNN_PLAN_H_
#define TESSERA_OPS_ATTENTION_CUDNN_PLAN_H_

#include <string>
#include <vector>

#include "core/cuda/cudnn.h"
#include "ops/attention/sdpa_graph.h"

namespace tessera::cuda {

class CudnnPlan {
 public:
  // The first engine of cuDNN's own order that compiles for `device`, gives the same bits every
  // time, sums in float32 and takes no more than `workspace_limit` bytes; otherwise why there is
  // none. Compiling takes from milliseconds to seconds.
  static StatusOr<CudnnPlan> Build(const OperationGraph& graph, const CudnnDescriptor& device,
                                   size_t workspace_limit);

  size_t workspace_bytes() const { return workspace_bytes_; }
  int64_t engine() const { return engine_; }

  // On the current stream. `pointers` are those of `uids`: on the GPU, or on the host for tensors
  // by value, which may change as soon as this returns.
  Status Run(const std::vector<int64_t>& uids, const std::vector<const void*>& pointers,
             void* workspace) const;

 private:
  CudnnPlan(std::vector<CudnnDescriptor> parts, CudnnDescriptor plan)
      : parts_(std::move(parts)), plan_(std::move(plan)) {}

  std::vector<CudnnDescriptor> parts_;  // what the plan was made of lives as long as it
  CudnnDescriptor plan_;
  size_t workspace_bytes_ = 0;
  int64_t engine_ = 0;
};

}  // namespace tessera::cuda

#endif  // TESSERA_OPS_ATTENTION_CUDNN_PLAN_H_
