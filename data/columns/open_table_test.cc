// SPDX-License-Identifier: Apache-2.0
// Files of testdata/ (made by make_testdata.py), whole, in parts and damaged.
#include "data/columns/open_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/columns/column_json.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using testing::HasSubstr;
using Rows = std::vector<std::string>;

const std::string kFolder = "data/columns/testdata/";

std::string Bytes(const std::string& path) { return ReadFile(path).value(); }

void Write(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
}

std::vector<std::string> TestFiles() {
  std::vector<std::string> names;
  const std::vector<std::string> all = ListDirectory(kFolder).value();
  for (const std::string& name : all) {
    if (!name.ends_with(".jsonl")) names.push_back(name);
  }
  return names;
}

Rows Expected(const std::string& name) {
  Rows rows;
  std::ifstream file(kFolder + name + ".jsonl");
  for (std::string line; std::getline(file, line);) rows.push_back(line);
  return rows;
}

// The rest of a table, as text.
StatusOr<Rows> Rest(TableReader& table) {
  Rows rows;
  RecordBatch batch;
  while (true) {
    TESSERA_ASSIGN_OR_RETURN(const bool more, table.Next(&batch));
    if (!more) return rows;
    for (int64_t row = 0; row < batch.rows.length; ++row) {
      AppendJson(batch.rows, row, &rows.emplace_back());
    }
  }
}

StatusOr<Rows> RowsOf(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table, OpenTable(path));
  return Rest(*table);
}

class OpenTableTest : public testing::TestWithParam<std::string> {
 protected:
  // In memory where that is to be had: damaged files are many.
  const std::string path_ = (IsDirectory("/dev/shm") ? "/dev/shm/" : testing::TempDir()) +
                            "open-table-" + std::to_string(getpid());
  ~OpenTableTest() override { RemoveAll(path_).IgnoreError(); }
};

TEST_P(OpenTableTest, ReadsWhatPyarrowReads) {
  const Rows expected = Expected(GetParam());
  const std::string path = kFolder + GetParam();
  const auto table = OpenTable(path);
  ASSERT_TRUE(table.ok()) << table.status().message();
  EXPECT_EQ((*table)->num_rows(), std::ssize(expected));
  RecordBatch batch;
  size_t row = 0;
  while ((*table)->Next(&batch).value()) {
    EXPECT_EQ(batch.first_row, static_cast<int64_t>(row));
    for (int64_t r = 0; r < batch.rows.length; ++r, ++row) {
      ASSERT_LT(row, expected.size());
      std::string text;
      AppendJson(batch.rows, r, &text);
      const auto wanted = nlohmann::ordered_json::parse(expected[row]);
      EXPECT_EQ(nlohmann::ordered_json::parse(text), wanted) << "row " << row;
      EXPECT_EQ(JsonOf(batch.rows, r), wanted) << "row " << row;
    }
  }
  EXPECT_EQ(row, expected.size());
}

TEST_P(OpenTableTest, BeginsAtAnyRow) {
  const auto table = OpenTable(kFolder + GetParam());
  ASSERT_TRUE(table.ok()) << table.status().message();
  const Rows all = Rest(**table).value();
  const auto step = 1 + static_cast<int64_t>(all.size()) / 13;
  for (int64_t row = std::ssize(all); row >= 0; row -= step) {
    ASSERT_TRUE((*table)->SeekToRow(row).ok());
    EXPECT_EQ(Rest(**table).value(), Rows(all.begin() + row, all.end())) << row;
  }
  const Status status = (*table)->SeekToRow(std::ssize(all) + 1);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
}

TEST_P(OpenTableTest, ReadsEachColumnAlone) {
  const auto table = OpenTable(kFolder + GetParam());
  ASSERT_TRUE(table.ok()) << table.status().message();
  for (const Field& field : (*table)->fields()) {
    ASSERT_TRUE((*table)->Select({field.name}).ok());
    ASSERT_TRUE((*table)->SeekToRow(0).ok());
    const Rows expected = Expected(GetParam());
    const Rows rows = Rest(**table).value();
    ASSERT_EQ(rows.size(), expected.size());
    for (size_t r = 0; r < rows.size(); ++r) {
      nlohmann::ordered_json wanted;
      wanted[field.name] = nlohmann::ordered_json::parse(expected[r])[field.name];
      EXPECT_EQ(nlohmann::ordered_json::parse(rows[r]), wanted);
    }
  }
}

