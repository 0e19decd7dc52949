// SPDX-License-Identifier: Apache-2.0
// Comma-separated values (RFC 4180), by libcsv: fields may be in double quotes, which are
// doubled inside of them, and then hold commas and line feeds.
//
//   CsvRows rows(&pieces, "train.csv");         // data/dataset/text_pieces.h
//   std::vector<std::string> fields;
//   for (;;) {
//     TESSERA_ASSIGN_OR_RETURN(const bool more, rows.Next(&fields));
//     if (!more) break;
//     ...                                        // fields, of the row that began in rows.line()
//   }
//
// Blank lines are no rows. Spaces belong to the fields.
#ifndef TESSERA_DATA_DATASET_CSV_ROWS_H_
#define TESSERA_DATA_DATASET_CSV_ROWS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/dataset/text_pieces.h"

namespace tessera::data {

class CsvRows {
 public:
  // `path` is for messages.
  CsvRows(TextPieces* pieces, std::string path);
  ~CsvRows();

  // False at the end. InvalidArgument with the line of a quote that does not end, or that stands
  // where none may.
  StatusOr<bool> Next(std::vector<std::string>* fields);
  // Where the last row began, from 1.
  int64_t line() const { return line_; }

 private:
  struct Parser;
  Status Feed();

  TextPieces* const pieces_;
  std::string_view text_;  // of a piece, what was not fed yet
  const std::string path_;
  const std::unique_ptr<Parser> parser_;
  int64_t line_ = 0;
  int64_t read_ = 0;   // lines that the parser has seen
  int64_t begin_ = 1;  // the line that the row it is in begins with
  bool ended_ = false;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_CSV_ROWS_H_
