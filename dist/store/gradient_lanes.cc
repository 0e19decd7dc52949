// SPDX-License-Identifier: Apache-2.0
#include "dist/store/gradient_lanes.h"

#include <algorithm>
#include <utility>

#include "autograd/autograd.h"
#include "base/error.h"
#include "core/memory_use.h"
#include "dist/store/flat_bucket.h"
#include "dist/store/zero_options.h"

namespace tessera::dist {
namespace {

// Shares that may be under way at once: each holds a lane of whole gradients.
constexpr size_t kUnderWay = 2;

// ranks [n] one after the other: the first becomes the balanced tree's sum of all of them.
void SumRanks(const Tensor& received, int ranks, int64_t n) {
  for (int stride = 1; stride < ranks; stride *= 2) {
    for (int r = 0; r + stride < ranks; r += 2 * stride) {
      AddInto(FlatView(received, r * n, n), FlatView(received, (r + stride) * n, n));
    }
  }
}

}  // namespace

GradientLanes::GradientLanes(std::vector<LaneLayout> layouts, Options options)
    : options_(std::move(options)) {
  lanes_of_.resize(static_cast<size_t>(options_.models));
  micro_batch_.resize(lanes_of_.size(), -1);
  launched_.resize(lanes_of_.size(), 0);
  lanes_.resize(layouts.size());
  for (size_t l = 0; l < layouts.size(); ++l) {
    Lane& lane = lanes_[l];
    lane.layout = std::move(layouts[l]);
    const int ranks = lane.layout.group->size();
    TESSERA_CHECK(!options_.deterministic || IsPowerOfTwo(ranks), "store",
                  "deterministic sums need a power of two of ranks, not ", ranks);
    const size_t leaves = lane.layout.leaves.size();
    lane.complete.resize(leaves, false);
    lane.used.resize(leaves, false);
    lanes_of_[static_cast<size_t>(lane.layout.model)].push_back(l);
    for (size_t i = 0; i < leaves; ++i) {
      lane.hooks.push_back(AddGradCompleteHook(lane.layout.leaves[i].leaf,
                                               [this, l, i](const Tensor&) { OnComplete(l, i); }));
    }
  }
}

GradientLanes::~GradientLanes() {
  for (Lane& lane : lanes_) {
    for (HookHandle& hook : lane.hooks) hook.Remove();
  }
}

bool GradientLanes::KeepsWhole(const Lane& lane) const {
  return lane.layout.accumulates || (options_.deterministic && micro_batches_ > 1);
}

Tensor GradientLanes::ViewOf(size_t l, size_t leaf, const Tensor& flat) const {
  const LaneLayout::Leaf& place = lanes_[l].layout.leaves[leaf];
  const Shape& shape = place.leaf.shape();
  return flat.AsStrided(shape, ContiguousStrides(shape), flat.offset() + place.offset);
}

// --- A step --------------------------------------------------------------------------------------

void GradientLanes::BeginStep(int64_t micro_batches) {
  TESSERA_CHECK(!in_step_, "store", "the step before was not finished");
  TESSERA_CHECK(micro_batches >= 1 && (!options_.deterministic || IsPowerOfTwo(micro_batches)),
                "store", "deterministic sums need a power of two of micro-batches, not ",
                micro_batches);
  micro_batches_ = micro_batches;
  in_step_ = true;
  arrival_.clear();
  std::fill(micro_batch_.begin(), micro_batch_.end(), -1);
  for (Lane& lane : lanes_) std::fill(lane.used.begin(), lane.used.end(), false);
}

void GradientLanes::BeginMicroBatch(int64_t m, int model) {
  const auto chunk = static_cast<size_t>(model);
  TESSERA_CHECK(
      in_step_ && chunk < micro_batch_.size() && m == micro_batch_[chunk] + 1 && m < micro_batches_,
      "store", "micro-batch ", m, " of ", micro_batches_, " of model ", model, " follows ",
      chunk < micro_batch_.size() ? micro_batch_[chunk] : -1);
  if (m > 0) EndMicroBatch(model);
  micro_batch_[chunk] = m;
  launched_[chunk] = 0;
  for (const size_t l : lanes_of_[chunk]) {
    Lane& lane = lanes_[l];
    lane.awaited = lane.layout.leaves.size();
    lane.launched = false;
    lane.landed = false;
    std::fill(lane.complete.begin(), lane.complete.end(), false);
    if (m == 0 || options_.deterministic || !KeepsWhole(lane)) Arm(l);
  }
}

// Points every leaf's next gradient at its place.
void GradientLanes::Arm(size_t l) {
  for (size_t i = 0; i < lanes_[l].layout.leaves.size(); ++i) {
    const Tensor& leaf = lanes_[l].layout.leaves[i].leaf;
    if (options_.in_place) {
      SetGradBuffer(leaf, [this, l, i] { return ViewOf(l, i, ObtainWhole(lanes_[l])); });
    } else {
      SetGrad(leaf, Tensor());
    }
  }
}

// The lane is a buffer where the rank's gradients lie elsewhere: in shares, or beside it.
const Tensor& GradientLanes::ObtainWhole(Lane& lane) {
  if (lane.whole.defined()) return lane.whole;
  const bool holds_gradients = options_.in_place && lane.layout.accumulates;
  const MemoryUseScope use(holds_gradients ? MemoryUse::kOther : MemoryUse::kBucket);
  const LaneLayout& layout = lane.layout;
  lane.whole = Empty({layout.elements}, layout.dtype, layout.device);
  // What rounds the lane up travels too.
  const int64_t end = layout.leaves.back().offset + layout.leaves.back().leaf.numel();
  if (end < layout.elements) Fill(FlatView(lane.whole, end, layout.elements - end), 0.0);
  return lane.whole;
}

void GradientLanes::OnComplete(size_t l, size_t leaf) {
  Lane& lane = lanes_[l];
  if (!in_step_ || lane.complete[leaf]) return;
  lane.complete[leaf] = true;
  if (MicroBatchOf(lane) == 0) arrival_.push_back(lane.layout.leaves[leaf].index);
  if (--lane.awaited == 0 && options_.overlap) LaunchReady();
}

// Brings all gradients of the micro-batch into the lane; what has none is zero there.
void GradientLanes::FillMissing(Lane& lane) {
  const NoGrad no_grad;
  ObtainWhole(lane);
  const auto l = static_cast<size_t>(&lane - lanes_.data());
  for (size_t i = 0; i < lane.layout.leaves.size(); ++i) {
    const Tensor grad = Grad(lane.layout.leaves[i].leaf);
    const Tensor view = ViewOf(l, i, lane.whole);
    if (!grad.defined()) {
      Fill(view, 0.0);
      continue;
    }
    lane.used[i] = true;
    if (grad.storage() != lane.whole.storage()) CopyInto(view, grad);
  }
}

// Adds the micro-batch's gradients to the balanced tree: two sums of 2^level micro-batches become
// one of 2^(level+1). After the last micro-batch the whole sum lies in `whole`.
void GradientLanes::AddToTree(Lane& lane) {
  const int64_t m = MicroBatchOf(lane);
  Tensor sum = std::move(lane.whole);
  lane.whole = Tensor();
  size_t level = 0;
  for (int64_t rest = m; (rest & 1) == 1; rest >>= 1, ++level) {
    AddInto(lane.partial[level], sum);
    lane.whole = std::move(sum);  // free to be used for the next micro-batch
    sum = std::move(lane.partial[level]);
    lane.partial[level] = Tensor();
  }
  if (m + 1 == micro_batches_) {
    lane.whole = std::move(sum);
    return;
  }
  if (lane.partial.size() <= level) lane.partial.resize(level + 1);
  lane.partial[level] = std::move(sum);
}

void GradientLanes::EndMicroBatch(int model) {
  for (const size_t l : lanes_of_[static_cast<size_t>(model)]) {
    Lane& lane = lanes_[l];
    if (lane.launched) continue;
    if (options_.deterministic) {
      FillMissing(lane);
      AddToTree(lane);
    } else if (!KeepsWhole(lane)) {
      Launch(l);
    }
  }
  // What travels after every micro-batch has arrived before the next begins.
  while (!under_way_.empty() && !KeepsWhole(lanes_[under_way_.front()])) LandOldest();
}

// --- Travelling ----------------------------------------------------------------------------------

void GradientLanes::LaunchReady() {
  for (size_t model = 0; model < lanes_of_.size(); ++model) {
    if (micro_batch_[model] < 0) continue;  // its turn has not begun
    const bool last = micro_batch_[model] + 1 == micro_batches_;
    while (launched_[model] < lanes_of_[model].size()) {
      const size_t l = lanes_of_[model][launched_[model]];
      if (lanes_[l].awaited > 0 || (KeepsWhole(lanes_[l]) && !last)) break;
      ++launched_[model];
      Launch(l);
    }
  }
}

void GradientLanes::Launch(size_t l) {
  const NoGrad no_grad;
  Lane& lane = lanes_[l];
  lane.launched = true;
  FillMissing(lane);
  if (options_.deterministic) AddToTree(lane);
  if (options_.arrived) {
    for (const LaneLayout::Leaf& leaf : lane.layout.leaves) SetGrad(leaf.leaf, Tensor());
  }
  if (lane.layout.group->size() > 1) Send(lane);
  under_way_.push_back(l);
  while (options_.arrived && under_way_.size() > kUnderWay) LandOldest();
}

void GradientLanes::Send(Lane& lane) {
  const int64_t elements = lane.layout.elements;
  const Device& device = lane.layout.device;
  Communicator& group = *lane.layout.group;
  if (options_.deterministic) {
    const MemoryUseScope use(MemoryUse::kBucket);
    lane.received = Empty({elements}, lane.layout.dtype, device);
    lane.travelling = group.AllToAll(lane.received, lane.whole);
    return;
  }
  const DType dtype = options_.communication_dtype.value_or(lane.layout.dtype);
  const MemoryUseScope use(MemoryUse::kBucket);
  lane.sent = dtype == lane.layout.dtype ? lane.whole : CastCopy(lane.whole, dtype);
  if (ComesWhole(lane)) {
    lane.received = lane.sent;
    lane.travelling = group.AllReduce(lane.received, ReduceOp::kSum);
    return;
  }
  // The first sum that arrives becomes the rank's share, to which later ones are added.
  const LaneLayout& layout = lane.layout;
  const bool stays = dtype == layout.dtype && !layout.accumulates && MicroBatchOf(lane) == 0;
  const MemoryUseScope share(stays ? MemoryUse::kOther : MemoryUse::kBucket);
  lane.received = Empty({elements / group.size()}, dtype, device);
  lane.travelling = group.ReduceScatter(lane.received, lane.sent, ReduceOp::kSum);
}

// Waits for what travels. Deterministic: this rank sums its part of all ranks; where every rank
// gets the whole, the parts begin to come together.
void GradientLanes::LandOldest() {
  const NoGrad no_grad;
  const size_t l = under_way_.front();
  under_way_.pop_front();
  Lane& lane = lanes_[l];
  Tensor part = lane.travelling == nullptr ? lane.whole : Receive(lane);
  lane.landed = true;
  if (ComesWhole(lane) && options_.deterministic && lane.layout.group->size() > 1) {
    lane.received = part;
    lane.travelling = lane.layout.group->AllGather(lane.whole, part);
    if (!options_.arrived) return;  // Finish waits
    lane.travelling->Wait();
    lane.travelling = nullptr;
    lane.received = Tensor();
    part = lane.whole;
  }
  if (options_.arrived) options_.arrived(l, part);
}

Tensor GradientLanes::Receive(Lane& lane) {
  lane.travelling->Wait();
  lane.travelling = nullptr;
  lane.sent = Tensor();
  const Tensor received = std::exchange(lane.received, Tensor());
  if (!options_.deterministic) {
    return received.dtype() == lane.layout.dtype ? received : CastCopy(received, lane.layout.dtype);
  }
  const int ranks = lane.layout.group->size();
  const int64_t share = lane.layout.elements / ranks;
  SumRanks(received, ranks, share);
  return FlatView(received, 0, share);
}

void GradientLanes::Finish() {
  TESSERA_CHECK(in_step_, "store", "no step has begun");
  for (const int64_t m : micro_batch_) {
    TESSERA_CHECK(m + 1 == micro_batches_, "store", "only ", m + 1, " of ", micro_batches_,
                  " micro-batches have run");
  }
  for (const std::vector<size_t>& lanes : lanes_of_) {
    for (const size_t l : lanes) {
      if (!lanes_[l].launched) Launch(l);
    }
  }
  while (!under_way_.empty()) LandOldest();
  for (Lane& lane : lanes_) {
    if (lane.travelling == nullptr) continue;
    lane.travelling->Wait();
    lane.travelling = nullptr;
    lane.received = Tensor();
  }
  in_step_ = false;
}

void GradientLanes::Abandon() {
  under_way_.clear();
  for (Lane& lane : lanes_) {
    if (lane.travelling != nullptr) lane.travelling->Wait();
    lane.travelling = nullptr;
    lane.whole = lane.sent = lane.received = Tensor();
    lane.partial.clear();
    for (const LaneLayout::Leaf& leaf : lane.layout.leaves) SetGrad(leaf.leaf, Tensor());
  }
  in_step_ = false;
}

void GradientLanes::ShareUse(bool find_unused) {
  std::vector<std::shared_ptr<Communicator>> groups;
  for (const Lane& lane : lanes_) {
    const auto& group = lane.layout.group;
    if (group->size() == 1) continue;
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
    for (size_t i = 0; i < lane.used.size(); ++i) {
      TESSERA_CHECK(lane.used[i] || find_unused, "store", "parameter '", lane.layout.leaves[i].name,
                    "' had no gradient in this step; if that is meant, set "
                    "find_unused_parameters");
    }
  }
  if (!find_unused) return;
  for (const auto& group : groups) {
    std::vector<int32_t> flags;
    for (const Lane& lane : lanes_) {
      if (lane.layout.group != group) continue;
      flags.insert(flags.end(), lane.used.begin(), lane.used.end());
    }
    const Tensor shared = Tensor::FromVector(flags, {std::ssize(flags)});
    group->AllReduce(shared, ReduceOp::kMax)->Wait();
    const int32_t* flag = shared.data<int32_t>();
    for (Lane& lane : lanes_) {
      if (lane.layout.group != group) continue;
      for (size_t i = 0; i < lane.used.size(); ++i) lane.used[i] = *flag++ != 0;
    }
  }
}

}  // namespace tessera::dist
