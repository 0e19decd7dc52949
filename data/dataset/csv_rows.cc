// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/csv_rows.h"

#include <csv.h>

#include <algorithm>
#include <deque>
#include <new>
#include <utility>

namespace tessera::data {

// What the library's callbacks fill: no exception may pass through them but for want of memory.
struct CsvRows::Parser {
  Parser() {
    constexpr unsigned char kOptions = CSV_STRICT | CSV_STRICT_FINI;
    if (csv_init(&library, kOptions) != 0) throw std::bad_alloc();
    csv_set_space_func(&library, [](unsigned char) { return 0; });
  }
  ~Parser() { csv_free(&library); }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  static void AddField(void* bytes, size_t size, void* self) {
    auto* parser = static_cast<Parser*>(self);
    parser->fields.emplace_back(static_cast<const char*>(bytes), size);
  }
  static void EndRow(int, void* self) {
    auto* parser = static_cast<Parser*>(self);
    parser->rows.push_back(std::exchange(parser->fields, {}));
  }

  csv_parser library{};
  std::vector<std::string> fields;
  // Whole ones: carriage returns end rows, too, so that a line may have several.
  std::deque<std::vector<std::string>> rows;
};

CsvRows::CsvRows(TextPieces* pieces, std::string path)
    : pieces_(pieces), path_(std::move(path)), parser_(std::make_unique<Parser>()) {}
CsvRows::~CsvRows() = default;

// One line of the file, or its end.
Status CsvRows::Feed() {
  csv_parser* const library = &parser_->library;
  bool fits = true;
  if (text_.empty()) {
    TESSERA_ASSIGN_OR_RETURN(text_, pieces_->Next());
  }
  if (text_.empty()) {
    ended_ = true;
    fits = csv_fini(library, Parser::AddField, Parser::EndRow, parser_.get()) == 0;
  } else {
    const size_t size = std::min(text_.find('\n'), text_.size() - 1) + 1;
    fits = csv_parse(library, text_.data(), size, Parser::AddField, Parser::EndRow,
                     parser_.get()) == size;
    text_.remove_prefix(size);
    ++read_;
  }
  if (fits) return OkStatus();
  return InvalidArgument(path_, ":", begin_, ": ", csv_strerror(csv_error(library)),
                         " (a quote does not end, or is inside of a field)");
}

StatusOr<bool> CsvRows::Next(std::vector<std::string>* fields) {
  while (!ended_ || !parser_->rows.empty()) {
    if (!parser_->rows.empty()) {
      *fields = std::move(parser_->rows.front());
      parser_->rows.pop_front();
      return true;
    }
    // Between rows the library holds nothing: a field that continues has the line feed at least.
    if (parser_->fields.empty() && parser_->library.entry_pos == 0) begin_ = read_ + 1;
    TESSERA_RETURN_IF_ERROR(Feed());
    line_ = begin_;
  }
  return false;
}

}  // namespace tessera::data
