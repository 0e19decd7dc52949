// SPDX-License-Identifier: Apache-2.0
#include "tools/inspect_table.h"

#include <algorithm>
#include <memory>

#include "base/printable_text.h"
#include "data/columns/column_json.h"
#include "data/columns/open_table.h"
#include "tools/command_line.h"

namespace tessera::tools {
namespace {

constexpr int64_t kRowsShown = 3;
constexpr size_t kPartsShown = 8;
constexpr size_t kLongestRow = 500;
constexpr size_t kLongestName = 1000;

}  // namespace

StatusOr<std::string> DescribeTable(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<data::TableReader> table, data::OpenTable(path));
  std::string first;
  data::RecordBatch batch;
  for (;;) {
    TESSERA_ASSIGN_OR_RETURN(const bool more, table->Next(&batch));
    if (!more) break;
    for (int64_t row = 0; row < batch.rows.length && batch.first_row + row < kRowsShown; ++row) {
      std::string text;
      data::AppendJson(batch.rows, row, &text);
      first +=
          Concat("  row ", batch.first_row + row, "  ", PrintableLine(text, kLongestRow), "\n");
    }
  }
  const std::vector<data::TablePart>& parts = table->parts();
  std::string report =
      Concat(PrintableLine(path, kLongestName), ": ", table->format(), ", ",
             WithThousands(table->num_rows()), " rows, ", table->fields().size(), " columns, ",
             parts.size(), table->format() == "Parquet" ? " row groups\n" : " batches\n");
  for (const data::Field& field : table->fields()) {
    report += Concat("  column ", PrintableLine(field.name, kLongestName), ": ",
                     PrintableLine(data::TypeText(*field.type), kLongestName), "\n");
  }
  for (size_t i = 0; i < std::min(parts.size(), kPartsShown); ++i) {
    const data::TablePart& part = parts[i];
    report += Concat("  part ", i, ": ", WithThousands(part.num_rows), " rows, ",
                     WithThousands(part.bytes), " bytes, compression ", part.compression);
    if (part.uncompressed_bytes > 0) {
      report += Concat(" (", WithThousands(part.uncompressed_bytes), " without)");
    }
    report += "\n";
  }
  if (parts.size() > kPartsShown) report += Concat("  and ", parts.size() - kPartsShown, " more\n");
  return report + first + "  every value was read; the file is whole\n";
}

}  // namespace tessera::tools
