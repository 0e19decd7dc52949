// SPDX-License-Identifier: Apache-2.0
// Parameters that are cut over ranks: brings a unit's before the modules that use it run, forward
// and backward, the next unit's while they run, and gives them back afterwards.
#ifndef TESSERA_DIST_STORE_GATHERED_UNITS_H_
#define TESSERA_DIST_STORE_GATHERED_UNITS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dist/store/parameter_shard.h"
#include "dist/store/unit_policy.h"

namespace tessera::dist {

struct GatherCounts {
  int64_t gathers = 0;     // of units
  int64_t prefetched = 0;  // of those, begun before they were needed
};

// Brings the parameters of units for their passes, and takes them away.
class GatheredUnits {
 public:
  // `shards[u]`: the buckets of unit u that do not stay gathered. Modules get hooks.
  GatheredUnits(std::vector<Unit> units,
                std::vector<std::vector<std::shared_ptr<ParameterShard>>> shards,
                const ZeroOptions& options);
  ~GatheredUnits();
  GatheredUnits(const GatheredUnits&) = delete;
  GatheredUnits& operator=(const GatheredUnits&) = delete;

  // Gives back what passes have left gathered.
  void ReleaseAll();

  const std::vector<Unit>& units() const { return units_; }
  const GatherCounts& counts() const { return counts_; }

 private:
  struct State {
    std::vector<std::shared_ptr<ParameterShard>> shards;
    int64_t elements = 0;
    bool held = false;   // gathered, or begun to be
    bool ahead = false;  // begun before it was needed
  };
  // A module's use of a unit.
  struct Use {
    size_t unit;
    bool looks_up;
    int64_t position = -1;  // in the order of the forward pass
  };
  void AddHooks(nn::Module* module, const std::vector<size_t>& used);
  void BeforeForward(size_t use);
  void AfterForward(size_t use);
  void BeforeBackward(size_t use);
  void AfterBackward(size_t use);
  void Begin(size_t unit);
  void Gather(size_t unit);
  void Release(size_t unit);
  // Begins with the units whose uses follow, or precede, in the order of the forward pass.
  void Prefetch(const Use& use, int step);

  const std::vector<Unit> units_;
  const ZeroOptions options_;
  std::vector<State> states_;
  std::vector<Use> uses_;
  std::vector<size_t> order_;  // of uses
  std::vector<std::pair<nn::Module*, int>> hooks_;
  int64_t alive_ = 0;
  GatherCounts counts_;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_GATHERED_UNITS_H_
