// SPDX-License-Identifier: Apache-2.0
#include "dist/dry_run/dry_run.h"

#include "base/error.h"
#include "dist/store/host_memory.h"

namespace tessera::dist {

void DryRun(const DryRunRanks& ranks,
            const std::function<void(const Mesh& mesh, RankMeter& meter)>& body) {
  const Status valid = CheckMesh(ranks.sizes, ranks.world_size);
  TESSERA_CHECK(valid.ok(), "dry_run", Message(valid));
  TESSERA_CHECK(ranks.device.is_meta(), "dry_run", "on ", ranks.device, ", which has data");
  const int dp_size = ranks.world_size / (ranks.sizes.tp * ranks.sizes.pp);
  const int edp_size = dp_size / ranks.sizes.ep;
  // dist/mesh/mesh.h has the order of ranks.
  const int place = ranks.dp_rank % edp_size * ranks.sizes.ep + ranks.dp_rank / edp_size;
  const auto run = [&](const Group& pp, const std::shared_ptr<RankMeter>& meter) {
    const int rank = (pp->rank() * dp_size + place) * ranks.sizes.tp + ranks.tp_rank;
    const GroupMaker make = [&](int r, int size, const std::string& name) -> Group {
      if (name == pp->name()) return pp;
      return CountingCommunicator(LoneRankCommunicator(r, size, name), meter);
    };
    body(Mesh(ranks.sizes, ranks.world_size, rank, make), *meter);
  };
  MeasureRanks(ranks.sizes.pp, {ranks.device, HostMemoryOf(ranks.device), Device::Cpu()}, run,
               "pp");
}

}  // namespace tessera::dist
