#include "dist/zero/shard_norm.h"

#include <algorithm>
#include <utility>

#include "autograd/autograd.h"
#include "optim/clip.h"

namespace tessera::dist {
namespace {

constexpr int64_t kChunk = optim::kNormChunk;

int64_t ChunksOf(int64_t n) { return (n + kChunk - 1) / kChunk; }

// The elements as bytes.
Tensor Bytes(const Tensor& t) {
  return Tensor(t.storage(), {t.nbytes()}, {1},
                t.offset() * static_cast<int64_t>(DTypeSize(t.dtype())), DType::kUInt8);
}

Device ComputeDevice(const std::vector<FlatBucket>& buckets) {
  return buckets.empty() ? Device::Cpu() : buckets.front().device;
}

}  // namespace

ShardNorm::ShardNorm(const std::vector<FlatBucket>& buckets, std::shared_ptr<Communicator> group,
                     bool exact)
    : buckets_(buckets), group_(std::move(group)), exact_(exact || group_->size() == 1) {
  Plan();
}

void ShardNorm::Plan() {
  struct Place {
    size_t order;
    size_t bucket;
    size_t slot;
  };
  std::vector<Place> places;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    first_chunk_.emplace_back(buckets_[b].slots.size(), 0);
    if (!buckets_[b].trains) continue;
    for (size_t s = 0; s < buckets_[b].slots.size(); ++s) {
      places.push_back({buckets_[b].slots[s].order, b, s});
    }
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.order < b.order; });
  for (const Place& place : places) {
    first_chunk_[place.bucket][place.slot] = chunks_;
    chunks_ += ChunksOf(buckets_[place.bucket].slots[place.slot].numel());
  }
  const int ranks = group_->size();
  sent_.resize(static_cast<size_t>(ranks));
  received_.resize(static_cast<size_t>(ranks));
  if (!exact_ || ranks == 1) return;
  std::vector<int64_t> bytes(static_cast<size_t>(ranks) * static_cast<size_t>(ranks), 0);
  for (const Place& place : places) {
    const FlatBucket& bucket = buckets_[place.bucket];
    const FlatSlot& slot = bucket.slots[place.slot];
    for (int from = 1; from < ranks; ++from) {
      const ElementRange piece = bucket.PieceOf(slot, from);
      const int64_t chunk_begin = piece.begin / kChunk * kChunk;
      if (piece.begin == piece.end || chunk_begin == piece.begin) continue;
      const auto to = static_cast<int>((slot.offset + chunk_begin) / bucket.share);
      const ElementRange range = {piece.begin, std::min(piece.end, chunk_begin + kChunk)};
      int64_t& used = bytes[static_cast<size_t>(from * ranks + to)];
      const Fragment fragment = {place.bucket, place.slot, range, used};
      used += (range.end - range.begin) * static_cast<int64_t>(DTypeSize(bucket.grad_dtype));
      message_ = std::max(message_, used);
      if (from == group_->rank()) sent_[static_cast<size_t>(to)].push_back(fragment);
      if (to == group_->rank()) received_[static_cast<size_t>(from)].push_back(fragment);
    }
  }
}

Tensor ShardNorm::Exchange(const GradientShards& gradients) const {
  if (message_ == 0) return Tensor();
  const Device device = ComputeDevice(buckets_);
  const int64_t ranks = group_->size();
  const Tensor out = Zeros({ranks * message_}, DType::kUInt8, device);
  const Tensor in = Empty({ranks * message_}, DType::kUInt8, device);
  for (int64_t to = 0; to < ranks; ++to) {
    for (const Fragment& f : sent_[static_cast<size_t>(to)]) {
      const FlatBucket& bucket = buckets_[f.bucket];
      const int64_t place = bucket.PlaceOf(bucket.slots[f.slot], f.range, group_->rank());
      const Tensor part =
          Bytes(FlatView(gradients.share(f.bucket), place, f.range.end - f.range.begin));
      CopyInto(FlatView(out, to * message_ + f.place, part.numel()), part);
    }
  }
  group_->AllToAll(in, out)->Wait();
  return in;
}

