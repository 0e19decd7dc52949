// SPDX-License-Identifier: Apache-2.0
// A tensor that a run's digests (train/trace/digest_trace.h) tell of, and the tensor itself where
// its step is taken again.
//
//   TESSERA_ASSIGN_OR_RETURN(const TraceComparison found, CompareTraces("runs/a", "runs/b"));
//   if (found.in_a) {
//     TESSERA_ASSIGN_OR_RETURN(const std::vector<RetakenTensor> of_a,
//                              Retake("runs/a", *found.in_a));
//   }
//
// The ranks of a run cut weights, states and gradients as their layout wants. They are put together
// here, so that an element has the same index in every layout.
#ifndef TESSERA_TRAIN_TRACE_TRACED_TENSOR_H_
#define TESSERA_TRAIN_TRACE_TRACED_TENSOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/tape_watcher.h"
#include "base/status.h"
#include "core/tensor.h"
#include "dist/checkpoint/pieces.h"

namespace tessera::train {

struct TracedTensor {
  enum class Kind {
    kOperation,  // a result, or the gradient for an input
    kData,       // all tensors of a micro-batch
    kState,      // a weight or a state of the optimizer, after the step
    kGradients,  // of all parameters, summed over the micro-batches and ranks of the step
  };
  Kind kind = Kind::kOperation;
  int64_t step = 0;
  int64_t rank = 0;
  int64_t ranks = 1;  // of the run
  // What the run wrote: a digest (train/trace/digest.h), of a state that of the whole tensor; of
  // gradients the bits of their norm.
  uint64_t digest = 0;

  // Of an operation, and the micro-batch also of data; counted over the whole step.
  PassPlace place = {};  // without `operation`
  std::string operation = {};
  std::string module = {};
  bool gradient = false;
  int64_t index = 0;
  int64_t occurrence = 0;  // how many of all these came before it

  std::string name = {};  // of a state
};

// The elements of a tensor that one rank holds.
struct TensorPart {
  std::string name = {};
  Tensor data;        // on the CPU, of piece.shape()
  dist::Piece piece;  // which elements of the whole tensor
  Shape whole;        // the shape of the whole tensor
};
TensorPart WholePart(const std::string& name, const Tensor& t);
std::vector<TensorPart> PartsOf(const dist::CheckpointTensor& t);

// A whole tensor, on the CPU.
struct RetakenTensor {
  std::string name = {};  // of data, a state or a parameter
  Tensor data;
};

// Puts parts together, in the order in which the names come first. Parts may overlap; a tensor with
// a missing element is left out.
std::vector<RetakenTensor> Assemble(const std::vector<TensorPart>& parts);

// The index of element i of a tensor in row-major order: [2, 17].
Shape IndexOf(int64_t i, const Shape& shape);

// Takes the steps of the run in `out` again, from its newest checkpoint before that step or from
// its beginning, on as many ranks as the run had, which are threads of this process, and gives what
// `wanted` names; empty where this program gives other bits than the run had. Gradients come
// from the model's end, and are taken with whole gradients on every data-parallel rank (zero 0).
// The run's folder gets nothing new. Fails where the run's configuration, data or model are
// missing.
StatusOr<std::vector<RetakenTensor>> Retake(const std::string& out, const TracedTensor& wanted);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TRACE_TRACED_TENSOR_H_
