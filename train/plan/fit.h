// SPDX-License-Identifier: Apache-2.0
// Layouts of a run that fit a memory, the fastest first.
//
//   TESSERA_ASSIGN_OR_RETURN(const std::vector<FittedLayout> fits,
//                            FindLayouts(config, {.ranks = 64, .cache = "tmp"}, 80 << 30,
//                            machine));
//   fits[0].plan.config.tp
//
// The search keeps what the run computes: model, data, optimizer, dtype, and the rows of a step. Of
// every tp (up to a node's devices, or 8), pp, cp (rows of 8192 tokens and more) and ep (of a model
// with experts) it tries micro-batches from the configuration's own down, and for each what saves
// memory, in the order of what it costs: ZeRO 1, recomputation, ZeRO 2, ZeRO 3, off-loading. The
// first that fits stands for its tp, pp, cp and ep. Each layout that is tried is planned whole.
#ifndef TESSERA_TRAIN_PLAN_FIT_H_
#define TESSERA_TRAIN_PLAN_FIT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "train/plan/machine.h"
#include "train/plan/plan.h"

namespace tessera::train {

struct FittedLayout {
  Plan plan;                     // its configuration is the run's in this layout
  std::optional<StepTime> time;  // nullopt: no machine was given
  // The flags that make it, "--tp 2 --zero 1 ...".
  std::string Flags() const;
};

// By their time; without a machine by the FLOPs that run and the pipeline's idle share (Narayanan
// et al. 2021: (p - 1) / m), then by the bytes sent. None: nothing
// fits. Fails where no layout can be planned at all.
StatusOr<std::vector<FittedLayout>> FindLayouts(const RunConfig& config, const PlanOptions& options,
                                                int64_t bytes,
                                                const std::optional<Machine>& machine);

// Of those, the one with the run's own tp, pp, cp and ep and the least that saves memory, if one
// fits, or else the first. nullopt: nothing fits.
StatusOr<std::optional<FittedLayout>> NearestLayout(const RunConfig& config,
                                                    const PlanOptions& options, int64_t bytes);

// "80GiB", "80GB", "1.5TiB", "1000000" as bytes.
StatusOr<int64_t> ParseBytes(const std::string& text);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_PLAN_FIT_H_
