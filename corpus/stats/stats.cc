// SPDX-License-Identifier: Apache-2.0
#include "corpus/stats/stats.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/json_text.h"
#include "corpus/engine/document_pass.h"
#include "corpus/io/record_reader.h"
#include "corpus/stats/tally.h"
#include "data/dataset/token_cache.h"

namespace tessera::corpus {
namespace {

using nlohmann::json;

constexpr size_t kMostDomains = 100000;  // that are counted apart
constexpr size_t kExamples = 5;
constexpr size_t kExampleBytes = 200;

// Lists of what was dropped, as steps write them.
StatusOr<std::map<std::string, DropTally>> ReadDrops(const std::vector<std::string>& paths) {
  std::map<std::string, DropTally> drops;
  if (paths.empty()) return drops;
  TESSERA_ASSIGN_OR_RETURN(const auto reader, RecordReader::Open(paths, {}));
  for (Block block;;) {
    TESSERA_ASSIGN_OR_RETURN(const bool more, reader->Next(&block));
    if (!more) break;
    for (const Record& record : block.records) {
      const std::string_view line =
          std::string_view(block.bytes)
              .substr(static_cast<size_t>(record.offset), static_cast<size_t>(record.size));
      const size_t id = line.find('\t'), filter = line.find('\t', id + 1);
      if (id == std::string_view::npos || filter == std::string_view::npos) {
        return InvalidArgument(block.path, ": no list of what was dropped (id, filter, value)");
      }
      DropTally& drop = drops[std::string(line.substr(id + 1, filter - id - 1))];
      ++drop.count;
      if (drop.examples.size() >= kExamples) continue;
      drop.examples.emplace_back(line.substr(0, id), line.substr(filter + 1, kExampleBytes));
    }
  }
  return drops;
}

Status WritePage(const StatsOptions& options, const std::string& tallies) {
  Tally all;
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(tallies));
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    TESSERA_ASSIGN_OR_RETURN(const json told, ParseJson(line, tallies));
    TESSERA_ASSIGN_OR_RETURN(const Tally tally, Tally::FromJson(told));
    all.Add(tally);
    all.Shorten(kMostDomains);
  }
  TESSERA_ASSIGN_OR_RETURN(const auto drops, ReadDrops(options.drops));
  return WriteFileAtomically(options.output, StatsPage(options.title, all, drops));
}

}  // namespace

const OptionTable& StatsOptions::Table() {
  static const auto* const table = new OptionTable(
      OptionTable::Of<StatsOptions>("Statistics")
          .Add("input", &StatsOptions::input,
               "files of documents, or directories of them; may be given several times",
               {.type = "FILE"})
          .Add("output", &StatsOptions::output, "the page, an HTML file that needs no other",
               {.type = "FILE"})
          .Add("drops", &StatsOptions::drops,
               "lists of what steps dropped; the page shows filters with examples",
               {.unset = "none"})
          .Add("text_key", &StatsOptions::text_key, "the member of JSON lines that is the text")
          .Add("title", &StatsOptions::title, "the page's title")
          .Add("overwrite", &StatsOptions::overwrite,
               "replace an output that is no page of this step"));
  return *table;
}

StatusOr<Counts> RunStats(const StatsOptions& options, const RunContext& context) {
  const std::string folder = options.output + ".work";
  DocumentPass pass;
  pass.name = "stats";
  pass.files.input = options.input;
  pass.files.output = options.output;
  pass.files.text_key = options.text_key;
  pass.made_from = {{"title", options.title}};
  TESSERA_ASSIGN_OR_RETURN(pass.made_from["drops"], data::DescribeFiles(options.drops));
  TESSERA_ASSIGN_OR_RETURN(const BlockRun whole, MakeBlockRun(pass));
  BlockRun run = whole;
  run.outputs = {JoinPath(folder, "tallies")};
  run.work = [&](const Block& block, BlockResult* result) -> Status {
    Tally tally;
    CountDocuments(block, options.text_key, &result->counts, [&](Document& document) {
      tally.Add(document);
      return true;
    });
    result->outputs[0] = tally.ToJson().dump() + "\n";
    return OkStatus();
  };
  return RunThrough(whole, {run}, folder, context,
                    [&] { return WritePage(options, run.outputs[0]); });
}

}  // namespace tessera::corpus
