// SPDX-License-Identifier: Apache-2.0
// Where a step whose numbers are not finite began to go wrong, over all ranks.
//
//   std::optional<BadNumber> mine = loop.FindBadNumber(batches, step);       // on every rank
//   const std::optional<BadStep> first = FirstOfRanks(mesh, mine, micro_batches);
//   if (first) message += first->Text(mesh);
//
// Ranks order what they found as one process meets it: by micro-batch of the whole step, forward
// before backward, by the chunk of the model, by the operation; so every layout names the same.
// Experts work on the tokens of other ranks: what a rank was sent by an expert's rank is the fault
// of that rank's operation, in the micro-batch whose tokens it came back to.
#ifndef TESSERA_TRAIN_RUN_BAD_STEP_H_
#define TESSERA_TRAIN_RUN_BAD_STEP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autograd/finite_watch.h"
#include "base/status.h"
#include "dist/mesh/mesh.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::train {

// In a run's folder: `bad_step.json` says what was found (BadStep::ToJson, with the step), and
// `bad_step/` is a checkpoint of what the step began with, for `tessera replay`.
inline constexpr char kBadStep[] = "bad_step";

// A row of the micro-batch.
struct BadSample {
  int64_t index = 0;      // in the data, from 0
  int64_t position = 0;   // in the line of all samples ever drawn
  std::string name = {};  // Dataset::NameOf
  std::string text = {};  // of a tokenizer, its beginning
};

struct BadStep {
  int64_t rank = 0;
  BadNumber number;
  std::vector<BadSample> samples = {};

  // "on rank 1 in the forward pass of micro-batch 3 (samples 17 and 40): result 0 of ..."; what
  // there is one of is left out.
  std::string Text(const dist::Mesh& mesh) const;
  nlohmann::ordered_json ToJson() const;
};

// The first that ranks have found, the same on all, its samples left out; nullopt: none has.
// `micro_batches` of a rank in a step. Collective over the mesh's world.
std::optional<BadStep> FirstOfRanks(const dist::Mesh& mesh, const std::optional<BadNumber>& mine,
                                    int64_t micro_batches);

// What `bad_step.json` says of a run.
struct WrittenBadStep {
  int64_t step = 0;        // from 1
  int64_t data_ranks = 1;  // the run's
  BadStep bad;             // without samples
};
// Fails with one line that names the file and the key that is missing or has another value than a
// run writes.
StatusOr<WrittenBadStep> ReadBadStep(const std::string& path);

// " (samples 17 and 40)" of a line; empty: none is known.
std::string SamplesText(const std::vector<BadSample>& samples);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RUN_BAD_STEP_H_
