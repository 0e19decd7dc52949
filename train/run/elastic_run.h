// SPDX-License-Identifier: Apache-2.0
// A run whose ranks come and go (`tessera launch --max-restarts`): what its launcher tells each
// rank, and the layout on the ranks that are left.
//
//   TESSERA_ASSIGN_OR_RETURN(const std::optional<ElasticRun> elastic,
//                            ElasticRun::Of(std::getenv(ElasticRun::kVariable)));
//   if (elastic) config = LayoutOn(config, elastic->ranks, world.size).value_or(config);
#ifndef TESSERA_TRAIN_RUN_ELASTIC_RUN_H_
#define TESSERA_TRAIN_RUN_ELASTIC_RUN_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "train/config/run_config.h"

namespace tessera::train {

struct ElasticRun {
  static constexpr char kVariable[] = "TESSERA_ELASTIC";

  std::string folder;      // of checkpoints in this host's memory
  std::string host;        // whose ranks share the folder
  int64_t interval = 10;   // steps between two of these checkpoints; 0: there are none
  int ranks = 1;           // for which the run's layout was written
  bool restarted = false;  // an earlier start of the same run has ended

  // The value of the variable.
  std::string ToText() const;
  // nullopt for nullptr. InvalidArgument, naming the variable, for anything but what ToText gives.
  static StatusOr<std::optional<ElasticRun>> Of(const char* text);
};

// What a rank says after every step, in a file of the folder.
struct RankProgress {
  bool from_memory = false;  // it continued from a checkpoint in the hosts' memory
  int64_t begun_at = -1;     // the step that its start continued from
  int64_t step = -1;         // that it has done last
  double worked = 0;  // seconds of its steps in which it did not wait for other ranks, in all
};
Status WriteProgress(const std::string& folder, int rank, const RankProgress& progress);
// nullopt: it has not said anything.
std::optional<RankProgress> ReadProgress(const std::string& folder, int rank);
void RemoveProgress(const std::string& folder, int rank);

// The layout of a run, written for `ranks` ranks, on `others`: it computes the same steps, from the
// same micro-batches. tp, pp, cp and ep stay where they can, else each becomes a divisor of what it
// was. nullopt: there is no such layout.
std::optional<RunConfig> LayoutOn(const RunConfig& config, int ranks, int others);

// The most ranks, at most `there`, on which the run has a layout; 0: none.
int MostRanks(const RunConfig& config, int ranks, int there);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RUN_ELASTIC_RUN_H_
