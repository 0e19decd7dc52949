// SPDX-License-Identifier: Apache-2.0
// A tensor that a run's digests (train/trace/digest_trace.h) tell of, and the tensor itself where
// its step is taken again.
//
//   TESSERA_ASSIGN_OR_RETURN(const TraceComparison found, CompareTraces("runs/a", "runs/b"));
//   if (found.in_a) {
//     TESSERA_ASSIGN_OR_RETURN(const std::vector<RetakenTensor> of_a,
//                              Retake("runs/a", *found.in_a));
//   }
#ifndef TESSERA_TRAIN_TRACE_TRACED_TENSOR_H_
#define TESSERA_TRAIN_TRACE_TRACED_TENSOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/tape_watcher.h"
#include "base/status.h"
#include "core/tensor.h"

namespace tessera::train {

struct TracedTensor {
  enum class Kind {
    kOperation,  // a result, or the gradient for an input
    kData,       // all tensors of a micro-batch
    kState,      // a weight or a state of the optimizer, after the step
  };
  Kind kind = Kind::kOperation;
  int64_t step = 0;
  int64_t rank = 0;
  int64_t ranks = 1;    // of the run
  uint64_t digest = 0;  // that the run wrote

  // Of an operation, and the micro-batch also of data; counted over the whole step.
  PassPlace place = {};  // without `operation`
  std::string operation = {};
  std::string module = {};
  bool gradient = false;
  int64_t index = 0;
  int64_t occurrence = 0;  // how many of all these came before it

  // Of a state.
  std::string name = {};
  std::string part = {};  // PartDigest::part
};

// Some elements of a tensor: those from `offset` on of a box, in row-major order.
struct RetakenTensor {
  std::string name = {};  // of data
  Tensor data;            // on the CPU
  Shape begin;            // of the box, in the whole tensor
  Shape size;             // of the box
  int64_t offset = 0;

  // Where `data`'s element i is in the whole tensor.
  Shape PlaceOf(int64_t i) const;
};

// Takes the steps of the run in `out` again, from its newest checkpoint before that step or from
// its beginning, on as many ranks as the run had, which are threads of this process, and gives what
// `wanted` names. The run's folder gets nothing new. Fails where the run's configuration, data or
// model are not there, or where this program gives other bits than the run had.
StatusOr<std::vector<RetakenTensor>> Retake(const std::string& out, const TracedTensor& wanted);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TRACE_TRACED_TENSOR_H_
