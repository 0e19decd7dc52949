// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "corpus/dedup/dedup.h"
#include "corpus/dedup/repeats.h"
#include "corpus/io/text_units.h"

namespace tessera::corpus {
namespace {

TextUnit UnitOf(std::string_view by) {
  if (by == "line") return TextUnit::kLine;
  return by == "paragraph" ? TextUnit::kParagraph : TextUnit::kDocument;
}

// The document without the units that go; dropped where nothing stays.
Verdict WithoutUnits(Document& document, std::span<const Repeat> repeats, const std::string& by,
                     Counts* counts) {
  if (repeats.empty()) return {};
  const TextUnit unit = UnitOf(by);
  const std::string filter = "duplicate_" + by;
  if (unit == TextUnit::kDocument) return {filter, std::to_string(repeats[0].first)};
  (*counts)[Concat("removed: ", filter)] += std::ssize(repeats);
  std::string text;
  int64_t index = 0;
  for (const std::string_view piece : UnitsOf(document.text(), unit)) {
    if (!repeats.empty() && repeats.front().unit == index) {
      repeats = repeats.subspan(1);
    } else {
      text += piece;
    }
    ++index;
  }
  if (Bare(text).empty()) return {filter, "all"};
  while (text.ends_with('\n') && !document.text().ends_with('\n')) text.pop_back();
  document.set_text(std::move(text));
  return {};
}

}  // namespace

StatusOr<Counts> DropExactDuplicates(const DedupOptions& options, const RunContext& context) {
  DocumentPass pass;
  pass.name = "dedup";
  pass.files = options;
  pass.made_from = {{"by", options.by}};
  TESSERA_ASSIGN_OR_RETURN(const BlockRun run, MakeBlockRun(pass));
  RepeatSearch search = {.name = "dedup",
                         .inputs = run.inputs,
                         .text_key = options.text_key,
                         .made_from = options.by,
                         .folder = options.output + ".work"};
  search.keys = [unit = UnitOf(options.by)](Document& document, const AddKey& add) {
    int64_t index = 0;
    for (const std::string_view text : UnitsOf(document.text(), unit)) {
      if (const std::string_view bare = Bare(text); !bare.empty()) add(index, bare);
      ++index;
    }
  };
  return RunOnce(run, search.folder, context, [&]() -> StatusOr<Counts> {
    TESSERA_ASSIGN_OR_RETURN(const auto repeats, FindRepeats(search, context));
    pass.apply = [&](Document& document, Counts* counts) {
      return WithoutUnits(document, repeats.Of(document.number), options.by, counts);
    };
    return RunDocuments(pass, context);
  });
}

}  // namespace tessera::corpus
