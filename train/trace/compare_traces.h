// SPDX-License-Identifier: Apache-2.0
// Where two runs that traced digests (train/trace/digest_trace.h) part.
//
//   TESSERA_ASSIGN_OR_RETURN(const TraceComparison found, CompareTraces("runs/a", "runs/b"));
//   if (!found.difference.empty()) std::cout << found.difference << found.configurations << "\n";
//
// Of the steps that both have, and of each in the order in which a step happens: weights at the
// start, data, operations by micro-batch, pass and place, loss and norm, weights and states after
// the update. Operations are compared where both runs cut the model alike and as many ranks work on
// a micro-batch; so data-parallel layouts are compared operation by operation, while of one that
// cuts the model otherwise the rest is. Of a run that recomputes activations, or has another
// schedule, the forward pass is. A step that not all ranks have written, as they were killed, is
// none.
#ifndef TESSERA_TRAIN_TRACE_COMPARE_TRACES_H_
#define TESSERA_TRAIN_TRACE_COMPARE_TRACES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "train/trace/traced_tensor.h"

namespace tessera::train {

struct TraceComparison {
  // Step, rank, micro-batch, pass, operation and module, or what else differs first. Empty:
  // nothing.
  std::string difference;
  // " their configurations differ in lr (0.001, 0.002)"; empty: they do not.
  std::string configurations;
  // The two tensors that differ, or the gradients where the loss or their norms do; neither, where
  // something else differs or only one run has it.
  std::optional<TracedTensor> in_a, in_b;
  // Where a tensor differs after an update: the gradients of the step, which may differ although
  // their norms do not.
  std::optional<TracedTensor> gradients_in_a, gradients_in_b;
  int64_t steps = 0;      // that were compared
  int64_t only_in_a = 0;  // steps that the other run does not have
  int64_t only_in_b = 0;
  bool operations_compared = true;  // of all steps
  bool backward_compared = true;    // of these also the backward passes
};

// Whether a folder is that of a run that traced digests.
bool HasTrace(const std::string& out);
// Fails where a rank's file is missing or damaged, or no step is in both.
StatusOr<TraceComparison> CompareTraces(const std::string& a, const std::string& b);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TRACE_COMPARE_TRACES_H_
