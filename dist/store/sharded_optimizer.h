// SPDX-License-Identifier: Apache-2.0
// The optimizers of all buckets as one, each over this rank's pieces of the bucket's parameters.
//
// A bucket's optimizer lives where its states do: on the compute device, or, off-loaded, in host
// memory, where it updates a copy of the rank's share that is then sent back (or the share itself,
// when that lives there).
#ifndef TESSERA_DIST_STORE_SHARDED_OPTIMIZER_H_
#define TESSERA_DIST_STORE_SHARDED_OPTIMIZER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/store/flat_bucket.h"
#include "dist/store/store_policy.h"
#include "optim/optimizer.h"

namespace tessera::dist {

class ShardedOptimizer final : public optim::Optimizer {
 public:
  // `contents.groups`: whose parameters the slots' `group` counts in. `shares[b]`: this rank's
  // share of bucket b's parameters, undefined where it does not train. `step`: the store's.
  ShardedOptimizer(const StoreContents& contents, const std::vector<FlatBucket>& buckets,
                   std::vector<Tensor> shares, const std::vector<bool>& offloaded,
                   const OptimizerFactory& make,
                   std::function<void(const optim::StepInputs&)> step);

  const std::vector<optim::ParameterGroup>& groups() const override { return groups_; }
  Tensor learning_rate() const override { return learning_rate_; }
  Tensor step() const override { return step_; }
  void VisitState(const optim::StateVisitor& visit) const override;
  void RefreshMasterWeights() override;

  // Updates bucket b: the parameters' share, or its copy in host memory. `gradients[s]` is this
  // rank's piece of that of slot s, undefined where there is none: that parameter is left alone.
  // May run on another thread than the rest, for different buckets.
  void Update(size_t b, const std::vector<Tensor>& gradients, const optim::StepInputs& inputs);
  // The share becomes what the copy is.
  void WriteBack(size_t b);
  // Counts the step, after all buckets were updated.
  void Advance(const optim::StepInputs& inputs);
  // Copies in host memory follow the shares.
  void RefreshCopies();

  // Called with each state of a piece, the elements of the parameter that it belongs to, and, where
  // the piece is the whole parameter, how the state lies.
  using PieceVisitor =
      std::function<void(const FlatSlot& slot, const ElementRange& range, const std::string& state,
                         const Tensor& t, const Placement& placement)>;
  void VisitPieces(const PieceVisitor& visit) const;

 private:
  struct Piece {
    size_t slot;
    ElementRange range;
    Tensor leaf;
  };
  struct Part {
    std::unique_ptr<optim::Optimizer> optimizer;  // nullptr: this rank has nothing of it
    std::vector<Piece> pieces;
    Tensor share;
    Tensor copy;  // in host memory, undefined: the share itself is updated
  };
  void DoStep(const optim::StepInputs& inputs) override { step_function_(inputs); }

  const std::vector<FlatBucket>& buckets_;
  const std::function<void(const optim::StepInputs&)> step_function_;
  std::vector<optim::ParameterGroup> groups_;
  std::vector<Part> parts_;  // by bucket
  Tensor learning_rate_;
  Tensor step_;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_SHARDED_OPTIMIZER_H_
