// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "corpus/engine/hash.h"
#include "corpus/shuffle/shuffle.h"

namespace tessera::corpus {
namespace {

struct Part {
  std::string name;
  double end = 0;  // of its range in [0, 1)
};

StatusOr<std::vector<Part>> ReadParts(const std::vector<std::string>& texts) {
  std::vector<Part> parts;
  double sum = 0;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    double share = 0;
    const char* const begin = text.data() + std::min(text.size(), equals + 1);
    const auto [end, error] = std::from_chars(begin, text.data() + text.size(), share);
    if (equals == 0 || equals == std::string::npos || error != std::errc() ||
        end != text.data() + text.size() || !(share > 0) || !std::isfinite(share)) {
      return InvalidArgument("split: parts: '", text, "' is no NAME=SHARE with a share above 0");
    }
    std::string name = text.substr(0, equals);
    if (std::ranges::find(parts, name, &Part::name) != parts.end()) {
      return InvalidArgument("split: parts: '", name, "' is given twice");
    }
    sum += share;
    parts.push_back({std::move(name), sum});
  }
  if (parts.empty()) return InvalidArgument("split: parts: there is none");
  for (Part& part : parts) part.end /= sum;
  parts.back().end = 2;
  return parts;
}

}  // namespace

const OptionTable& SplitOptions::Table() {
  static const auto* const table = new OptionTable(
      OptionTable::Of<SplitOptions>("Splitting")
          .Include<SplitOptions, StepFiles>()
          .Add("parts", &SplitOptions::parts,
               "names and shares of the parts; in the output's name {} stands for a part's")
          .Add("seed", &SplitOptions::seed, "another one is another choice", {.least = 0}));
  return *table;
}

StatusOr<Counts> RunSplit(const SplitOptions& options, const RunContext& context) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Part> parts, ReadParts(options.parts));
  const size_t place = options.output.find("{}");
  if (place == std::string::npos) {
    return InvalidArgument("split: output needs a {} where the part's name goes");
  }
  DocumentPass pass;
  pass.name = "split";
  static_cast<StepFiles&>(pass.files) = options;
  pass.made_from = {{"seed", options.seed}, {"parts", options.parts}};
  TESSERA_ASSIGN_OR_RETURN(BlockRun run, MakeBlockRun(pass));
  run.outputs.clear();
  for (const Part& part : parts) {
    run.outputs.push_back(std::string(options.output).replace(place, 2, part.name));
  }
  run.work = [&, append = AppendFor(options.output)](const Block& block, BlockResult* result) {
    CountDocuments(block, options.text_key, &result->counts, [&](Document& document) {
      const uint64_t hash = HashBytes(document.id(), static_cast<uint64_t>(options.seed));
      const double at = static_cast<double>(hash >> 11) * 0x1p-53;
      const auto part =
          std::ranges::find_if(parts, [&](const Part& candidate) { return at < candidate.end; });
      append(document, &result->outputs[static_cast<size_t>(part - parts.begin())]);
      ++result->counts["part " + part->name];
      return true;
    });
    return OkStatus();
  };
  return RunBlocks(run, context);
}

}  // namespace tessera::corpus
