// SPDX-License-Identifier: Apache-2.0
// Parquet files (data/parquet/).
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/columns/column_json.h"
#include "data/columns/open_table.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

bool Run(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.Write("table", bytes);
  const auto table = data::OpenTable(folder.Path("table"));
  if (!table.ok()) return false;
  data::RecordBatch batch;
  std::string text;
  // A file may claim any number of rows, as long as they take no bytes.
  for (int batches = 0; batches < 8; ++batches) {
    const auto more = (*table)->Next(&batch);
    if (!more.ok()) return false;
    if (!*more) break;
    // Much of what little bytes can repeat is left out; every row has been checked all the same.
    for (int64_t row = 0; row < batch.rows.length && text.size() < 100'000; ++row) {
      data::AppendJson(batch.rows, row, &text);
      if (text.size() < 10'000) data::JsonOf(batch.rows, row);
    }
  }
  return (*table)->SeekToRow((*table)->num_rows() / 2).ok() && (*table)->Next(&batch).ok();
}

std::vector<std::string> Seeds() {
  const std::string folder = "data/columns/testdata/";
  std::vector<std::string> seeds;
  for (const char* const name :
       {"chat", "types", "nested", "numbers", "fallback", "int96", "empty"}) {
    seeds.push_back(FileOf(folder + name + ".parquet"));
  }
  return seeds;
}

const FuzzTargetRegistration registration(
    {.name = "parquet", .run = Run, .seeds = Seeds, .words = {"PAR1"}});

}  // namespace
}  // namespace tessera::fuzz
