#include "dist/zero/gradient_shards.h"

#include <algorithm>
#include <utility>

#include "autograd/autograd.h"
#include "core/error.h"
#include "dist/ddp/gradient_reducer.h"

namespace tessera::dist {

struct GradientShards::Leaf {
  Tensor leaf;
  size_t slot = 0;
  int hook = 0;
  bool complete = false;  // in this backward pass
  bool used = false;      // in this step
};

struct GradientShards::Lane {
  size_t bucket = 0;
  int model = 0;
  size_t last_arrival = 0;
  bool offloaded = false;
  std::vector<Leaf> leaves;
  size_t awaited = 0;
  Tensor full;                  // whole gradients; released while there are none
  std::vector<Tensor> partial;  // deterministic: sums of 2^level micro-batches
  Tensor sent;                  // what travels, where that is another dtype
  Tensor received;
  CommHandlePtr travelling;
  bool launched = false;
  Tensor share;
};

namespace {

// Reductions that may be under way at once: each holds a bucket.
constexpr size_t kUnderWay = 2;

Tensor ReleasedFlat(const FlatBucket& bucket) {
  Tensor flat = Empty({bucket.elements}, bucket.grad_dtype, bucket.device);
  Storage* const storage = flat.storage().get();
  storage->ReleaseBytes();
  storage->SetRefill([storage] { storage->ObtainBytes(); });
  return flat;
}

Tensor Owned(const Tensor& t) { return CastCopy(t, t.dtype()); }

}  // namespace

GradientShards::GradientShards(const std::vector<FlatBucket>& buckets,
                               const std::vector<bool>& offloaded,
                               std::shared_ptr<Communicator> group, const ZeroOptions& options,
                               std::function<void(size_t bucket)> landed)
    : buckets_(buckets),
      group_(std::move(group)),
      options_(options),
      landed_(std::move(landed)),
      lanes_of_(buckets.size()) {
  int models = 1;
  for (size_t b = 0; b < buckets.size(); ++b) {
    const FlatBucket& bucket = buckets[b];
    models = std::max(models, bucket.model + 1);
    if (!bucket.trains) continue;
    const size_t uses = 1 + bucket.slots.front().tied.size();
    for (size_t use = 0; use < uses; ++use) {
      Lane lane;
      lane.bucket = b;
      lane.model = bucket.model;
      lane.offloaded = offloaded[b];
      for (size_t s = 0; s < bucket.slots.size(); ++s) {
        const FlatSlot& slot = bucket.slots[s];
        Leaf leaf;
        leaf.leaf = use == 0 ? slot.leaf : slot.tied[use - 1];
        leaf.slot = s;
        lane.leaves.push_back(std::move(leaf));
        lane.last_arrival = std::max(lane.last_arrival, slot.arrivals.at(use));
      }
      lane.full = ReleasedFlat(bucket);
      lanes_.push_back(std::move(lane));
    }
  }
  std::stable_sort(lanes_.begin(), lanes_.end(),
                   [](const Lane& a, const Lane& b) { return a.last_arrival > b.last_arrival; });
  lanes_by_model_.resize(static_cast<size_t>(models));
  micro_batch_.resize(lanes_by_model_.size(), -1);
  launched_.resize(lanes_by_model_.size(), 0);
  for (size_t l = 0; l < lanes_.size(); ++l) {
    lanes_by_model_[static_cast<size_t>(lanes_[l].model)].push_back(l);
    for (size_t i = 0; i < lanes_[l].leaves.size(); ++i) {
      lanes_[l].leaves[i].hook = AddGradCompleteHook(
          lanes_[l].leaves[i].leaf, [this, l, i](const Tensor&) { OnComplete(l, i); });
    }
  }
  // A bucket's lanes in the order in which ties are joined: the parameter's own first.
  for (size_t b = 0; b < buckets.size(); ++b) {
    if (!buckets[b].trains) continue;
    const FlatSlot& slot = buckets[b].slots.front();
    for (size_t use = 0; use <= slot.tied.size(); ++use) {
      const Tensor& leaf = use == 0 ? slot.leaf : slot.tied[use - 1];
      for (size_t l = 0; l < lanes_.size(); ++l) {
        if (lanes_[l].leaves.front().leaf.record() == leaf.record()) lanes_of_[b].push_back(l);
      }
    }
  }
}

GradientShards::~GradientShards() {
  for (const Lane& lane : lanes_) {
    for (const Leaf& leaf : lane.leaves) RemoveGradCompleteHook(leaf.leaf, leaf.hook);
  }
}

// Whole gradients of all micro-batches are kept until the last.
bool GradientShards::KeepsWhole(const Lane& lane) const {
  return options_.stage == 1 || (options_.deterministic && micro_batches_ > 1) ||
         (group_->size() == 1 && !lane.offloaded);
}

// --- A step --------------------------------------------------------------------------------------

void GradientShards::BeginStep(int64_t micro_batches) {
  TESSERA_CHECK(!in_step_, "zero", "the step before was not finished");
  TESSERA_CHECK(micro_batches >= 1 &&
                    (!options_.deterministic || GradientReducer::IsPowerOfTwo(micro_batches)),
                "zero", "deterministic sums need a power of two of micro-batches, not ",
                micro_batches);
  micro_batches_ = micro_batches;
  in_step_ = true;
  std::fill(micro_batch_.begin(), micro_batch_.end(), -1);
  for (Lane& lane : lanes_) {
    for (Leaf& leaf : lane.leaves) leaf.used = false;
    lane.share = Tensor();
  }
}

void GradientShards::BeginMicroBatch(int64_t m, int model) {
  const auto chunk = static_cast<size_t>(model);
  TESSERA_CHECK(
      in_step_ && chunk < micro_batch_.size() && m == micro_batch_[chunk] + 1 && m < micro_batches_,
      "zero", "micro-batch ", m, " of ", micro_batches_, " of model ", model, " follows ",
      chunk < micro_batch_.size() ? micro_batch_[chunk] : -1);
  if (m > 0) EndMicroBatch(model);
  micro_batch_[chunk] = m;
  launched_[chunk] = 0;
  for (const size_t l : lanes_by_model_[chunk]) {
    Lane& lane = lanes_[l];
    lane.awaited = lane.leaves.size();
    lane.launched = false;
    for (Leaf& leaf : lane.leaves) leaf.complete = false;
    if (m == 0 || options_.deterministic || !KeepsWhole(lane)) Arm(lane);
  }
}

// Points every leaf's next gradient at its place.
void GradientShards::Arm(Lane& lane) {
  const FlatBucket& bucket = buckets_[lane.bucket];
  for (const Leaf& leaf : lane.leaves) {
    SetGradBuffer(leaf.leaf, SlotView(lane.full, bucket.slots[leaf.slot]));
  }
}

void GradientShards::OnComplete(size_t l, size_t i) {
  Lane& lane = lanes_[l];
  Leaf& leaf = lane.leaves[i];
  if (!in_step_ || leaf.complete) return;
  leaf.complete = true;
  if (--lane.awaited == 0) LaunchReady();
}

// Brings all gradients of the micro-batch into the flat ones; what has none is zero there.
void GradientShards::FillMissing(Lane& lane) {
  const NoGrad no_grad;
  const FlatBucket& bucket = buckets_[lane.bucket];
  for (Leaf& leaf : lane.leaves) {
    const Tensor grad = Grad(leaf.leaf);
    const Tensor view = SlotView(lane.full, bucket.slots[leaf.slot]);
    if (!grad.defined()) {
      Fill(view, 0.0);
      continue;
    }
    leaf.used = true;
    if (grad.storage() != lane.full.storage()) CopyInto(view, grad);
  }
}

// Adds the micro-batch's gradients to the balanced tree, as GradientReducer does. After the last
// micro-batch the whole sum lies in `full`.
void GradientShards::AddToTree(Lane& lane) {
  const int64_t m = micro_batch_[static_cast<size_t>(lane.model)];
  if (micro_batches_ == 1) return;
  Tensor sum = std::move(lane.full);
  Tensor spare;
  size_t level = 0;
  for (int64_t rest = m; (rest & 1) == 1; rest >>= 1, ++level) {
    AddInto(lane.partial[level], sum);
    spare = std::move(sum);
    sum = std::move(lane.partial[level]);
    lane.partial[level] = Tensor();
  }
  if (m + 1 == micro_batches_) {
    lane.full = std::move(sum);
    return;
  }
  if (lane.partial.size() <= level) lane.partial.resize(level + 1);
  lane.partial[level] = std::move(sum);
  lane.full = spare.defined() ? std::move(spare) : ReleasedFlat(buckets_[lane.bucket]);
}

void GradientShards::EndMicroBatch(int model) {
  const auto chunk = static_cast<size_t>(model);
  for (const size_t l : lanes_by_model_[chunk]) {
    Lane& lane = lanes_[l];
    if (lane.launched) continue;
    if (options_.deterministic) {
      FillMissing(lane);
      AddToTree(lane);
    } else if (!KeepsWhole(lane)) {
      Launch(l);
    }
  }
  while (!under_way_.empty()) LandOldest();
}

// --- Travelling ----------------------------------------------------------------------------------

// A lane travels in its turn, when its last gradient has come: of every micro-batch, or of the
// last. At stage 3 parameters are gathered in between, in an order that gradients which are missing
// on some ranks must not change.
void GradientShards::LaunchReady() {
  if (!options_.overlap || (options_.stage == 3 && options_.find_unused_parameters)) return;
  for (size_t chunk = 0; chunk < lanes_by_model_.size(); ++chunk) {
    const std::vector<size_t>& lanes = lanes_by_model_[chunk];
    const bool last = micro_batch_[chunk] + 1 == micro_batches_;
    while (launched_[chunk] < lanes.size()) {
      const Lane& lane = lanes_[lanes[launched_[chunk]]];
      if (lane.awaited > 0 || (KeepsWhole(lane) && !last)) break;
      Launch(lanes[launched_[chunk]++]);
    }
  }
}

void GradientShards::Launch(size_t l) {
  const NoGrad no_grad;
  Lane& lane = lanes_[l];
  const FlatBucket& bucket = buckets_[lane.bucket];
  lane.launched = true;
  FillMissing(lane);
  if (options_.deterministic) AddToTree(lane);
  for (const Leaf& leaf : lane.leaves) SetGrad(leaf.leaf, Tensor());
  under_way_.push_back(l);
  if (group_->size() > 1) {
    if (options_.deterministic) {
      lane.received = Empty({bucket.elements}, bucket.grad_dtype, bucket.device);
      lane.travelling = group_->AllToAll(lane.received, lane.full);
    } else if (options_.communication_dtype && *options_.communication_dtype != bucket.grad_dtype) {
      lane.sent = CastCopy(lane.full, *options_.communication_dtype);
      lane.received = Empty({bucket.share}, lane.sent.dtype(), bucket.device);
      lane.travelling = group_->ReduceScatter(lane.received, lane.sent, ReduceOp::kSum);
    } else {
      lane.received = Empty({bucket.share}, bucket.grad_dtype, bucket.device);
      lane.travelling = group_->ReduceScatter(lane.received, lane.full, ReduceOp::kSum);
    }
  }
  while (under_way_.size() > kUnderWay) LandOldest();
}

void GradientShards::LandOldest() {
  const size_t l = under_way_.front();
  under_way_.pop_front();
  Land(l);
}

// Ends a lane's way. Deterministic: this rank sums its share of all ranks in a balanced tree.
void GradientShards::Land(size_t l) {
  const NoGrad no_grad;
  Lane& lane = lanes_[l];
  const FlatBucket& bucket = buckets_[lane.bucket];
  Tensor chunk = lane.full;
  if (lane.travelling != nullptr) {
    lane.travelling->Wait();
    lane.travelling = nullptr;
    lane.sent = Tensor();
    chunk = std::move(lane.received);
    lane.received = Tensor();
    if (chunk.dtype() != bucket.grad_dtype) chunk = CastCopy(chunk, bucket.grad_dtype);
    if (options_.deterministic) {
      const int ranks = group_->size();
      for (int stride = 1; stride < ranks; stride *= 2) {
        for (int r = 0; r + stride < ranks; r += 2 * stride) {
          AddInto(FlatView(chunk, r * bucket.share, bucket.share),
                  FlatView(chunk, (r + stride) * bucket.share, bucket.share));
        }
      }
      chunk = FlatView(chunk, 0, bucket.share);
    }
  }
  Keep(lane, chunk);
  const bool last = micro_batch_[static_cast<size_t>(lane.model)] + 1 == micro_batches_;
  const std::vector<size_t>& lanes = lanes_of_[lane.bucket];
  if (last && !options_.find_unused_parameters && bucket.gradient_group == nullptr &&
      std::all_of(lanes.begin(), lanes.end(), [&](size_t other) {
        return lanes_[other].share.defined() && lanes_[other].launched &&
               std::find(under_way_.begin(), under_way_.end(), other) == under_way_.end();
      })) {
    Join(lane.bucket);
    landed_(lane.bucket);
  }
}

// Adds this rank's part of the sums to what it has, and lets go of what is not needed any more.
void GradientShards::Keep(Lane& lane, const Tensor& chunk) {
  const FlatBucket& bucket = buckets_[lane.bucket];
  const bool whole_stays = KeepsWhole(lane) && options_.stage < 2;
  const bool first = KeepsWhole(lane) || micro_batch_[static_cast<size_t>(lane.model)] == 0;
  if (lane.offloaded) {
    const Tensor host = CopyTo(chunk, Device::Host());
    if (first) {
      lane.share = host;
    } else {
      AddInto(lane.share, host);
    }
  } else if (group_->size() == 1) {
    lane.share = lane.full;  // of this one rank
    return;
  } else if (!first) {
    AddInto(lane.share, chunk);
  } else if (whole_stays) {
    lane.share = FlatView(lane.full, group_->rank() * bucket.share, bucket.share);
    CopyInto(lane.share, chunk);
    return;
  } else {
    const bool exact = chunk.storage()->bytes() == static_cast<size_t>(chunk.nbytes());
    lane.share = exact ? chunk : Owned(chunk);
  }
  if (!whole_stays) lane.full.storage()->ReleaseBytes();
}

void GradientShards::Finish() {
  TESSERA_CHECK(in_step_, "zero", "no step has begun");
  for (const int64_t m : micro_batch_) {
    TESSERA_CHECK(m + 1 == micro_batches_, "zero", "only ", m + 1, " of ", micro_batches_,
                  " micro-batches have run");
  }
  const NoGrad no_grad;
  for (const std::vector<size_t>& lanes : lanes_by_model_) {
    for (const size_t l : lanes) {
      if (!lanes_[l].launched) Launch(l);
    }
  }
  while (!under_way_.empty()) LandOldest();
  in_step_ = false;
  Settle();
  SumPartial();
  if (join_shared_) JoinOverStages();
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const FlatBucket& bucket = buckets_[b];
    if (!bucket.trains) continue;
    if (!options_.find_unused_parameters && bucket.gradient_group == nullptr) continue;
    Join(b);
    landed_(b);
  }
}

