// SPDX-License-Identifier: Apache-2.0
#include "dist/store/parameter_shard.h"

#include <algorithm>
#include <utility>

#include "autograd/autograd.h"
#include "base/error.h"
#include "core/memory_use.h"
#include "dist/store/host_memory.h"

namespace tessera::dist {

std::shared_ptr<ParameterShard> ParameterShard::Cut(const FlatBucket& bucket, const Device& place) {
  const NoGrad no_grad;
  std::shared_ptr<ParameterShard> shard(new ParameterShard);
  shard->device_ = bucket.device;
  shard->elements_ = bucket.elements;
  const Tensor full = Zeros({bucket.elements}, bucket.dtype, bucket.device);
  for (const FlatSlot& slot : bucket.slots) {
    const Tensor whole = slot.leaf.Detach();
    TESSERA_CHECK(whole.is_contiguous() && whole.offset() == 0, "store", "parameter '", slot.name,
                  "' is a view: ", whole);
    {
      const GatheredScope scope({whole});
      CopyInto(SlotView(full, slot), whole);
    }
    const std::shared_ptr<Storage>& storage = whole.storage();
    storage->ReleaseBytes();
    storage->set_keeper(shard);
    shard->members_.push_back(
        {slot.name, storage, static_cast<size_t>(slot.offset) * DTypeSize(bucket.dtype)});
  }
  const ElementRange mine = bucket.Share();
  shard->owner_ = bucket.owner;
  shard->begin_ = mine.begin;
  shard->share_ = Empty({mine.end - mine.begin}, bucket.dtype, place);
  CopyInto(shard->share_, FlatView(full, mine.begin, mine.end - mine.begin));
  shard->group_ = bucket.ranks;
  return shard;
}

std::shared_ptr<ParameterShard> ParameterShard::Of(const Tensor& t) {
  return std::dynamic_pointer_cast<ParameterShard>(t.storage()->keeper());
}

std::string ParameterShard::WhyReleased(const Storage& storage) const {
  const auto member = std::find_if(members_.begin(), members_.end(), [&](const Member& m) {
    return m.storage.lock().get() == &storage;
  });
  return Concat("parameter '", member == members_.end() ? "?" : member->name, "' is cut over the ",
                group_->size(), " ranks of group ", group_->name(), " and not gathered on rank ",
                group_->rank(), "; use it within a dist::GatheredScope (ParameterStore::Gather), ",
                "which all of them open");
}

void ParameterShard::Acquire() {
  if (++holders_ > 1) return;
  const MemoryUseScope use(MemoryUse::kBucket);
  whole_ = Empty({elements_}, share_.dtype(), device_);
  Gather();
}

void ParameterShard::AcquireToOverwrite() {
  // Of several parameters one would keep what it has.
  if (holders_ > 0 || members_.size() > 1) {
    Acquire();
    return;
  }
  ++holders_;
  const MemoryUseScope use(MemoryUse::kBucket);
  whole_ = Zeros({elements_}, share_.dtype(), device_);
  Lend();
}

void ParameterShard::Gather() {
  const NoGrad no_grad;
  const MemoryUseScope use(MemoryUse::kBucket);
  if (owner_ >= 0) {
    if (group_->rank() == owner_) CopyInto(whole_, share_);
    travelling_ = group_->Broadcast(whole_, owner_);
    return;
  }
  sent_ = CanRead(device_, share_.device()) ? share_ : CopyTo(share_, device_);
  travelling_ = group_->AllGather(whole_, sent_);
}

void ParameterShard::Await() {
  if (travelling_ == nullptr) return;
  travelling_->Wait();
  travelling_ = nullptr;
  sent_ = Tensor();
  Lend();
}

// The parameters' storages borrow the whole.
void ParameterShard::Lend() {
  for (const Member& member : members_) {
    const std::shared_ptr<Storage> storage = member.storage.lock();
    if (storage != nullptr && storage->released()) storage->Borrow(whole_.storage(), member.offset);
  }
}

void ParameterShard::Return(bool written) {
  Await();
  if (written) {
    const NoGrad no_grad;
    CopyInto(share_, FlatView(whole_, begin_, share_.numel()));
  }
  if (--holders_ > 0) return;
  for (const Member& member : members_) {
    const std::shared_ptr<Storage> storage = member.storage.lock();
    if (storage != nullptr) storage->ReleaseBytes();
  }
  whole_ = Tensor();
}

void ParameterShard::ShareChanged() {
  for (const Member& member : members_) {
    const std::shared_ptr<Storage> storage = member.storage.lock();
    if (storage != nullptr) storage->BumpVersion();
  }
  if (holders_ == 0) return;
  Await();
  Gather();
}

GatheredScope::GatheredScope(const std::vector<Tensor>& parameters, GatherFor use)
    : writes_(use != GatherFor::kReading) {
  for (const Tensor& t : parameters) {
    const std::shared_ptr<ParameterShard> shard = ParameterShard::Of(t);
    if (shard == nullptr) continue;
    if (std::find(shards_.begin(), shards_.end(), shard) != shards_.end()) continue;
    if (use == GatherFor::kOverwriting) {
      shard->AcquireToOverwrite();
    } else {
      shard->Acquire();
    }
    shards_.push_back(shard);
  }
  for (const auto& shard : shards_) shard->Await();
}

// Another rank may have failed meanwhile, which whoever waits for it next is told.
GatheredScope::~GatheredScope() {
  for (const auto& shard : shards_) {
    try {
      shard->Return(writes_);
    } catch (const std::exception&) {
    }
  }
}

GatheredScope::GatheredScope(GatheredScope&& other) noexcept
    : shards_(std::exchange(other.shards_, {})), writes_(other.writes_) {}

GatheredScope& GatheredScope::operator=(GatheredScope&& other) noexcept {
  std::swap(shards_, other.shards_);
  std::swap(writes_, other.writes_);
  return *this;
}

}  // namespace tessera::dist
