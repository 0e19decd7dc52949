// SPDX-License-Identifier: Apache-2.0
#include "dist/store/flat_bucket.h"

#include <algorithm>
#include <map>
#include <utility>

#include "autograd/autograd.h"
#include "base/checksum.h"
#include "base/error.h"

namespace tessera::dist {
namespace {

int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

DType GradDTypeOf(const FlatSlot& slot) {
  return slot.trains ? GradDType(slot.leaf) : slot.leaf.dtype();
}

bool Alone(const FlatSlot& slot) { return slot.shared || !slot.tied.empty(); }

bool Belongs(const FlatSlot& slot, const FlatBucket& bucket) {
  return bucket.ranks == slot.ranks && bucket.dtype == slot.leaf.dtype() &&
         bucket.grad_dtype == GradDTypeOf(slot) && bucket.device == slot.leaf.device() &&
         bucket.trains == slot.trains && bucket.model == slot.model && bucket.unit == slot.unit &&
         bucket.persistent == slot.persistent && bucket.gradient_group == slot.gradient_group &&
         bucket.owner == slot.owner && !Alone(slot) && !Alone(bucket.slots.front());
}

bool CoversAll(const Placement& placement) {
  if (placement.boxes().size() != 1) return false;
  const BoxMapping& box = placement.boxes().front();
  return box.global.size == placement.local_shape();
}

int64_t FlatIndex(const Shape& index, const Shape& strides) {
  int64_t flat = 0;
  for (int d = 0; d < index.ndim(); ++d) flat += index[d] * strides[d];
  return flat;
}

}  // namespace

ElementRange FlatBucket::ShareOf(int rank) const {
  if (owner < 0) return {rank * share, (rank + 1) * share};
  return {0, rank == owner ? elements : 0};
}

ElementRange FlatBucket::PieceOf(const FlatSlot& slot, int rank) const {
  const ElementRange mine = ShareOf(rank);
  const int64_t begin = std::clamp<int64_t>(mine.begin - slot.offset, 0, slot.numel());
  const int64_t end = std::clamp<int64_t>(mine.end - slot.offset, begin, slot.numel());
  return {begin, end};
}

Tensor FlatBucket::PieceOfShare(const Tensor& whole_share, const FlatSlot& slot, int rank) const {
  const ElementRange piece = PieceOf(slot, rank);
  const int64_t n = piece.end - piece.begin;
  return FlatView(whole_share, n == 0 ? 0 : PlaceOf(slot, piece, rank), n);
}

// Largest first, each to the rank that has least. What other stages hold too must have one owner
// wherever it lies: its name says which.
void ChooseOwners(std::vector<FlatSlot>* slots) {
  std::map<const Communicator*, std::vector<int64_t>> loads;
  const auto load_of = [&](const FlatSlot& slot) -> std::vector<int64_t>& {
    std::vector<int64_t>& load = loads[slot.ranks.get()];
    load.resize(static_cast<size_t>(slot.ranks->size()), 0);
    return load;
  };
  const auto give = [&](FlatSlot& slot, size_t owner) {
    slot.owner = static_cast<int>(owner);
    load_of(slot)[owner] += slot.placement.global_shape().numel();
  };
  std::vector<FlatSlot*> alone;
  for (FlatSlot& slot : *slots) {
    if (!slot.whole || slot.ranks->size() == 1) continue;
    if (slot.shared) {
      give(slot, Crc32c(slot.name.data(), slot.name.size()) % load_of(slot).size());
    } else {
      alone.push_back(&slot);
    }
  }
  std::stable_sort(alone.begin(), alone.end(), [](const FlatSlot* a, const FlatSlot* b) {
    return a->placement.global_shape().numel() > b->placement.global_shape().numel();
  });
  for (FlatSlot* slot : alone) {
    const std::vector<int64_t>& load = load_of(*slot);
    give(*slot, static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin()));
  }
}

std::vector<FlatBucket> MakeFlatBuckets(std::vector<FlatSlot> slots, double cap_bytes) {
  std::vector<FlatBucket> buckets;
  std::vector<size_t> open;
  for (FlatSlot& slot : slots) {
    const auto found =
        std::find_if(open.begin(), open.end(), [&](size_t b) { return Belongs(slot, buckets[b]); });
    const double size = static_cast<double>(DTypeSize(GradDTypeOf(slot)));
    const bool fits =
        found != open.end() &&
        (cap_bytes <= 0 ||
         static_cast<double>(buckets[*found].elements + slot.numel()) * size <= cap_bytes);
    size_t index = buckets.size();
    if (fits) {
      index = *found;
    } else {
      if (found != open.end()) open.erase(found);
      open.push_back(index);
      FlatBucket bucket;
      bucket.ranks = slot.ranks;
      bucket.dtype = slot.leaf.dtype();
      bucket.grad_dtype = GradDTypeOf(slot);
      bucket.device = slot.leaf.device();
      bucket.trains = slot.trains;
      bucket.model = slot.model;
      bucket.unit = slot.unit;
      bucket.persistent = slot.persistent;
      bucket.owner = slot.owner;
      bucket.gradient_group = slot.gradient_group;
      buckets.push_back(std::move(bucket));
    }
    FlatBucket& bucket = buckets[index];
    slot.offset = bucket.elements;
    bucket.elements += RoundUp(slot.numel(), kFlatAlignment);
    bucket.slots.push_back(std::move(slot));
  }
  for (FlatBucket& bucket : buckets) {
    const int ranks = bucket.ranks->size();
    bucket.share = RoundUp((bucket.elements + ranks - 1) / ranks, kFlatAlignment);
    bucket.elements = bucket.share * ranks;
  }
  return buckets;
}

Tensor FlatView(const Tensor& flat, int64_t begin, int64_t n) {
  return flat.AsStrided({n}, {1}, flat.offset() + begin);
}

Tensor SlotView(const Tensor& flat, const FlatSlot& slot) {
  const Shape& shape = slot.leaf.shape();
  return flat.AsStrided(shape, ContiguousStrides(shape), flat.offset() + slot.offset);
}

void AppendPieceEntries(const std::string& name, const Tensor& piece, const Placement& placement,
                        const ElementRange& range, std::vector<CheckpointTensor>* entries) {
  if (range.begin == range.end) return;
  if (CoversAll(placement)) {
    entries->push_back({name, piece, placement, range});
    return;
  }
  // A tensor-parallel part of several boxes, or a padded one: box by box.
  const Shape& local = placement.local_shape();
  const Shape strides = ContiguousStrides(local);
  Shape origin = local;
  for (int d = 0; d < origin.ndim(); ++d) origin[d] = 0;
  for (const Box& part : BoxesOf({{origin, local}, range})) {
    for (const BoxMapping& mapping : placement.boxes()) {
      const auto shared = Intersection(part, {mapping.local_begin, mapping.global.size});
      if (!shared) continue;
      Shape global_begin = mapping.global.begin;
      for (int d = 0; d < local.ndim(); ++d) {
        global_begin[d] += shared->begin[d] - mapping.local_begin[d];
      }
      const Tensor view = piece.AsStrided(
          shared->size, strides, piece.offset() + FlatIndex(shared->begin, strides) - range.begin);
      entries->push_back({name, view,
                          Placement(placement.global_shape(), shared->size,
                                    {BoxMapping{{global_begin, shared->size}, origin}})});
    }
  }
}

}  // namespace tessera::dist