// Whether a leaf has a gradient is decided over all ranks.
void GradientShards::Settle() {
  if (group_->size() == 1) return;
  if (options_.find_unused_parameters) {
    int64_t count = 0;
    for (const Lane& lane : lanes_) count += std::ssize(lane.leaves);
    const Tensor used = Zeros({count}, DType::kInt32);
    int32_t* flag = used.data<int32_t>();
    for (const Lane& lane : lanes_) {
      for (const Leaf& leaf : lane.leaves) *flag++ = leaf.used ? 1 : 0;
    }
    group_->AllReduce(used, ReduceOp::kMax)->Wait();
    flag = used.data<int32_t>();
    for (Lane& lane : lanes_) {
      for (Leaf& leaf : lane.leaves) leaf.used = *flag++ != 0;
    }
    return;
  }
  for (const Lane& lane : lanes_) {
    for (const Leaf& leaf : lane.leaves) {
      TESSERA_CHECK(leaf.used, "zero", "parameter '", buckets_[lane.bucket].slots[leaf.slot].name,
                    "' had no gradient in this step; if that is meant, set "
                    "find_unused_parameters");
    }
  }
}

// Sums the gradients of which this rank has seen a part (sequence parallelism).
void GradientShards::SumPartial() {
  for (Lane& lane : lanes_) {
    const auto& partial = buckets_[lane.bucket].gradient_group;
    if (partial == nullptr || partial->size() == 1) continue;
    partial->AllReduce(lane.share, ReduceOp::kSum)->Wait();
  }
}

