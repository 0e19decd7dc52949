// SPDX-License-Identifier: Apache-2.0
// Prints a Parquet or Arrow file: its columns' types, then its rows as JSON lines, as both ways to
// JSON give them. For tests/parity/columnar_files.py.
//
//   print_table FILE             types, then rows
//   print_table --time FILE...   reads all columns of all rows: seconds, and bytes of strings
//   print_table --threads N ...  with so many threads
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/thread_pool.h"
#include "data/columns/column_json.h"
#include "data/columns/open_table.h"
#include "nlohmann/json.hpp"

namespace {

using tessera::Status;
using tessera::data::Column;
using tessera::data::RecordBatch;
using tessera::data::TableReader;

Status Print(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table,
                           tessera::data::OpenTable(path));
  std::printf("%s\n", tessera::data::FieldsText(table->fields()).c_str());
  RecordBatch batch;
  while (true) {
    TESSERA_ASSIGN_OR_RETURN(const bool more, table->Next(&batch));
    if (!more) return tessera::OkStatus();
    for (int64_t row = 0; row < batch.rows.length; ++row) {
      std::string line;
      tessera::data::AppendJson(batch.rows, row, &line);
      std::printf("%s\n", line.c_str());
      // Floats that JSON has no word for are null in a value's text.
      const std::string other = tessera::data::JsonOf(batch.rows, row).dump();
      if (line.find("Infinity") == std::string::npos && line.find("NaN") == std::string::npos &&
          nlohmann::ordered_json::parse(line).dump() != other) {
        return tessera::Internal("row ", row, " as a value: ", other, ", as text: ", line);
      }
    }
  }
}

int64_t BytesOfStrings(const Column& column) {
  int64_t bytes = 0;
  if (column.strings != nullptr) {
    for (int64_t row = 0; row < column.length; ++row) bytes += std::ssize(column.strings[row]);
  }
  for (const Column& child : column.children) bytes += BytesOfStrings(child);
  return bytes;
}

Status Time(const std::string& path) {
  const auto begin = std::chrono::steady_clock::now();
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table,
                           tessera::data::OpenTable(path));
  int64_t bytes = 0;
  RecordBatch batch;
  while (true) {
    TESSERA_ASSIGN_OR_RETURN(const bool more, table->Next(&batch));
    if (!more) break;
    bytes += BytesOfStrings(batch.rows);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%.3f %lld\n", seconds.count(), static_cast<long long>(bytes));
  return tessera::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  bool time = false;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--time") {
      time = true;
    } else if (argument == "--threads" && i + 1 < argc) {
      tessera::SetNumThreads(std::atoi(argv[++i]));
    } else {
      paths.emplace_back(argument);
    }
  }
  if (paths.empty()) {
    std::cerr << "error: usage: print_table [--time] [--threads N] FILE...\n";
    return 2;
  }
  for (const std::string& path : paths) {
    const Status status = time ? Time(path) : Print(path);
    if (status.ok()) continue;
    std::cerr << "error: " << tessera::Message(status) << "\n";
    return 1;
  }
  return 0;
}
