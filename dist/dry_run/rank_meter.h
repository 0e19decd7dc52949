// SPDX-License-Identifier: Apache-2.0
// What each of several ranks uses, though they are threads of one process: its memory, and what it
// communicates.
//
//   MeasureRanks(4, {Device::Cpu(), Device::Host()}, [&](const Group& world, const auto& meter) {
//     const Mesh mesh(world, {.tp = 2});
//     ... a training step ...
//     peak[world->rank()] = meter->peak_bytes(Device::Cpu());
//   });
//
// Ranks take turns: one runs while the others wait, and what allocators count meanwhile is its own.
// A turn ends where a rank may have to wait for others, in a call to a communicator. So whatever
// else a rank waits for must not be another rank.
#ifndef TESSERA_DIST_DRY_RUN_RANK_METER_H_
#define TESSERA_DIST_DRY_RUN_RANK_METER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/device.h"
#include "core/memory_use.h"
#include "dist/comm/counting_communicator.h"
#include "dist/mesh/mesh.h"

namespace tessera::dist {

class RankMeter final : public CommRecord {
 public:
  // Who has the turn.
  class Turns;
  RankMeter(std::shared_ptr<Turns> turns, const std::vector<Device>& devices);

  // Bytes of this rank on a device that is measured, as its allocator counts them: now, and the
  // most of them since the beginning or ResetPeaks. During this rank's turn.
  int64_t current_bytes(const Device& device) const;
  int64_t peak_bytes(const Device& device) const;
  // Of peak_bytes on a device on meta: buckets and workspaces that were live then (none of others).
  UseBytes peak_uses(const Device& device) const;
  void ResetPeaks();

  void BeginTurn();
  void EndTurn();

 private:
  struct Use {
    Device device;
    int64_t current = 0;  // when the turn began
    int64_t peak = 0;     // until then
    int64_t total = 0;    // of all ranks, when the turn began
    UseBytes current_uses = {};
    UseBytes peak_uses = {};
    UseBytes total_uses = {};
  };
  void BeforeWaiting() override { EndTurn(); }
  void AfterWaiting() override { BeginTurn(); }
  const Use& UseOf(const Device& device) const;

  const std::shared_ptr<Turns> turns_;
  std::vector<Use> uses_;
};

// Runs `body` once per rank, each on a thread of its own with its rank of a group called `name`,
// which counts for its meter. Rethrows the exception that was thrown first. Nobody else uses the
// devices meanwhile.
void MeasureRanks(
    int ranks, const std::vector<Device>& devices,
    const std::function<void(const Group& group, const std::shared_ptr<RankMeter>& meter)>& body,
    const std::string& name = "world");

}  // namespace tessera::dist

#endif  // TESSERA_DIST_DRY_RUN_RANK_METER_H_
