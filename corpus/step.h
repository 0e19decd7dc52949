// SPDX-License-Identifier: Apache-2.0
// A step of preparing a corpus: what `tessera corpus NAME` does, and what a pipeline is made of.
//
//   const Step* step = FindStep("dedup");
//   TESSERA_ASSIGN_OR_RETURN(Counts counts,
//                            step->run({{"input", {"a.jsonl"}}, {"output", "b.jsonl"}}, context));
//
// Its options stand declared once (base/options.h): flags, keys of a pipeline's file, help and
// checks follow from the table.
#ifndef TESSERA_CORPUS_STEP_H_
#define TESSERA_CORPUS_STEP_H_

#include <functional>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "corpus/engine/block_run.h"
#include "corpus/step_outputs.h"

namespace tessera::corpus {

struct Step {
  std::string name;
  std::string help;     // one line
  std::string example;  // command lines
  const OptionTable* table;
  // Whether these are options of the step; `source` is what messages name.
  std::function<Status(const nlohmann::json& options, const std::string& source)> check;
  std::function<StatusOr<Counts>(const nlohmann::json& options, const RunContext& context)> run;
  StepOutput output = StepOutput::kDocuments;
  bool drops = true;  // documents, and can list them
};

// Fails where two names of one option are given.
Status CheckNames(const OptionTable& table, const nlohmann::json& options,
                  const std::string& source);

// What options mean together is for their own `Status Check(source) const`, where they have one.
template <typename Options>
StatusOr<Options> ParseStepOptions(const nlohmann::json& json, const std::string& source) {
  TESSERA_RETURN_IF_ERROR(CheckNames(Options::Table(), json, source));
  TESSERA_ASSIGN_OR_RETURN(Options options, ParseOptions<Options>(json, source));
  if constexpr (requires { options.Check(source); }) {
    TESSERA_RETURN_IF_ERROR(options.Check(source));
  }
  return options;
}

// Of a struct of options with `static const OptionTable& Table()`.
template <typename Options>
Step MakeStep(std::string name, std::string help, std::string example,
              StatusOr<Counts> (*run)(const Options&, const RunContext&),
              StepOutput output = StepOutput::kDocuments, bool drops = true) {
  return {name,
          std::move(help),
          std::move(example),
          &Options::Table(),
          [](const nlohmann::json& json, const std::string& source) {
            return ParseStepOptions<Options>(json, source).status();
          },
          [name, run, output](const nlohmann::json& json,
                              const RunContext& context) -> StatusOr<Counts> {
            TESSERA_ASSIGN_OR_RETURN(const Options options, ParseStepOptions<Options>(json, name));
            TESSERA_ASSIGN_OR_RETURN(const auto outputs, StepOutputs::Take(json, output, context));
            return run(options, context);
          },
          output,
          drops};
}

// In the order in which a corpus goes through them.
const std::vector<Step>& Steps();
// nullptr: there is none of this name.
const Step* FindStep(std::string_view name);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_STEP_H_
