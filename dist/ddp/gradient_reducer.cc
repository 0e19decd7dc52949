#include "dist/ddp/gradient_reducer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "autograd/autograd.h"
#include "core/checksum.h"
#include "core/error.h"

namespace tessera::dist {

struct GradientReducer::Entry {
  std::string name;
  Tensor leaf;
  int hook = 0;
  size_t bucket = 0;
  int64_t offset = 0;     // elements into the bucket
  bool complete = false;  // in this backward pass
  bool used = false;      // in this step
};

struct GradientReducer::Bucket {
  std::vector<size_t> entries;
  DType dtype = DType::kFloat32;
  Device device = Device::Cpu();
  int64_t elements = 0;         // a multiple of the group's size
  Tensor flat;                  // gradients of this micro-batch, or their sum so far
  std::vector<Tensor> partial;  // deterministic: sums of 2^level micro-batches, undefined if none
  size_t awaited = 0;           // gradients of this backward pass
  Tensor received;              // deterministic: the ranks' parts of this rank's chunk
  CommHandlePtr travelling;
};

namespace {

Tensor ViewOf(const Tensor& flat, const Tensor& leaf, int64_t offset) {
  return flat.AsStrided(leaf.shape(), ContiguousStrides(leaf.shape()), offset);
}

Tensor Chunk(const Tensor& flat, int64_t size, int64_t index) {
  return flat.AsStrided({size}, {1}, flat.offset() + index * size);
}

}  // namespace

GradientReducer::GradientReducer(std::vector<ReducedLeaf> leaves,
                                 std::shared_ptr<Communicator> group, const ReducerOptions& options)
    : group_(std::move(group)), options_(options) {
  TESSERA_CHECK(!options.deterministic || IsPowerOfTwo(group_->size()), "gradient_reducer",
                "deterministic sums need a power of two of ranks, not ", group_->size());
  TESSERA_CHECK(options.bucket_cap_mb > 0, "gradient_reducer", "bucket_cap_mb is ",
                options.bucket_cap_mb);
  for (ReducedLeaf& leaf : leaves) {
    const size_t index = entries_.size();
    entries_.push_back({.name = std::move(leaf.name), .leaf = leaf.leaf});
    entries_.back().hook =
        AddGradCompleteHook(leaf.leaf, [this, index](const Tensor&) { OnComplete(index); });
  }
  std::vector<size_t> order(entries_.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  MakeBuckets(order);
}

GradientReducer::~GradientReducer() {
  for (const Entry& entry : entries_) RemoveGradCompleteHook(entry.leaf, entry.hook);
}

void GradientReducer::MakeBuckets(const std::vector<size_t>& order) {
  buckets_.clear();
  const double cap = options_.bucket_cap_mb * 1048576;
  for (const size_t index : order) {
    Entry& entry = entries_[index];
    const DType dtype = GradDType(entry.leaf);
    const int64_t numel = entry.leaf.numel();
    if (buckets_.empty() || buckets_.back().dtype != dtype ||
        buckets_.back().device != entry.leaf.device() ||
        static_cast<double>(buckets_.back().elements + numel) * DTypeSize(dtype) > cap) {
      buckets_.emplace_back();
      buckets_.back().dtype = dtype;
      buckets_.back().device = entry.leaf.device();
    }
    Bucket& bucket = buckets_.back();
    entry.bucket = buckets_.size() - 1;
    entry.offset = bucket.elements;
    bucket.elements += numel;
    bucket.entries.push_back(index);
  }
  for (Bucket& bucket : buckets_) {
    const int64_t size = group_->size();
    bucket.elements = (bucket.elements + size - 1) / size * size;
    bucket.flat = Zeros({bucket.elements}, bucket.dtype, bucket.device);
  }
}

int64_t GradientReducer::num_buckets() const { return std::ssize(buckets_); }

std::vector<std::string> GradientReducer::BucketLeaves(int64_t bucket) const {
  std::vector<std::string> names;
  for (const size_t index : buckets_.at(static_cast<size_t>(bucket)).entries) {
    names.push_back(entries_[index].name);
  }
  return names;
}

// --- A step --------------------------------------------------------------------------------------

void GradientReducer::BeginStep(int64_t micro_batches) {
  TESSERA_CHECK(!in_step_, "gradient_reducer", "the step before was not finished");
  TESSERA_CHECK(micro_batches >= 1 && (!options_.deterministic || IsPowerOfTwo(micro_batches)),
                "gradient_reducer", "deterministic sums need a power of two of micro-batches, not ",
                micro_batches);
  micro_batches_ = micro_batches;
  micro_batch_ = -1;
  launched_ = 0;
  in_step_ = true;
  for (Entry& entry : entries_) entry.used = false;
}

void GradientReducer::BeginMicroBatch(int64_t m) {
  TESSERA_CHECK(in_step_ && m == micro_batch_ + 1 && m < micro_batches_, "gradient_reducer",
                "micro-batch ", m, " of ", micro_batches_, " follows ", micro_batch_);
  if (m > 0) EndMicroBatch();
  micro_batch_ = m;
  for (Entry& entry : entries_) entry.complete = false;
  for (Bucket& bucket : buckets_) bucket.awaited = bucket.entries.size();
  if (m == 0 || options_.deterministic) Arm();
}

// Points every leaf's next gradient at its place.
void GradientReducer::Arm() {
  for (const Entry& entry : entries_) {
    if (options_.gradient_as_bucket_view) {
      SetGradBuffer(entry.leaf, ViewOf(buckets_[entry.bucket].flat, entry.leaf, entry.offset));
    } else {
      SetGrad(entry.leaf, Tensor());
    }
  }
}

void GradientReducer::OnComplete(size_t index) {
  Entry& entry = entries_[index];
  if (!in_step_ || entry.complete) return;
  entry.complete = true;
  if (Grad(entry.leaf).defined()) entry.used = true;
  if (first_step_ && options_.static_graph && micro_batch_ == 0) arrival_.push_back(index);
  Bucket& bucket = buckets_[entry.bucket];
  if (--bucket.awaited == 0 && micro_batch_ + 1 == micro_batches_ && options_.overlap) {
    LaunchReady();
  }
}

// Brings all gradients of the micro-batch into the bucket; what has none is zero there.
void GradientReducer::FillMissing(Bucket& bucket) {
  const NoGrad no_grad;
  for (const size_t index : bucket.entries) {
    const Entry& entry = entries_[index];
    const Tensor grad = Grad(entry.leaf);
    const Tensor view = ViewOf(bucket.flat, entry.leaf, entry.offset);
    if (!grad.defined()) {
      Fill(view, 0.0);
    } else if (grad.storage() != bucket.flat.storage()) {
      CopyInto(view, grad);
    }
  }
}

void GradientReducer::EndMicroBatch() {
  if (!options_.deterministic) return;
  for (Bucket& bucket : buckets_) {
    FillMissing(bucket);
    AddToTree(bucket);
    if (!bucket.flat.defined()) bucket.flat = Zeros({bucket.elements}, bucket.dtype, bucket.device);
  }
}

// Adds the micro-batch's gradients to the balanced tree: two sums of 2^level micro-batches become
// one of 2^(level+1). After the last micro-batch the whole sum lies in `flat`.
void GradientReducer::AddToTree(Bucket& bucket) {
  Tensor sum = std::move(bucket.flat);
  size_t level = 0;
  for (int64_t m = micro_batch_; (m & 1) == 1; m >>= 1, ++level) {
    AddInto(bucket.partial[level], sum);
    bucket.flat = std::move(sum);  // free to be used for the next micro-batch
    sum = std::move(bucket.partial[level]);
    bucket.partial[level] = Tensor();
  }
  if (micro_batch_ + 1 == micro_batches_) {
    bucket.flat = std::move(sum);
    return;
  }
  if (bucket.partial.size() <= level) bucket.partial.resize(level + 1);
  bucket.partial[level] = std::move(sum);
}

// --- Travelling ----------------------------------------------------------------------------------

void GradientReducer::LaunchReady() {
  while (launched_ < buckets_.size() && buckets_[launched_].awaited == 0) {
    Launch(buckets_[launched_++]);
  }
}

void GradientReducer::Launch(Bucket& bucket) {
  FillMissing(bucket);
  if (options_.deterministic) AddToTree(bucket);
  if (group_->size() == 1) return;
  if (options_.deterministic) {
    bucket.received = Empty({bucket.elements}, bucket.dtype, bucket.device);
    bucket.travelling = group_->AllToAll(bucket.received, bucket.flat);
  } else {
    bucket.travelling = group_->AllReduce(bucket.flat, ReduceOp::kSum);
  }
}

// Ends a bucket's way. Deterministic: this rank sums its chunk of all ranks in a balanced tree, and
// the chunks come together.
void GradientReducer::Land(Bucket& bucket) {
  if (bucket.travelling == nullptr) return;
  bucket.travelling->Wait();
  bucket.travelling = nullptr;
  if (!options_.deterministic) return;
  const int64_t ranks = group_->size();
  const int64_t size = bucket.elements / ranks;
  for (int64_t stride = 1; stride < ranks; stride *= 2) {
    for (int64_t r = 0; r + stride < ranks; r += 2 * stride) {
      AddInto(Chunk(bucket.received, size, r), Chunk(bucket.received, size, r + stride));
    }
  }
  bucket.travelling = group_->AllGather(bucket.flat, Chunk(bucket.received, size, 0));
}

void GradientReducer::Finish() {
  TESSERA_CHECK(in_step_ && micro_batch_ + 1 == micro_batches_, "gradient_reducer", "only ",
                micro_batch_ + 1, " of ", micro_batches_, " micro-batches have run");
  const NoGrad no_grad;
  while (launched_ < buckets_.size()) Launch(buckets_[launched_++]);
  for (Bucket& bucket : buckets_) Land(bucket);
  for (Bucket& bucket : buckets_) {
    if (bucket.travelling == nullptr) continue;
    bucket.travelling->Wait();
    bucket.travelling = nullptr;
    bucket.received = Tensor();
  }
  in_step_ = false;
  SettleUnused();
  HandOver();
  if (options_.check_reduction) CompareOverRanks();
  if (first_step_ && options_.static_graph) FollowFirstStep();
  first_step_ = false;
}

// Whether a leaf has a gradient is decided over all ranks.
void GradientReducer::SettleUnused() {
  if (options_.find_unused_parameters) {
    const Tensor used = Zeros({std::ssize(entries_)}, DType::kInt32);
    int32_t* flags = used.data<int32_t>();
    for (size_t i = 0; i < entries_.size(); ++i) flags[i] = entries_[i].used ? 1 : 0;
    if (group_->size() > 1) group_->AllReduce(used, ReduceOp::kMax)->Wait();
    for (size_t i = 0; i < entries_.size(); ++i) entries_[i].used = flags[i] != 0;
    return;
  }
  if (group_->size() == 1) return;
  for (const Entry& entry : entries_) {
    TESSERA_CHECK(entry.used, "gradient_reducer", "parameter '", entry.name,
                  "' had no gradient in this step; if that is meant, set find_unused_parameters");
  }
}

// Every leaf gets its part of the sums as its gradient.
void GradientReducer::HandOver() {
  for (const Entry& entry : entries_) {
    if (!entry.used) {
      SetGrad(entry.leaf, Tensor());
      continue;
    }
    const Tensor view = ViewOf(buckets_[entry.bucket].flat, entry.leaf, entry.offset);
    SetGrad(entry.leaf, options_.gradient_as_bucket_view ? view : CastCopy(view, view.dtype()));
  }
}

void GradientReducer::CompareOverRanks() {
  const Tensor mine = Zeros({num_buckets()}, DType::kInt64);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Tensor data = CopyTo(buckets_[b].flat, Device::Cpu());
    mine.data<int64_t>()[b] = Crc32c(data.raw_data(), static_cast<size_t>(data.nbytes()));
  }
  const Tensor all = Empty({group_->size(), num_buckets()}, DType::kInt64);
  group_->AllGather(all, mine)->Wait();
  const int64_t* sums = all.data<int64_t>();
  for (int64_t r = 1; r < group_->size(); ++r) {
    for (int64_t b = 0; b < num_buckets(); ++b) {
      TESSERA_CHECK(sums[r * num_buckets() + b] == sums[b], "check_reduction", "ranks 0 and ", r,
                    " of group ", group_->name(), " have other sums in the bucket of '",
                    entries_[buckets_[static_cast<size_t>(b)].entries[0]].name, "'");
    }
  }
}

// The order in which gradients came on rank 0, those that did not come last.
void GradientReducer::FollowFirstStep() {
  std::vector<bool> seen(entries_.size(), false);
  for (const size_t index : arrival_) seen[index] = true;
  for (size_t i = entries_.size(); i-- > 0;) {
    if (!seen[i]) arrival_.push_back(i);
  }
  const Tensor order = Empty({std::ssize(entries_)}, DType::kInt64);
  std::copy(arrival_.begin(), arrival_.end(), order.data<int64_t>());
  if (group_->size() > 1) group_->Broadcast(order, 0)->Wait();
  std::vector<Tensor> grads;
  for (const Entry& entry : entries_) grads.push_back(Grad(entry.leaf));
  const int64_t* from = order.data<int64_t>();
  MakeBuckets(std::vector<size_t>(from, from + entries_.size()));
  for (size_t i = 0; i < entries_.size(); ++i) {  // they keep the old buckets until the next step
    SetGrad(entries_[i].leaf, grads[i]);
  }
}

}  // namespace tessera::dist
