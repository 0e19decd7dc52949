// Data parallelism: the gradients of all ranks summed, in buckets, while backward still runs
// (Li et al. 2020, "PyTorch Distributed").
//
//   GradientReducer reducer(leaves, mesh.dp(), {.bucket_cap_mb = 25});
//   reducer.BeginStep(micro_batches);
//   for (int64_t m = 0; m < micro_batches; ++m) {
//     reducer.BeginMicroBatch(m);          // all but the last only accumulate ("no_sync")
//     Backward(Loss(m));
//   }
//   reducer.Finish();                      // every leaf's Grad() is now the sum over all ranks
//
// Gradients are summed, not averaged: the loss has been divided by the targets of the whole step.
// Leaves are put into flat buckets in reverse order, which is about the order in which their
// gradients come; a leaf's gradient is a view of its bucket. A bucket travels when its last
// gradient of the last micro-batch is complete and all buckets before it travel, so that every rank
// issues them in one order.
//
// Sums. By default each rank accumulates its micro-batches one after the other and the group's
// all-reduce sums the ranks. With `deterministic`, all micro-batches of the step (numbered
// rank * micro_batches + m) are summed by a balanced binary tree whose leaves are the micro-batches
// in that order; collectives only move data. Then any number of ranks gives the bits of one process
// with as many micro-batches. Both numbers must be powers of two.
#ifndef TESSERA_DIST_DDP_GRADIENT_REDUCER_H_
#define TESSERA_DIST_DDP_GRADIENT_REDUCER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/communicator.h"
#include "core/tensor.h"

namespace tessera::dist {

struct ReducerOptions {
  double bucket_cap_mb = 25;  // megabytes (2^20) of gradients per bucket
  bool deterministic = false;
  // Some ranks may have no gradient for some leaves: those count as zero there, and a leaf without
  // gradient on every rank has none. Otherwise a leaf without gradient is an error that names it.
  bool find_unused_parameters = false;
  // The same leaves in the same order in every step: buckets follow the order in which the
  // gradients of the first step came on rank 0.
  bool static_graph = false;
  // After every step compares the checksums of all buckets over the ranks; throws Error that names
  // the ranks and the first leaf of a bucket that differs.
  bool check_reduction = false;
  // Otherwise leaves keep gradients of their own, which are copied to the buckets and back.
  bool gradient_as_bucket_view = true;
  // Otherwise buckets travel in Finish.
  bool overlap = true;
};

struct ReducedLeaf {
  std::string name;  // for messages
  Tensor leaf;
};

class GradientReducer {
 public:
  // Collective order is the leaves', which must be the same on every rank of `group`. Throws Error
  // when `deterministic` is asked of a group whose size is no power of two.
  GradientReducer(std::vector<ReducedLeaf> leaves, std::shared_ptr<Communicator> group,
                  const ReducerOptions& options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // Of this step, on each rank. Gradients from before are dropped.
  void BeginStep(int64_t micro_batches);
  // Before the backward pass of micro-batch `m` of 0, 1, ...
  void BeginMicroBatch(int64_t m);
  // Waits for the sums.
  void Finish();

  int64_t num_buckets() const;
  // Names of a bucket's leaves, in order.
  std::vector<std::string> BucketLeaves(int64_t bucket) const;
  // Whether a power of two.
  static bool IsPowerOfTwo(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

 private:
  struct Entry;
  struct Bucket;

  void MakeBuckets(const std::vector<size_t>& order);
  void Arm();
  void OnComplete(size_t index);
  void EndMicroBatch();
  void FillMissing(Bucket& bucket);
  void AddToTree(Bucket& bucket);
  void LaunchReady();
  void Launch(Bucket& bucket);
  void Land(Bucket& bucket);
  void SettleUnused();
  void HandOver();
  void CompareOverRanks();
  void FollowFirstStep();

  const std::shared_ptr<Communicator> group_;
  const ReducerOptions options_;
  std::vector<Entry> entries_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> arrival_;  // of the first step
  int64_t micro_batches_ = 0;
  int64_t micro_batch_ = -1;
  size_t launched_ = 0;
  bool in_step_ = false;
  bool first_step_ = true;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_DDP_GRADIENT_REDUCER_H_
