#include "dist/zero/zero_init.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "dist/zero/flat_bucket.h"
#include "dist/zero/parameter_shard.h"

namespace tessera::dist {

// The shards belong to the parameters' storages (they bring the elements back), so that an engine
// that cuts a parameter anew lets go of the old shard.
class ZeroInitContext::Shards {
 public:
  Shards(std::shared_ptr<Communicator> group, const ZeroInitOptions& options)
      : group_(std::move(group)), options_(options) {}

  void Add(nn::Parameter& p) {
    Reshard();
    FlatSlot slot;
    slot.name = p.name;
    slot.leaf = p.tensor;
    std::vector<FlatSlot> slots;
    slots.push_back(std::move(slot));
    const FlatBucket bucket = MakeFlatBuckets(std::move(slots), group_->size(), 0).front();
    shards_.push_back(
        ParameterShard::Cut(bucket, group_, options_.shards_on.value_or(bucket.device)));
  }

  void Reshard() {
    for (const std::weak_ptr<ParameterShard>& weak : shards_) {
      const std::shared_ptr<ParameterShard> shard = weak.lock();
      if (shard != nullptr) shard->Release();
    }
    shards_.erase(std::remove_if(shards_.begin(), shards_.end(),
                                 [](const auto& shard) { return shard.expired(); }),
                  shards_.end());
  }

 private:
  const std::shared_ptr<Communicator> group_;
  const ZeroInitOptions options_;
  std::vector<std::weak_ptr<ParameterShard>> shards_;
};

ZeroInitContext::ZeroInitContext(std::shared_ptr<Communicator> group,
                                 const ZeroInitOptions& options)
    : shards_(std::make_shared<Shards>(std::move(group), options)) {}

std::function<void(nn::Parameter&)> ZeroInitContext::on_parameter() const {
  return [shards = shards_](nn::Parameter& p) { shards->Add(p); };
}

std::function<void(nn::Parameter&)> ZeroInitContext::on_loaded() const {
  return [shards = shards_](nn::Parameter&) { shards->Reshard(); };
}

void ZeroInitContext::Reshard() const { shards_->Reshard(); }

}  // namespace tessera::dist
