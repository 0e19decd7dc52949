// SPDX-License-Identifier: Apache-2.0
// A pass that judges and changes documents one by one.
//
//   DocumentPass pass = {.name = "clean", .files = options, .made_from = {...}};
//   pass.apply = [](Document& document, Counts*) -> Verdict {
//     if (document.text().size() < 512) return {"characters", "311"};
//     return {};
//   };
//   TESSERA_ASSIGN_OR_RETURN(const Counts counts, RunDocuments(pass, context));
//
// The output is what its name says: .jsonl, .txt (a document a line, line feeds become blanks), or
// .wet and .warc, each with .gz or .zst behind it or not. What does not go there can be listed: a
// line "id, tab, filter, tab, value" for each. A record that is no document is dropped by the
// filter `unreadable`.
#ifndef TESSERA_CORPUS_ENGINE_DOCUMENT_PASS_H_
#define TESSERA_CORPUS_ENGINE_DOCUMENT_PASS_H_

#include <functional>
#include <string>
#include <vector>

#include "base/json_member.h"
#include "base/options.h"
#include "base/status.h"
#include "corpus/engine/block_run.h"
#include "corpus/io/document.h"

namespace tessera::corpus {

// The files of a step, and how documents stand in them.
struct StepFiles {
  std::vector<std::string> input;
  std::string output;
  std::string text_key = "text";
  bool overwrite = false;

  static const OptionTable& Table();
};
// Of one that drops documents.
struct FilterFiles : StepFiles {
  std::string dropped;

  static const OptionTable& Table();
};

// Which filter drops a document, and for what; no filter: it stays.
struct Verdict {
  std::string filter = {};
  std::string value = {};
  Status failure = {};  // what the verdict depends on cannot be read: the pass ends with this
};

struct DocumentPass {
  std::string name;
  FilterFiles files;
  JsonMember made_from;  // beside the files
  // Called from all threads at once. Counts are added up over all documents.
  std::function<Verdict(Document& document, Counts* counts)> apply;
};

StatusOr<Counts> RunDocuments(const DocumentPass& pass, const RunContext& context);

// The block run that RunDocuments makes; InvalidArgument where files are missing or clash.
StatusOr<BlockRun> MakeBlockRun(const DocumentPass& pass);

// Visits the documents of a block; others are passed over.
void ForEachDocument(const Block& block, std::string_view text_key,
                     const std::function<void(Document& document)>& visit);

// The same, counting `in`, `out` (where `visit` says true) and, by reasons, what cannot be read.
void CountDocuments(const Block& block, std::string_view text_key, Counts* counts,
                    const std::function<bool(Document& document)>& visit);

// Appends a document as a file of this name has it.
using AppendDocument = void (*)(const Document& document, std::string* out);
AppendDocument AppendFor(std::string_view path);

// "a\tb" with its tabs, line feeds and backslashes as \t, \n and \\, for a field of a line.
std::string FieldText(std::string_view text);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_ENGINE_DOCUMENT_PASS_H_
