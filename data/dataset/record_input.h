// SPDX-License-Identifier: Apache-2.0
// Records with named fields from a table: tab- or comma-separated values with a header line (.tsv,
// .csv), JSON lines (.jsonl, .ndjson), or JSON (.json: lines, or one array of objects), each
// compressed or not (.gz, .zst), and Parquet (.parquet) and Arrow files (.arrow).
//
//   TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> names, ColumnsOf("train.tsv"));
//   TESSERA_RETURN_IF_ERROR(ForEachRecord("train.tsv", {"sentence", "label"},
//       [&](std::span<const std::string> fields, const std::string& where) { ... }));
//
// Fields of .tsv are the bytes between the tabs: quotes mean nothing there, as in GLUE's files.
// Those of .csv may be in quotes (data/dataset/csv_rows.h). Of JSON, strings are fields as they
// are, numbers and truth values in JSON's spelling; so of columns, which are otherwise as
// data/columns/column_json.h has them. Text must be UTF-8; a byte-order mark and a
// carriage return before the end of a line are dropped.
//
// A column may be a member of another one: "translation.en".
//
// A path may name a split of a data-set folder (data_folder.h): the records of all its files.
#ifndef TESSERA_DATA_DATASET_RECORD_INPUT_H_
#define TESSERA_DATA_DATASET_RECORD_INPUT_H_

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera::data {

// `where` is path:line, or path[index] of an array or a row.
using RecordVisitor =
    std::function<Status(std::span<const std::string> fields, const std::string& where)>;

// Whether a path has one of these endings, in letters of either case.
bool IsTable(const std::string& path);
// Whether a file's first bytes are those of Parquet or Arrow.
StatusOr<bool> HoldsColumns(const std::string& path);
// Whether it is a table with a header line.
bool HasHeader(const std::string& path);
// Whether a column of this name numbers the rows and is no text: "id", "Index", "review_id", and
// what pandas writes for an index ("", "Unnamed: 0", "__index_level_0__").
bool IsIndexColumn(std::string_view name);

// The header's names, or the members of the first object, in order. InvalidArgument for a file of
// another kind or without a record.
StatusOr<std::vector<std::string>> ColumnsOf(const std::string& path);

// The fields of these columns, record by record. InvalidArgument for a column that is not there
// (naming those that are), a line with another number of fields than the header, a member that is
// no string, number or truth value. A status of `visit` ends the reading and is returned.
Status ForEachRecord(const std::string& path, const std::vector<std::string>& columns,
                     const RecordVisitor& visit);

// Whether a record has a value in one of these columns. False where all are null or blank, as
// labels are that nobody has given.
StatusOr<bool> HoldValues(const std::string& path, const std::vector<std::string>& columns);

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_RECORD_INPUT_H_
