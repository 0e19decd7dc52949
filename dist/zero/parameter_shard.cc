#include "dist/zero/parameter_shard.h"

#include <utility>

#include "autograd/autograd.h"
#include "core/error.h"

namespace tessera::dist {

std::shared_ptr<ParameterShard> ParameterShard::Cut(const FlatBucket& bucket,
                                                    std::shared_ptr<Communicator> group,
                                                    const Device& place) {
  const NoGrad no_grad;
  std::shared_ptr<ParameterShard> shard(new ParameterShard);
  shard->device_ = bucket.device;
  shard->elements_ = bucket.elements;
  const Tensor full = Zeros({bucket.elements}, bucket.dtype, bucket.device);
  for (const FlatSlot& slot : bucket.slots) {
    const Tensor whole = slot.leaf.Detach();
    TESSERA_CHECK(whole.is_contiguous() && whole.offset() == 0, "zero", "parameter '", slot.name,
                  "' is a view: ", whole);
    CopyInto(SlotView(full, slot), whole);
    const std::shared_ptr<Storage>& storage = whole.storage();
    storage->ReleaseBytes();
    storage->SetRefill([shard] { shard->Refill(); });
    shard->members_.push_back(
        {storage, static_cast<size_t>(slot.offset) * DTypeSize(bucket.dtype)});
  }
  shard->share_ = Empty({bucket.share}, bucket.dtype, place);
  CopyInto(shard->share_, FlatView(full, group->rank() * bucket.share, bucket.share));
  shard->group_ = std::move(group);
  return shard;
}

void ParameterShard::Begin() {
  if (begun()) return;
  const NoGrad no_grad;
  const Tensor full = Empty({elements_}, share_.dtype(), device_);
  sent_ = share_.device().type == device_.type ? share_ : CopyTo(share_, device_);
  travelling_ = group_->AllGather(full, sent_);
  full_ = full;
}

void ParameterShard::Gather() {
  Begin();
  if (gathered()) return;
  travelling_->Wait();
  travelling_ = nullptr;
  sent_ = Tensor();
  for (Member& member : members_) {
    const std::shared_ptr<Storage> storage = member.storage.lock();
    if (storage == nullptr) continue;
    storage->Borrow(full_.storage(), member.offset);
    member.version = storage->version();
  }
}

void ParameterShard::Release(bool keep) {
  if (!begun()) return;
  if (travelling_ != nullptr) travelling_->Wait();
  travelling_ = nullptr;
  sent_ = Tensor();
  bool written = false;
  for (const Member& member : members_) {
    const std::shared_ptr<Storage> storage = member.storage.lock();
    if (storage == nullptr || storage->released()) continue;
    written = written || storage->version() != member.version;
    storage->ReleaseBytes();
  }
  if (written && keep) {
    const NoGrad no_grad;
    CopyInto(share_, FlatView(full_, group_->rank() * share_.numel(), share_.numel()));
  }
  full_ = Tensor();
}

void ParameterShard::BumpVersions() {
  for (Member& member : members_) {
    const std::shared_ptr<Storage> storage = member.storage.lock();
    if (storage == nullptr) continue;
    storage->BumpVersion();
    member.version = storage->version();
  }
}

void ParameterShard::Refill() {
  const std::shared_ptr<ParameterShard> alive = shared_from_this();
  Gather();
  // Whoever asks may be about to write, and has then counted the change already.
  for (Member& member : members_) --member.version;
  if (on_demand_) on_demand_();
}

}  // namespace tessera::dist
