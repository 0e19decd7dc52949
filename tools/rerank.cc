// SPDX-License-Identifier: Apache-2.0
// `tessera rerank`: the texts of a file in the order of their relevance for a query.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "models/open/open_model.h"
#include "nlohmann/json.hpp"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/settings.h"
#include "tools/text_lines.h"

namespace tessera::tools {
namespace {

struct RerankFlags : ComputeFlags {
  std::string model;
  std::string query;
  std::string input;
  std::string json_key = "text";
  std::string adapter;
  std::string tokenizer;
  int64_t top_n = 0;
  int64_t max_tokens = 0;
};

Status RunRerank(const RerankFlags& flags) {
  TESSERA_ASSIGN_OR_RETURN(const TextLines lines, TextLines::Read(flags.input, flags.json_key));
  TESSERA_ASSIGN_OR_RETURN(const nn::BuildContext build, ApplyComputeFlags(flags));
  models::OpenOptions options = {.load = {.build = build, .require_weights = true, .warn = WarnOf},
                                 .tokenizer_folder = flags.tokenizer};
  options.load.quantize = QuantizeOf(flags);
  if (!flags.adapter.empty()) options.load.adapters = {flags.adapter};
  TESSERA_ASSIGN_OR_RETURN(const models::OpenedModel opened,
                           models::OpenModel(flags.model, options));
  TESSERA_ASSIGN_OR_RETURN(const models::TextEncoder encoder, opened.encoder);
  if (const Status scores = encoder.CheckScores(*opened.model); !scores.ok()) {
    return InvalidArgument(flags.model, ": ", Message(scores));
  }
  std::vector<models::EncodedText> rows;
  for (size_t i = 0; i < lines.texts.size(); ++i) {
    auto row = encoder.PairOf(*opened.model, *opened.tokenizer, flags.query, lines.texts[i],
                              {.max_tokens = flags.max_tokens});
    if (!row.ok()) {
      return InvalidArgument(lines.PlaceOf(flags.input, i), ": ", Message(row.status()));
    }
    rows.push_back(*std::move(row));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<double> scores, encoder.Score(*opened.model, rows));
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  if (flags.top_n > 0) order.resize(std::min(order.size(), static_cast<size_t>(flags.top_n)));
  std::string out;
  for (const size_t i : order) {
    const nlohmann::ordered_json line = {
        {"index", i}, {"relevance_score", scores[i]}, {"document", {{"text", lines.texts[i]}}}};
    out += line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }
  return WriteOut(out);
}

}  // namespace

void AddRerankCommand(CLI::App& app, CommandState& state) {
  using F = RerankFlags;
  CLI::App* command =
      app.add_subcommand("rerank", "Order the texts of a file by their relevance for a query");
  OptionTable table = OptionTable::Of<F>("Options");
  table
      .Add("model", &F::model, "a folder of a cross-encoder: a classifier with one label",
           {.type = "MODEL"})
      .Add("query", &F::query, "what is asked for", {.type = "TEXT"})
      .Add("input", &F::input, kTextLinesHelp, {.type = "FILE"})
      .Add("json_key", &F::json_key, kTextKeyHelp, {.type = "KEY"})
      .Add("top_n", &F::top_n, "only the best so many; 0: all", {.least = 0})
      .Add("max_tokens", &F::max_tokens,
           "longer pairs are cut to so many tokens; 0: as the folder says", {.least = 0})
      .Add("adapter", &F::adapter, kAdapterHelp, {.type = "DIR"})
      .Add("tokenizer", &F::tokenizer, kTokenizerHelp,
           {.type = "DIR", .unset = "the model's folder"})
      .Include<F, ComputeFlags>();
  command->footer(
      "Prints a line of JSON for each text, the best first: its number from 0 (`index`), its\n"
      "`relevance_score` and itself, as /v1/rerank has them.\n"
      "Example:\n"
      "  tessera rerank ms-marco-MiniLM-L6-v2 --query 'how many people live in Berlin?' \\\n"
      "    --input passages.txt --top-n 3");
  RunWith<F>(command, state, std::move(table),
             {.by_place = {"model"}, .required = {"model", "query", "input"}},
             [](const CLI::App&, const F& flags) { return RunRerank(flags); });
}

}  // namespace tessera::tools
