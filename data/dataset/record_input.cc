#include "data/dataset/record_input.h"

#include <algorithm>
#include <string_view>

#include "core/file.h"
#include "core/nearest_name.h"
#include "data/tokenizer/json_text.h"
#include "data/tokenizer/utf8.h"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string_view> SplitTabs(std::string_view line) {
  std::vector<std::string_view> fields;
  while (true) {
    const size_t tab = line.find('\t');
    fields.push_back(line.substr(0, tab));
    if (tab == std::string_view::npos) return fields;
    line.remove_prefix(tab + 1);
  }
}

bool IsBlank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// The lines of a text, numbered from 1, without their ends.
class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
  }
  bool Next(std::string_view* line) {
    if (text_.empty()) return false;
    const size_t end = std::min(text_.find('\n'), text_.size());
    *line = text_.substr(0, end);
    if (line->ends_with('\r')) line->remove_suffix(1);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    ++number_;
    return true;
  }
  int64_t number() const { return number_; }

 private:
  std::string_view text_;
  int64_t number_ = 0;
};

enum class Format { kTsv, kJsonLines };

StatusOr<Format> FormatOf(const std::string& path) {
  if (path.ends_with(".tsv")) return Format::kTsv;
  if (path.ends_with(".jsonl") || path.ends_with(".ndjson")) return Format::kJsonLines;
  return InvalidArgument(path, ": a table must be .tsv (with a header line), .jsonl or .ndjson");
}

StatusOr<std::string_view> TextOf(const MappedFile& file, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()),
                              static_cast<size_t>(file.size()));
  const size_t bad = FindInvalidUtf8(text);
  if (bad != kNoInvalidUtf8) return InvalidArgument(path, ": invalid UTF-8 at byte ", bad);
  return text;
}

StatusOr<Json> ParseObject(std::string_view line, const std::string& where) {
  TESSERA_RETURN_IF_ERROR(ParseJson(line, where).status());  // depth, syntax
  Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return InvalidArgument(where, ": not a JSON object");
  return object;
}

Status NoColumn(const std::string& where, const std::string& name,
                const std::vector<std::string>& known) {
  std::string list;
  for (const std::string& column : known) list += (list.empty() ? "" : ", ") + column;
  return InvalidArgument(where, ": no column '", name, "'", DidYouMean(name, known),
                         "; there are: ", list);
}

Status VisitTsv(const std::string& path, std::string_view text,
                const std::vector<std::string>& columns, const RecordVisitor& visit) {
  Lines lines(text);
  std::string_view line;
  if (!lines.Next(&line)) return InvalidArgument(path, ": empty; a header line is needed");
  const std::vector<std::string_view> header = SplitTabs(line);
  std::vector<size_t> places;
  for (const std::string& column : columns) {
    const auto found = std::find(header.begin(), header.end(), column);
    if (found == header.end()) return NoColumn(path, column, {header.begin(), header.end()});
    if (std::find(found + 1, header.end(), column) != header.end()) {
      return InvalidArgument(path, ": the header has column '", column, "' twice");
    }
    places.push_back(static_cast<size_t>(found - header.begin()));
  }
  std::vector<std::string> picked(columns.size());
  while (lines.Next(&line)) {
    if (IsBlank(line)) continue;
    const std::string where = Concat(path, ":", lines.number());
    const std::vector<std::string_view> fields = SplitTabs(line);
    if (fields.size() != header.size()) {
      return InvalidArgument(where, ": ", fields.size(), " fields, the header has ", header.size());
    }
    for (size_t i = 0; i < places.size(); ++i) picked[i] = fields[places[i]];
    TESSERA_RETURN_IF_ERROR(visit(picked, where));
  }
  return OkStatus();
}

Status VisitJsonLines(const std::string& path, std::string_view text,
                      const std::vector<std::string>& columns, const RecordVisitor& visit) {
  Lines lines(text);
  std::string_view line;
  std::vector<std::string> picked(columns.size());
  while (lines.Next(&line)) {
    if (IsBlank(line)) continue;
    const std::string where = Concat(path, ":", lines.number());
    TESSERA_ASSIGN_OR_RETURN(const Json object, ParseObject(line, where));
    for (size_t i = 0; i < columns.size(); ++i) {
      const auto member = object.find(columns[i]);
      if (member == object.end()) {
        std::vector<std::string> known;
        for (const auto& [name, value] : object.items()) known.push_back(name);
        return NoColumn(where, columns[i], known);
      }
      if (member->is_structured() || member->is_null()) {
        return InvalidArgument(where, ": \"", columns[i],
                               "\" must be text, a number or a truth value");
      }
      picked[i] = member->is_string() ? member->get<std::string>() : member->dump();
    }
    TESSERA_RETURN_IF_ERROR(visit(picked, where));
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<std::string>> ColumnsOf(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const Format format, FormatOf(path));
  TESSERA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  TESSERA_ASSIGN_OR_RETURN(const std::string_view text, TextOf(file, path));
  Lines lines(text);
  std::string_view line;
  std::vector<std::string> names;
  while (names.empty() && lines.Next(&line)) {
    if (IsBlank(line)) continue;
    if (format == Format::kTsv) {
      for (const std::string_view name : SplitTabs(line)) names.emplace_back(name);
      continue;
    }
    TESSERA_ASSIGN_OR_RETURN(const Json object,
                             ParseObject(line, Concat(path, ":", lines.number())));
    for (const auto& [name, value] : object.items()) names.push_back(name);
  }
  if (names.empty()) return InvalidArgument(path, ": no records there");
  return names;
}

Status ForEachRecord(const std::string& path, const std::vector<std::string>& columns,
                     const RecordVisitor& visit) {
  for (auto column = columns.begin(); column != columns.end(); ++column) {
    if (std::find(columns.begin(), column, *column) == column) continue;
    return InvalidArgument(path, ": column '", *column, "' is asked for twice");
  }
  TESSERA_ASSIGN_OR_RETURN(const Format format, FormatOf(path));
  TESSERA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  TESSERA_ASSIGN_OR_RETURN(const std::string_view text, TextOf(file, path));
  return format == Format::kTsv ? VisitTsv(path, text, columns, visit)
                                : VisitJsonLines(path, text, columns, visit);
}

}  // namespace tessera::data
