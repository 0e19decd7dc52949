// SPDX-License-Identifier: Apache-2.0
// Records of files of columns, of compressed text and of data-set folders are those of plain text.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "data/dataset/byte_source.h"
#include "data/dataset/data_folder.h"
#include "data/dataset/json_records.h"
#include "data/dataset/record_input.h"
#include "data/dataset/text_input.h"
#include "data/dataset/text_pieces.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Lines = std::vector<std::string>;

const std::string kColumns = "data/columns/testdata/";

Lines RecordsOf(const std::string& path) {
  Lines lines;
  const Status read = ForEachJsonRecord(path, [&](const Json& record, const std::string& where) {
    EXPECT_NE(where.find_first_of(":["), std::string::npos) << where;
    lines.push_back(record.dump());
    return OkStatus();
  });
  EXPECT_TRUE(read.ok()) << read;
  return lines;
}

Lines FieldsOf(const std::string& path, const Lines& columns) {
  Lines lines;
  const Status read =
      ForEachRecord(path, columns, [&](std::span<const std::string> fields, const std::string&) {
        std::string line;
        for (const std::string& field : fields) line += field + "|";
        lines.push_back(line);
        return OkStatus();
      });
  EXPECT_TRUE(read.ok()) << read;
  return lines;
}

class FoldersTest : public testing::Test {
 protected:
  FoldersTest()
      : root_(testing::TempDir() + "/records_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~FoldersTest() override { fs::remove_all(root_); }
  std::string Put(const std::string& name, const std::string& bytes) {
    const std::string path = root_ + "/" + name;
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  // The files of a split, without the folder; or what is wrong.
  std::string Files(const std::string& split, const std::string& config = "") {
    const auto files = FilesOfData(SplitPath(root_, split, config));
    if (!files.ok()) return Message(files.status());
    std::string list;
    for (const std::string& file : *files) {
      list += (list.empty() ? "" : " ") + file.substr(root_.size() + 1);
    }
    return list;
  }
  const std::string root_;
};

TEST(ColumnRecordsTest, AreThoseOfJsonLines) {
  int compared = 0;
  for (const auto& entry : fs::directory_iterator(kColumns)) {
    const std::string path = entry.path().string();
    if (path.ends_with(".jsonl")) continue;
    EXPECT_EQ(RecordsOf(path), RecordsOf(path + ".jsonl")) << path;
    EXPECT_TRUE(IsTable(path));
    ++compared;
  }
  EXPECT_GE(compared, 16);
}

TEST(ColumnRecordsTest, FieldsAreThoseOfJsonLines) {
  for (const std::string name : {"chat.parquet", "chat.arrow", "chat_stream.arrow"}) {
    const std::string path = kColumns + name;
    const auto columns = ColumnsOf(path);
    ASSERT_TRUE(columns.ok()) << columns.status();
    EXPECT_EQ(*columns, *ColumnsOf(path + ".jsonl"));
    Lines plain;
    const auto first = Json::parse(RecordsOf(path)[0]);
    for (const auto& [key, value] : first.items()) {
      if (!value.is_structured() && !value.is_null()) plain.push_back(key);
    }
    ASSERT_FALSE(plain.empty());
    EXPECT_EQ(FieldsOf(path, plain), FieldsOf(path + ".jsonl", plain));
    const Status none =
        ForEachRecord(path, {"nothing"}, [](auto, const auto&) { return OkStatus(); });
    EXPECT_NE(Message(none).find("'nothing'"), std::string::npos) << none;
    EXPECT_NE(Message(none).find("list<struct<"), std::string::npos) << none;  // the types
  }
}

// Bytes that no writer called text are text where they are asked for as one.
TEST(ColumnRecordsTest, BytesAreTextIfTheyAreUtf8) {
  EXPECT_EQ(FieldsOf(kColumns + "bytes.parquet", {"text"}), (Lines{"\xC3\xA9 1|", "2|", "|"}));
  for (const std::string name : {"types.parquet", "types.arrow"}) {
    const Status none =
        ForEachRecord(kColumns + name, {"bin"}, [](auto, const auto&) { return OkStatus(); });
    EXPECT_TRUE(Message(none).ends_with(
        "[1]: \"bin\" must be text, a number or a truth value; the column is binary"))
        << none;
  }
}

// A column, or a member of one, of JSON lines and of columns; nested.parquet has structs.
TEST_F(FoldersTest, MembersOfAColumn) {
  const std::string lines = Put(
      "a.jsonl", "{\"translation\": {\"en\": \"a cat\", \"de\": \"eine Katze\"}, \"a.b\": 1}\n");
  EXPECT_EQ(FieldsOf(lines, {"translation.de", "translation.en", "a.b"}),
            (Lines{"eine Katze|a cat|1|"}));
  const auto none =
      ForEachRecord(lines, {"translation.fr"}, [](auto, const auto&) { return OkStatus(); });
  EXPECT_NE(Message(none).find("no column 'translation.fr'"), std::string::npos) << none;
  for (const std::string name : {"nested.parquet", "nested.arrow"}) {
    const std::string path = kColumns + name;
    int compared = 0;
    const Lines records = RecordsOf(path);
    const Json first = Json::parse(records[0]);
    for (const auto& [key, value] : first.items()) {
      if (!value.is_object()) continue;
      for (const auto& [member, inner] : value.items()) {
        const auto read = [&](const std::string& from, Lines* to) {
          return ForEachRecord(from, {key + "." + member}, [&](auto fields, const std::string&) {
            to->push_back(fields[0]);
            return OkStatus();
          });
        };
        Lines columns, json;
        const Status of_columns = read(path, &columns);
        EXPECT_EQ(of_columns.ok(), read(path + ".jsonl", &json).ok());
        EXPECT_EQ(columns, json);
        ++compared;
      }
    }
    EXPECT_GT(compared, 0);
  }
}

TEST_F(FoldersTest, CompressedTextIsTheText) {
  std::string lines, table = "text,label\n", plain;
  // More than a piece of what is decompressed (text_pieces.h).
  for (int i = 0; i < 120000; ++i) {
    const std::string text = "text \xC3\xA4 number " + std::to_string(int64_t{i} * i);
    lines += Json({{"text", text}, {"label", i % 3}}).dump() + "\n";
    table += "\"" + text + ",\nand more\"," + std::to_string(i % 3) + "\n";
    plain += text + "\n";
  }
  const std::string array =
      "[" + Json({{"text", "a"}}).dump() + ",\n" + Json({{"text", "b"}}).dump() + "]";
  const std::vector<std::pair<std::string, std::string>> files = {
      {"a.jsonl", lines}, {"a.csv", table}, {"a.json", array}, {"a.txt", plain}};
  for (const auto& [name, bytes] : files) {
    const std::string whole = Put(name, bytes);
    for (const auto& [end, kind] :
         {std::pair{".gz", Compression::kGzip}, {".zst", Compression::kZstd}}) {
      const std::string small = Put(name + end, Compressed(bytes, kind));
      Lines expected, read;
      const auto into = [](Lines* to) {
        return [to](std::string_view text, const std::string&) {
          to->emplace_back(text);
          return OkStatus();
        };
      };
      ASSERT_TRUE(ForEachDocument({whole}, {}, into(&expected)).ok());
      const Status status = ForEachDocument({small}, {}, into(&read));
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(read, expected) << small;
      ASSERT_FALSE(expected.empty());
      if (!name.ends_with(".txt")) {
        EXPECT_EQ(IsTable(small), true);
        EXPECT_EQ(HasHeader(small), HasHeader(whole));
        EXPECT_EQ(FieldsOf(small, {"text"}), FieldsOf(whole, {"text"}));
      }
    }
  }
}

// Lines that are longer than a piece, and an array in one line.
TEST_F(FoldersTest, LongLinesAreWhole) {
  const std::string text(std::size_t{9} << 20, 'x');
  const std::string line = Json({{"text", text}}).dump();
  for (const std::string& bytes : {line + "\n" + line + "\n{\"text\": \"b\"}", "[" + line + "]"}) {
    const Lines whole = RecordsOf(Put("a.json", bytes));
    ASSERT_EQ(whole[0].size(), line.size());
    EXPECT_EQ(RecordsOf(Put("a.json.gz", Compressed(bytes, Compression::kGzip))), whole);
  }
}

// A few kilobytes that would become a line of any length.
TEST_F(FoldersTest, ALineWithoutEndIsRefused) {
  const std::string frame = Compressed(std::string(size_t{32} << 20, 'x'), Compression::kZstd);
  std::string packed = Compressed("{}\n", Compression::kZstd);
  for (int i = 0; i < 9; ++i) packed += frame;
  ASSERT_LT(packed.size(), 100'000u);
  const std::string path = Put("bomb.jsonl.zst", packed);
  EXPECT_EQ(Message(ForEachJsonRecord(path, [](const Json&, const auto&) { return OkStatus(); })),
            path + ": a line of more than 256 MiB at byte 3 of what it decompresses to");
}

TEST_F(FoldersTest, AFileThatIsCutShortIsNotAtItsEnd) {
  const std::string text = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";
  for (const Compression compression :
       {Compression::kNone, Compression::kGzip, Compression::kZstd}) {
    const std::string bytes =
        compression == Compression::kNone ? text : Compressed(text, compression);
    for (const size_t left : {bytes.size() - 1, size_t{0}}) {
      const std::string path = Put("a.jsonl", bytes);
      const auto source = ByteSource::Open(path);
      ASSERT_TRUE(source.ok()) << source.status();
      fs::resize_file(path, left);
      char to[64];
      EXPECT_EQ(Message((*source)->Read(to, sizeof(to)).status()),
                path + ": was cut short while it was read");
    }
  }
}

TEST_F(FoldersTest, DamageIsNamedWithTheFile) {
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += Json({{"text", std::to_string(i * 7919)}}).dump() + "\n";
  const std::string packed = Compressed(lines, Compression::kGzip);
  const auto read = [&](const std::string& path) {
    return Message(ForEachJsonRecord(path, [](const Json&, const auto&) { return OkStatus(); }));
  };
  EXPECT_NE(read(Put("cut.jsonl.gz", packed.substr(0, packed.size() / 2))).find("cut.jsonl.gz: "),
            std::string::npos);
  EXPECT_NE(read(Put("bad.jsonl.gz", Compressed("{\"a\": \"\xFF\"}\n", Compression::kGzip)))
                .find("bad.jsonl.gz: invalid UTF-8 at byte 7"),
            std::string::npos);
  EXPECT_NE(
      read(Put("line.jsonl.gz", Compressed("{}\n{\n", Compression::kGzip))).find("line.jsonl.gz:2"),
      std::string::npos);
}

TEST_F(FoldersTest, SplitsByReadme) {
  Put("README.md",
      "---\nlicense: mit\nconfigs:\n- config_name: en\n  default: true\n  data_files:\n"
      "  - split: train\n    path: en/train-*\n  - split: test\n    path: [en/a.jsonl, "
      "en/b.jsonl]\n"
      "- config_name: de\n  data_files: de/**\n---\n# A data set\n");
  for (const char* name : {"en/train-00001.jsonl", "en/train-00000.jsonl", "en/b.jsonl",
                           "en/a.jsonl", "de/x/one.jsonl", "de/two.jsonl"}) {
    Put(name, Json({{"text", name}}).dump() + "\n");
  }
  EXPECT_EQ(Files("train"), "en/train-00000.jsonl en/train-00001.jsonl");
  EXPECT_EQ(Files("test"), "en/a.jsonl en/b.jsonl");
  EXPECT_EQ(Files("train", "de"), "de/two.jsonl de/x/one.jsonl");
  EXPECT_NE(Files("validation").find("no split 'validation'"), std::string::npos);
  EXPECT_NE(Files("validation").find("there are: test, train"), std::string::npos);
  EXPECT_NE(Files("train", "fr").find("no configuration 'fr'"), std::string::npos);
  EXPECT_NE(Files("train", "fr").find("there are: de, en"), std::string::npos);
  // Both files, one behind the other.
  EXPECT_EQ(FieldsOf(SplitPath(root_, "train"), {"text"}),
            (Lines{"en/train-00000.jsonl|", "en/train-00001.jsonl|"}));
  EXPECT_EQ(RecordsOf(SplitPath(root_, "test")).size(), 2U);
  EXPECT_EQ(ListInputFiles({SplitPath(root_, "test")})->size(), 2U);
}

TEST_F(FoldersTest, SplitsByNames) {
  for (const char* name : {"data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet",
                           "data/dev.jsonl", "testing.csv.gz", "LICENSE", ".cache/train.jsonl"}) {
    Put(name, "x");
  }
  EXPECT_EQ(Files("train"), "data/train-00000-of-00002.parquet data/train-00001-of-00002.parquet");
  EXPECT_EQ(Files("validation"), "data/dev.jsonl");
  EXPECT_EQ(Files("dev"), "data/dev.jsonl");
  EXPECT_EQ(Files("test"), "testing.csv.gz");
  EXPECT_TRUE(IsTable(SplitPath(root_, "train")));
  EXPECT_TRUE(HasHeader(SplitPath(root_, "test")));
  Put("fr/train.jsonl", "x");
  EXPECT_EQ(Files("train", "fr"), "fr/train.jsonl");
}

TEST_F(FoldersTest, SplitsThatSaveToDiskWrote) {
  Put("dataset_dict.json", R"({"splits": ["train", "test"]})");
  const std::string chat = *ReadFile(kColumns + "chat_stream.arrow");
  for (const char* split : {"train", "test"}) {
    Put(std::string(split) + "/state.json",
        R"({"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": null})");
    Put(std::string(split) + "/data-00000-of-00001.arrow", chat);
  }
  EXPECT_EQ(Files("train"), "train/data-00000-of-00001.arrow");
  EXPECT_EQ(RecordsOf(SplitPath(root_, "test")), RecordsOf(kColumns + "chat_stream.arrow"));
  EXPECT_NE(Files("dev").find("there are: train, test"), std::string::npos);
  // One of them is a data set of its own, without splits.
  EXPECT_EQ(RecordsOf(root_ + "/train"), RecordsOf(kColumns + "chat_stream.arrow"));
  // All of them are none.
  EXPECT_EQ(Message(FilesOfData(root_).status()),
            Concat(root_, ": a data set with splits; name one of them, as ", root_,
                   "[train]; there are: train, test"));
  Put("train/state.json",
      R"({"_data_files": [{"filename": "data-00000-of-00001.arrow"}],
          "_indices_data_files": [{"filename": "indices.arrow"}]})");
  EXPECT_NE(Files("train").find("the rows are chosen by indices beside them"), std::string::npos);
}

}  // namespace
}  // namespace tessera::data
