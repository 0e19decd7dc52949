// SPDX-License-Identifier: Apache-2.0
// Steps in a row, by a file:
//
//   {
//     "input": ["crawl/"],
//     "folder": "prepared",
//     "steps": [
//       {"step": "extract"},
//       {"step": "clean", "language": ["en"], "filters": ["gopher_quality"]},
//       {"step": "dedup", "threshold": 0.8},
//       {"step": "shuffle"},
//       {"step": "stats", "output": "prepared/stats.html"},
//       {"step": "tokenize", "tokenizer": "byte", "output": "prepared/train"}
//     ]
//   }
//
// A step's keys are the options of its command. What it does not say follows: its input is the
// output of the last step before it that gave documents, the first one's the pipeline's; its output
// is folder/NN-NAME.jsonl.zst (a page .html; tokens a prefix; parts with {} for their names); what
// it drops is listed in folder/NN-NAME.dropped.tsv, and `stats` shows the lists of all steps before
// it. Behind a `split` a step names its input.
//
// A step that is done and unchanged is passed over; one that was killed continues.
#ifndef TESSERA_CORPUS_PIPELINE_PIPELINE_H_
#define TESSERA_CORPUS_PIPELINE_PIPELINE_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "corpus/step.h"

namespace tessera::corpus {

struct PlannedStep {
  const Step* step;
  std::string name;        // "02-clean"
  nlohmann::json options;  // all that the step needs
};

// InvalidArgument with the place of what is wrong: every step is checked before one begins.
StatusOr<std::vector<PlannedStep>> PlanPipeline(const nlohmann::json& pipeline,
                                                const std::string& source,
                                                const std::vector<Step>& steps);

// `in` of the first step, `out` of the last that gives documents. `overwrite` is every step's.
StatusOr<Counts> RunPipeline(const std::string& path, const std::vector<Step>& steps,
                             const RunContext& context, bool overwrite = false);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_PIPELINE_PIPELINE_H_
