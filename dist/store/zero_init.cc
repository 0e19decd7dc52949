// SPDX-License-Identifier: Apache-2.0
#include "dist/store/zero_init.h"

#include <functional>
#include <utility>
#include <vector>

#include "dist/store/flat_bucket.h"
#include "dist/store/host_memory.h"
#include "dist/store/parameter_shard.h"

namespace tessera::dist {

// The shards belong to the parameters' storages, so that a store that cuts a parameter anew lets go
// of the old shard.
void CutWhileBuilding(const ZeroOptions& options, const StoreGroups& ranks,
                      nn::BuildContext* build) {
  if (!options.shards_parameters()) return;
  build->on_parameter = [ranks, to_host = options.offload_parameters](nn::Parameter& p) {
    FlatSlot slot;
    slot.name = p.name;
    slot.leaf = p.tensor;
    slot.ranks = ranks.HoldersOf(p);
    std::vector<FlatSlot> slots;
    slots.push_back(std::move(slot));
    const FlatBucket bucket = MakeFlatBuckets(std::move(slots), 0).front();
    ParameterShard::Cut(bucket, to_host ? HostMemoryOf(bucket.device) : bucket.device);
  };
  build->around_loading = [](nn::Parameter& p, const std::function<void()>& write) {
    const GatheredScope scope({p.tensor}, GatherFor::kOverwriting);
    write();
  };
}

}  // namespace tessera::dist
