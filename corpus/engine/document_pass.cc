// SPDX-License-Identifier: Apache-2.0
#include "corpus/engine/document_pass.h"

#include <algorithm>
#include <utility>

#include "corpus/io/warc.h"
#include "data/dataset/byte_source.h"
#include "data/dataset/text_input.h"

namespace tessera::corpus {
namespace {

constexpr char kUnreadable[] = "unreadable";

void AppendJsonLine(const Document& document, std::string* out) { document.AppendLine(out); }

void AppendTextLine(const Document& document, std::string* out) {
  const size_t begin = out->size();
  *out += document.text();
  std::replace_if(
      out->begin() + static_cast<std::ptrdiff_t>(begin), out->end(),
      [](char c) { return c == '\n' || c == '\r'; }, ' ');
  *out += '\n';
}

}  // namespace

AppendDocument AppendFor(std::string_view path) {
  const std::string_view name = data::WithoutCompression(path);
  if (name.ends_with(".txt")) return AppendTextLine;
  if (name.ends_with(".wet") || name.ends_with(".warc")) return AppendWet;
  return AppendJsonLine;
}

const OptionTable& StepFiles::Table() {
  static const auto* const table = new OptionTable(
      OptionTable::Of<StepFiles>("Files")
          .Add(
              "input", &StepFiles::input,
              "files of documents, or directories of them: .jsonl, .txt (a document a line), .warc "
              "and .wet, also with .gz or .zst behind; may be given several times")
          .Add("output", &StepFiles::output,
               "the file of the documents that are kept; the end of its name says the format",
               {.type = "FILE"})
          .Add("text_key", &StepFiles::text_key, "the member of JSON lines that is the text")
          .Add("overwrite", &StepFiles::overwrite,
               "replace outputs that no run of this step wrote"));
  return *table;
}

const OptionTable& FilterFiles::Table() {
  static const auto* const table =
      new OptionTable(OptionTable::Of<FilterFiles>("Files").Include<FilterFiles, StepFiles>().Add(
          "dropped", &FilterFiles::dropped,
          "lists what does not stay: a line of id, filter and value for each", {.unset = "none"}));
  return *table;
}

std::string FieldText(std::string_view text) {
  std::string field;
  for (const char c : text) {
    switch (c) {
      case '\t':
        field += "\\t";
        break;
      case '\n':
        field += "\\n";
        break;
      case '\r':
        field += "\\r";
        break;
      case '\\':
        field += "\\\\";
        break;
      default:
        field += c;
    }
  }
  return field;
}

StatusOr<BlockRun> MakeBlockRun(const DocumentPass& pass) {
  const FilterFiles& files = pass.files;
  if (files.input.empty()) return InvalidArgument(pass.name, ": input is missing");
  if (files.output.empty()) return InvalidArgument(pass.name, ": output is missing");
  BlockRun run;
  run.name = pass.name;
  run.made_from = {{"step", pass.name}, {"text_key", files.text_key}, {"options", pass.made_from}};
  TESSERA_ASSIGN_OR_RETURN(run.inputs, data::ListInputFiles(files.input));
  run.outputs = {files.output};
  const bool lists = !files.dropped.empty();
  if (lists) run.outputs.push_back(files.dropped);
  for (const std::string& output : run.outputs) {
    if (std::find(run.inputs.begin(), run.inputs.end(), output) != run.inputs.end()) {
      return InvalidArgument(pass.name, ": ", output, " is an input and an output");
    }
  }
  if (lists && files.dropped == files.output) {
    return InvalidArgument(pass.name, ": ", files.output, " is output and dropped");
  }
  const AppendDocument append = AppendFor(files.output);
  run.work = [append, lists, name = files.text_key, apply = pass.apply](
                 const Block& block, BlockResult* result) -> Status {
    Document document;
    int64_t in = 0, out = 0;
    for (const Record& record : block.records) {
      bool passed_over = false;
      const std::string wrong = ReadDocument(block, record, name, &document, &passed_over);
      if (passed_over) continue;
      ++in;
      Verdict verdict;
      std::string id;
      if (wrong.empty()) {
        verdict = apply(document, &result->counts);
        TESSERA_RETURN_IF_ERROR(verdict.failure);
        if (!verdict.filter.empty() && lists) id = document.id();
      } else {
        verdict = {kUnreadable, wrong};
        id = Concat(block.path, ":", record.number);
        ++result->counts[Concat(kUnreadable, ": ", wrong)];
      }
      if (verdict.filter.empty()) {
        ++out;
        append(document, &result->outputs[0]);
        continue;
      }
      if (wrong.empty()) ++result->counts[Concat("dropped: ", verdict.filter)];
      if (lists) {
        result->outputs[1] +=
            Concat(FieldText(id), "\t", verdict.filter, "\t", FieldText(verdict.value), "\n");
      }
    }
    result->counts["in"] += in;
    result->counts["out"] += out;
    return OkStatus();
  };
  return run;
}

StatusOr<Counts> RunDocuments(const DocumentPass& pass, const RunContext& context) {
  TESSERA_ASSIGN_OR_RETURN(const BlockRun run, MakeBlockRun(pass));
  return RunBlocks(run, context);
}

void CountDocuments(const Block& block, std::string_view text_key, Counts* counts,
                    const std::function<bool(Document& document)>& visit) {
  Document document;
  int64_t in = 0, out = 0;
  for (const Record& record : block.records) {
    bool passed_over = false;
    const std::string wrong = ReadDocument(block, record, text_key, &document, &passed_over);
    if (passed_over) continue;
    ++in;
    if (!wrong.empty()) {
      ++(*counts)[Concat(kUnreadable, ": ", wrong)];
    } else {
      out += visit(document);
    }
  }
  (*counts)["in"] += in;
  (*counts)["out"] += out;
}

void ForEachDocument(const Block& block, std::string_view text_key,
                     const std::function<void(Document& document)>& visit) {
  Counts unused;
  CountDocuments(block, text_key, &unused, [&](Document& document) {
    visit(document);
    return true;
  });
}

}  // namespace tessera::corpus
