// SPDX-License-Identifier: Apache-2.0
// The gradients of a step: collected in flat lanes, and summed over ranks while backward still runs
// (Li et al. 2020, "PyTorch Distributed").
//
//   GradientLanes lanes(std::move(layouts), {.deterministic = true});
//   lanes.BeginStep(micro_batches);
//   for (int64_t m = 0; m < micro_batches; ++m) {
//     lanes.BeginMicroBatch(m, /*model=*/0);
//     Backward(Loss(m));
//   }
//   lanes.Finish();                          // lanes.whole(l) is the sum over all ranks
//
// A lane is what travels together: some leaves, whose gradients lie one after the other in a flat
// tensor. Its memory is brought by the first contribution. A lane travels in its turn, so that
// every rank issues the same collectives: when the last gradient of the last micro-batch has come,
// or, where whole gradients are not to be kept until then, of every one.
//
// Sums. By default each rank accumulates its micro-batches one after the other and the group's
// collective sums the ranks. With `deterministic`, all micro-batches of the step (numbered
// rank * micro_batches + m) are summed by a balanced binary tree whose leaves are the micro-batches
// in that order; collectives only move data. Then any number of ranks gives the bits of one process
// with as many micro-batches. Both numbers must be powers of two.
#ifndef TESSERA_DIST_STORE_GRADIENT_LANES_H_
#define TESSERA_DIST_STORE_GRADIENT_LANES_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "core/communicator.h"
#include "core/tensor.h"

namespace tessera::dist {

// Which gradients travel together, and how they lie.
struct LaneLayout {
  struct Leaf {
    std::string name;  // for messages
    Tensor leaf;
    int64_t offset = 0;  // elements into the lane
    size_t index = 0;    // the caller's number, for `arrival`
  };
  std::vector<Leaf> leaves;
  DType dtype = DType::kFloat32;  // of the gradients
  Device device;
  std::shared_ptr<Communicator> group;  // the ranks whose gradients are summed
  int model = 0;         // of the rank's models (chunks of a pipeline), which take turns
  int64_t elements = 0;  // a multiple of the group's size
  // The sum over the rank's micro-batches is taken here, and travels once per step; otherwise every
  // micro-batch's gradients travel and their memory is given back. (`deterministic` takes it here
  // in any case, as the tree asks.)
  bool accumulates = true;
  // Where ranks have shares: one has all of this lane, so that the sum comes whole to every rank.
  bool whole = false;
};

class GradientLanes {
 public:
  // What becomes of a share: called when lane `l`'s sum over ranks has come, with this rank's
  // part of it ([elements / ranks]; all of it where the lane says so, and of one rank).
  using Arrived = std::function<void(size_t l, const Tensor& part)>;

  struct Options {
    int models = 1;  // of the rank, which take turns; some may have no lane
    bool deterministic = false;
    bool overlap = true;  // otherwise lanes travel in Finish
    // The lanes' views are the leaves' gradients; otherwise leaves keep gradients of their own,
    // which are copied.
    bool in_place = true;
    // Unset: every rank gets the whole sum. Else rank r gets range r of equal ones, and leaves have
    // no gradient once it travels.
    Arrived arrived = nullptr;
    // What shares travel in; nullopt: as they are. Sums are taken in float32 whatever it is.
    std::optional<DType> communication_dtype = std::nullopt;
  };

  // Lanes travel in the given order, those of each model. Throws Error when `deterministic` is
  // asked of a group whose size is no power of two.
  GradientLanes(std::vector<LaneLayout> layouts, Options options);
  ~GradientLanes();
  GradientLanes(const GradientLanes&) = delete;
  GradientLanes& operator=(const GradientLanes&) = delete;

  // Of this step, on each rank. Gradients from before are dropped.
  void BeginStep(int64_t micro_batches);
  // Before gradients of micro-batch m = 0, 1, ... come to a model.
  void BeginMicroBatch(int64_t m, int model);
  // Waits for the sums.
  void Finish();
  // Drops the gradients of the step under way, if there is one; what travels has arrived then.
  void Abandon();
  // Makes what every rank has seen of `used` one: whether any has. Without `find_unused` a leaf
  // that has no gradient on this rank is an error that names it (of several ranks). After Finish.
  void ShareUse(bool find_unused);

  size_t size() const { return lanes_.size(); }
  const LaneLayout& layout(size_t l) const { return lanes_[l].layout; }
  // Whether a leaf had a gradient in this step.
  bool used(size_t l, size_t leaf) const { return lanes_[l].used[leaf]; }
  void set_used(size_t l, size_t leaf, bool used) { lanes_[l].used[leaf] = used; }
  // Whether the lane has travelled and arrived in this micro-batch.
  bool landed(size_t l) const { return lanes_[l].landed; }
  // Whether the last micro-batch of the step has begun.
  bool in_last_micro_batch(size_t l) const { return MicroBatchOf(lanes_[l]) + 1 == micro_batches_; }
  bool in_first_micro_batch(size_t l) const { return MicroBatchOf(lanes_[l]) == 0; }
  // Whether whole gradients are kept from micro-batch to micro-batch in this step.
  bool keeps_whole(size_t l) const { return KeepsWhole(lanes_[l]); }

  // The lane's flat gradients; undefined while there are none.
  const Tensor& whole(size_t l) const { return lanes_[l].whole; }
  void ReleaseWhole(size_t l) { lanes_[l].whole = Tensor(); }
  // A leaf's part of `flat`, in its shape.
  Tensor ViewOf(size_t l, size_t leaf, const Tensor& flat) const;

  // Numbers (LaneLayout::Leaf::index) of the leaves in the order in which the gradients of this
  // step's first micro-batch came.
  const std::vector<size_t>& arrival() const { return arrival_; }

 private:
  struct Lane {
    LaneLayout layout;
    std::vector<HookHandle> hooks;
    std::vector<bool> complete;   // by leaf: in this backward pass
    std::vector<bool> used;       // by leaf: in this step
    size_t awaited = 0;           // leaves of this backward pass
    Tensor whole;                 // gradients of this micro-batch, or their sum so far
    std::vector<Tensor> partial;  // deterministic: sums of 2^level micro-batches
    Tensor sent;                  // what travels, where that is another dtype
    Tensor received;
    CommHandlePtr travelling;
    bool launched = false;
    bool landed = false;
  };

  bool KeepsWhole(const Lane& lane) const;
  int64_t MicroBatchOf(const Lane& lane) const {
    return micro_batch_[static_cast<size_t>(lane.layout.model)];
  }
  void Arm(size_t l);
  const Tensor& ObtainWhole(Lane& lane);
  void OnComplete(size_t l, size_t leaf);
  void EndMicroBatch(int model);
  void FillMissing(Lane& lane);
  void AddToTree(Lane& lane);
  void LaunchReady();
  void Launch(size_t l);
  void Send(Lane& lane);
  void LandOldest();
  Tensor Receive(Lane& lane);
  bool ComesWhole(const Lane& lane) const { return !options_.arrived || lane.layout.whole; }

  const Options options_;
  std::vector<Lane> lanes_;
  std::vector<std::vector<size_t>> lanes_of_;  // by model
  std::vector<int64_t> micro_batch_;           // by model
  std::vector<size_t> launched_;               // by model: of lanes_of_
  std::deque<size_t> under_way_;
  std::vector<size_t> arrival_;
  int64_t micro_batches_ = 0;
  bool in_step_ = false;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_GRADIENT_LANES_H_
