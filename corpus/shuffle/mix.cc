// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/file.h"
#include "corpus/engine/hash.h"
#include "corpus/shuffle/shuffle.h"

namespace tessera::corpus {

const OptionTable& MixOptions::Table() {
  static const auto* const table = new OptionTable(
      OptionTable::Of<MixOptions>("Mixing")
          .Include<MixOptions, StepFiles>()
          .Add("weights", &MixOptions::weights,
               "the inputs' shares of the output's documents, in their order", {.above = 0})
          .Add("documents", &MixOptions::documents, "how many documents come out, about",
               {.least = 1, .unset = "the most with which none comes twice"})
          .Add("seed", &MixOptions::seed, "another one is another choice", {.least = 0}));
  return *table;
}

StatusOr<Counts> RunMix(const MixOptions& options, const RunContext& context) {
  if (options.weights.size() != options.input.size()) {
    return InvalidArgument("mix: ", options.weights.size(), " weights for ", options.input.size(),
                           " inputs");
  }
  for (const std::string& path : options.input) {
    if (IsDirectory(path)) return InvalidArgument("mix: ", path, ": a file is needed");
  }
  const std::string folder = options.output + ".work";
  DocumentPass pass;
  pass.name = "mix";
  static_cast<StepFiles&>(pass.files) = options;
  pass.made_from = {{"weights", options.weights},
                    {"documents", options.documents.value_or(0)},
                    {"seed", options.seed}};
  TESSERA_ASSIGN_OR_RETURN(BlockRun run, MakeBlockRun(pass));
  const auto source_of = [&](const std::string& path) {
    return static_cast<size_t>(std::ranges::find(options.input, path) - options.input.begin());
  };
  // How many documents each input has.
  BlockRun count = run;
  count.name = "mix, count";
  count.outputs = {JoinPath(folder, "count")};
  count.work = [&](const Block& block, BlockResult* result) {
    int64_t documents = 0;
    ForEachDocument(block, options.text_key, [&](Document&) { ++documents; });
    result->counts[std::to_string(source_of(block.path))] += documents;
    return OkStatus();
  };
  return RunOnce(run, folder, context, [&]() -> StatusOr<Counts> {
    TESSERA_ASSIGN_OR_RETURN(const Counts counted, RunBlocks(count, context));
    const double sum = std::accumulate(options.weights.begin(), options.weights.end(), 0.0);
    std::vector<double> rates;  // copies of a document
    double most = HUGE_VAL;
    for (size_t i = 0; i < options.input.size(); ++i) {
      const auto found = counted.find(std::to_string(i));
      const auto documents = static_cast<double>(found == counted.end() ? 0 : found->second);
      if (documents == 0) return InvalidArgument("mix: ", options.input[i], ": has no document");
      rates.push_back(options.weights[i] / sum / documents);
      most = std::min(most, 1 / rates.back());
    }
    const double total = options.documents ? static_cast<double>(*options.documents) : most;
    for (double& rate : rates) rate *= total;
    run.work = [&, append = AppendFor(options.output)](const Block& block, BlockResult* result) {
      const double rate = rates[source_of(block.path)];
      ForEachDocument(block, options.text_key, [&](Document& document) {
        const uint64_t hash = Fold(static_cast<uint64_t>(options.seed) ^ kHashA,
                                   static_cast<uint64_t>(document.number) ^ kHashB);
        const double at = static_cast<double>(Fold(hash ^ kHashB, kHashA) >> 11) * 0x1p-53;
        const auto copies = static_cast<int64_t>(std::floor(rate + at));
        for (int64_t i = 0; i < copies; ++i) append(document, &result->outputs[0]);
        ++result->counts["in"];
        result->counts["out"] += copies;
        result->counts["of " + block.path] += copies;
      });
      return OkStatus();
    };
    return RunBlocks(run, context);
  });
}

}  // namespace tessera::corpus
