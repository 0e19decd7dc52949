// SPDX-License-Identifier: Apache-2.0
// What a step makes sure of before it writes (base/output_files.h).
#ifndef TESSERA_CORPUS_STEP_OUTPUTS_H_
#define TESSERA_CORPUS_STEP_OUTPUTS_H_

#include <memory>

#include "base/status.h"
#include "corpus/engine/block_run.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::corpus {

// What is in a step's output.
enum class StepOutput { kDocuments, kParts, kPage, kTokens };

// The right to write a step's outputs, while it lives.
class StepOutputs {
 public:
  // Rank 0 looks, all ranks get its status. Refused are: an output that is one of the inputs; one
  // that is no file (/dev/stdout, a pipe); a file that no step wrote, unless `overwrite` is among
  // the options; a folder OUTPUT.work that is not a step's; outputs, and a folder of fingerprints,
  // that another process writes (FailedPrecondition, with its number).
  //
  // A step's own file has a journal beside it (OUTPUT.journal); a page says who made it.
  static StatusOr<std::shared_ptr<StepOutputs>> Take(const nlohmann::json& options, StepOutput kind,
                                                     const RunContext& context);
  ~StepOutputs();

 private:
  struct Locks;
  StepOutputs();
  std::unique_ptr<Locks> locks_;
};

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_STEP_OUTPUTS_H_