GradientShards::Lane& GradientShards::LaneOf(const nn::Parameter& use) {
  const auto found = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
    return lane.leaves.front().leaf.record() == use.tensor.record();
  });
  TESSERA_CHECK(found != lanes_.end() && found->leaves.size() == 1, "zero", "'", use.name,
                "' is not one of the shared weights");
  return *found;
}

// Shared weights are alone in their buckets: the joined sum is the parameter's, and no use of this
// rank is left to be added.
void GradientShards::JoinOverStages() {
  join_shared_(
      [this](const nn::Parameter& use) {
        const Lane& lane = LaneOf(use);
        return lane.leaves.front().used ? CopyTo(lane.share, use.tensor.device()) : Tensor();
      },
      [this](const nn::Parameter& weight, const Tensor& sum) {
        Lane& own = LaneOf(weight);
        for (const size_t l : lanes_of_[own.bucket]) {
          Lane& lane = lanes_[l];
          lane.leaves.front().used = &lane == &own;
          lane.share =
              &lane == &own ? CopyTo(sum, own.offloaded ? Device::Host() : sum.device()) : Tensor();
          if (options_.stage >= 2) lane.full.storage()->ReleaseBytes();
        }
      });
}

// The gradients of a parameter's uses become one, the parameter's own first.
void GradientShards::Join(size_t b) {
  Lane* sum = nullptr;
  for (const size_t l : lanes_of_[b]) {
    Lane& lane = lanes_[l];
    if (lane.leaves.size() > 1 || lanes_of_[b].size() == 1) return;
    if (!lane.leaves.front().used) continue;
    if (sum == nullptr) {
      sum = &lane;
      continue;
    }
    AddInto(sum->share, lane.share);
    lane.share = Tensor();
    if (options_.stage >= 2) lane.full.storage()->ReleaseBytes();
  }
  Lane& own = lanes_[lanes_of_[b].front()];
  if (sum != nullptr && sum != &own) {
    own.share = sum->share;
    own.leaves.front().used = true;
  }
}

const Tensor& GradientShards::share(size_t bucket) const {
  return lanes_[lanes_of_.at(bucket).front()].share;
}

bool GradientShards::used(size_t bucket, size_t slot) const {
  return lanes_[lanes_of_.at(bucket).front()].leaves.at(slot).used;
}

void GradientShards::Drop() {
  for (Lane& lane : lanes_) {
    lane.share = Tensor();
    if (options_.stage >= 2) lane.full.storage()->ReleaseBytes();
  }
}

}  // namespace tessera::dist
