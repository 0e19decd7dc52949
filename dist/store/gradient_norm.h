// SPDX-License-Identifier: Apache-2.0
// The norm of a step's gradients, wherever they lie, with the bits of one process.
//
//   GradientNorm norm(parameters, groups, stage, device);
//   Tensor squared = norm.SquaredNorm(pieces);       // 0-d float64, on every rank
//
// Every rank measures what it has, the sums come together over all of them, and are rounded once
// (optim/clip.h): whoever measures which part changes no bit. Of ranks that have the same elements
// one counts them.
#ifndef TESSERA_DIST_STORE_GRADIENT_NORM_H_
#define TESSERA_DIST_STORE_GRADIENT_NORM_H_

#include <memory>
#include <vector>

#include "core/tensor.h"
#include "dist/pipeline/stage.h"
#include "dist/store/store_setup.h"

namespace tessera::dist {

// A parameter as norms see it.
struct MeasuredParameter {
  // Of the stages that hold the parameter, and of the tensor-parallel ranks that hold the same
  // elements of it, one counts them.
  bool counted = true;
  std::shared_ptr<Communicator> ranks;  // of StoreGroups: those that hold the same part
  // Whether those ranks share out the gradient's elements; else each of them has all of it.
  bool cut = false;
};

class GradientNorm {
 public:
  // `stage`: of a pipeline, or nullptr.
  GradientNorm(std::vector<MeasuredParameter> parameters, const StoreGroups& groups,
               const Stage* stage, const Device& device);

  // 0-d float64: the sum of squares over all ranks. `gradients[i]`: what this rank has of that of
  // parameter i (its piece, on the device or in host memory); undefined where there is none, on all
  // ranks alike. Collective over all groups.
  Tensor SquaredNorm(const std::vector<Tensor>& gradients) const;

 private:
  bool Counts(const MeasuredParameter& parameter) const;

  const std::vector<MeasuredParameter> parameters_;
  const StoreGroups groups_;
  const Stage* const stage_;
  const Device device_;
  const bool joins_;  // data-parallel ranks measure different elements
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_GRADIENT_NORM_H_