std::vector<ShardNorm::Part> ShardNorm::Parts(
    const GradientShards& gradients, const std::function<bool(const FlatSlot&)>& counted) const {
  const Tensor received = exact_ ? Exchange(gradients) : Tensor();
  std::vector<Part> parts;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const FlatBucket& bucket = buckets_[b];
    if (!bucket.trains) continue;
    const Tensor& share = gradients.share(b);
    for (size_t s = 0; s < bucket.slots.size(); ++s) {
      const FlatSlot& slot = bucket.slots[s];
      ElementRange piece = bucket.PieceOf(slot, group_->rank());
      if (piece.begin == piece.end || !counted(slot)) continue;
      if (exact_) piece.begin = std::min(piece.end, ChunksOf(piece.begin) * kChunk);
      int64_t whole_end = piece.end;
      if (exact_ && piece.end < slot.numel()) {
        whole_end = std::max(piece.begin, piece.end / kChunk * kChunk);
      }
      const int64_t first = first_chunk_[b][s];
      if (whole_end > piece.begin) {
        const ElementRange whole = {piece.begin, whole_end};
        parts.push_back(
            {FlatView(share, bucket.PlaceOf(slot, whole, group_->rank()), whole_end - piece.begin),
             first + piece.begin / kChunk});
      }
      if (whole_end == piece.end) continue;
      // The chunk that goes on on other ranks.
      const ElementRange mine = {whole_end, piece.end};
      const int64_t n = std::min(kChunk, slot.numel() - whole_end);
      const Tensor chunk = Zeros({n}, bucket.grad_dtype, share.device());
      CopyInto(FlatView(chunk, 0, mine.end - mine.begin),
               FlatView(share, bucket.PlaceOf(slot, mine, group_->rank()), mine.end - mine.begin));
      for (size_t from = 0; from < received_.size(); ++from) {
        for (const Fragment& f : received_[from]) {
          if (f.bucket != b || f.slot != s || f.range.begin / kChunk != whole_end / kChunk)
            continue;
          const Tensor place =
              Bytes(FlatView(chunk, f.range.begin - whole_end, f.range.end - f.range.begin));
          CopyInto(place, FlatView(received, static_cast<int64_t>(from) * message_ + f.place,
                                   place.numel()));
        }
      }
      parts.push_back({chunk, first + whole_end / kChunk});
    }
  }
  return parts;
}

Tensor ShardNorm::SquaredNorm(const GradientShards& gradients,
                              const std::function<bool(const FlatSlot&)>& counted) const {
  const NoGrad no_grad;
  const Device device = ComputeDevice(buckets_);
  const Tensor all = Zeros({chunks_}, DType::kFloat64, device);
  const Tensor total = Zeros({}, DType::kFloat64, device);
  const std::vector<Part> parts = Parts(gradients, counted);
  for (const bool on_host : {false, true}) {
    std::vector<Tensor> tensors;
    for (const Part& part : parts) {
      if (part.elements.device().is_host() == on_host) tensors.push_back(part.elements);
    }
    if (tensors.empty()) continue;
    const Tensor sums = CopyTo(optim::ChunkSquareSums(tensors, tensors.front().device()), device);
    if (!exact_) {
      AddInto(total, optim::CombineSquareSums(sums));
      continue;
    }
    int64_t next = 0;
    for (const Part& part : parts) {
      if (part.elements.device().is_host() != on_host) continue;
      const int64_t count = ChunksOf(part.elements.numel());
      CopyInto(FlatView(all, part.first_chunk, count), FlatView(sums, next, count));
      next += count;
    }
  }
  if (!exact_) {
    group_->AllReduce(total, ReduceOp::kSum)->Wait();
    return total;
  }
  // Every chunk's sum is on one rank, and zero on the others.
  if (group_->size() > 1) group_->AllReduce(all, ReduceOp::kSum)->Wait();
  return optim::CombineSquareSums(all);
}

}  // namespace tessera::dist