TEST_P(OpenTableTest, SaysWhereItIsCutOff) {
  const std::string bytes = Bytes(kFolder + GetParam());
  const Rows all = RowsOf(kFolder + GetParam()).value();
  for (size_t size = 0; size < bytes.size(); ++size) {
    Write(path_, std::string_view(bytes).substr(0, size));
    const auto rows = RowsOf(path_);
    if (!rows.ok()) {
      EXPECT_TRUE(rows.status().message().starts_with(path_ + ": ")) << rows.status().message();
      EXPECT_EQ(rows.status().message().find('\n'), std::string::npos);
      continue;
    }
    // A stream may end behind any of its batches.
    EXPECT_TRUE(GetParam().ends_with(".arrow")) << size;
    ASSERT_LE(rows->size(), all.size()) << size;
    EXPECT_TRUE(std::equal(rows->begin(), rows->end(), all.begin())) << size;
  }
}

TEST_P(OpenTableTest, SurvivesAnyByte) {
  std::string bytes = Bytes(kFolder + GetParam());
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const char flip : {'\x01', '\x80', '\xFF'}) {
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      Write(path_, bytes);
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      const auto table = OpenTable(path_);
      if (!table.ok() || (*table)->num_rows() > 100'000) continue;
      const auto rows = Rest(**table);
      if (!rows.ok()) {
        EXPECT_TRUE(rows.status().message().starts_with(path_ + ": ")) << rows.status().message();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, OpenTableTest, testing::ValuesIn(TestFiles()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

TEST(TableReaderTest, FindsWhatChecksumsProtect) {
  const std::string path = testing::TempDir() + "checksum";
  const std::string name = "types.parquet";
  std::string bytes = Bytes(kFolder + name);
  const size_t at = bytes.find(std::string(40, 'x'));
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'y';
  Write(path, bytes);
  const auto rows = RowsOf(path);
  EXPECT_EQ(rows.status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(
      rows.status().message(),
      path + ": row group 0, column 'text': a page has another checksum than its header says");
  RemoveAll(path).IgnoreError();
}

TEST(TableReaderTest, ListsTheColumnsThatThereAre) {
  const auto table = OpenTable(kFolder + "chat.parquet");
  ASSERT_TRUE(table.ok());
  EXPECT_EQ((*table)->Select({"id", "text"}).message(),
            kFolder +
                "chat.parquet: no column 'text' (columns: messages: list<struct<role: string, "
                "content: string>>, id: int64)");
  EXPECT_EQ((*table)->Select({"id", "id"}).message(),
            kFolder + "chat.parquet: column 'id' is asked for twice");
  ASSERT_TRUE((*table)->Select({"id", "messages"}).ok());
  EXPECT_EQ(Rest(**table).value()[1], R"({"id": 1, "messages": []})");
}

TEST(TableReaderTest, DescribesTheFile) {
  const auto parquet = OpenTable(kFolder + "chat.parquet").value();
  EXPECT_EQ(parquet->format(), "Parquet");
  ASSERT_EQ(parquet->parts().size(), 2U);
  EXPECT_EQ(parquet->parts()[0].num_rows, 4);
  EXPECT_EQ(parquet->parts()[0].compression, "snappy");
  EXPECT_GT(parquet->parts()[1].bytes, 0);
  EXPECT_GT(parquet->parts()[1].uncompressed_bytes, 0);
  const auto stream = OpenTable(kFolder + "nested.arrow").value();
  EXPECT_EQ(stream->format(), "Arrow stream");
  EXPECT_EQ(stream->parts()[0].compression, "lz4");
  EXPECT_EQ(OpenTable(kFolder + "types.arrow").value()->format(), "Arrow file");
}

TEST(TableReaderTest, RefusesOtherFiles) {
  const std::string path = testing::TempDir() + "other";
  for (const std::string& bytes :
       {std::string(), std::string("{\"text\": \"a\"}\n"), std::string("PK\3\4")}) {
    Write(path, bytes);
    const Status status = OpenTable(path).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("neither Parquet nor an Arrow file"));
    EXPECT_FALSE(IsColumnFile(bytes));
  }
  EXPECT_EQ(OpenTable(path + "-missing").status().code(), StatusCode::kNotFound);
  RemoveAll(path).IgnoreError();
}

TEST(TableReaderTest, KeepsRowsAfterTheReaderIsGone) {
  RecordBatch batch;
  {
    const auto table = OpenTable(kFolder + "chat.parquet").value();
    ASSERT_TRUE(table->Next(&batch).value());
  }
  std::string text;
  AppendJson(batch.rows, 0, &text);
  EXPECT_EQ(text, R"({"messages": [{"role": "user", "content": "Frage 0 – 质问"}, )"
                  R"({"role": "assistant", "content": null}], "id": 0})");
}

}  // namespace
}  // namespace tessera::data
