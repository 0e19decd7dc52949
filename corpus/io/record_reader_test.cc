// SPDX-License-Identifier: Apache-2.0
#include "corpus/io/record_reader.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "corpus/io/warc.h"
#include "data/dataset/byte_source.h"

namespace tessera::corpus {
namespace {

std::string Write(const std::string& name, const std::string& content) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

struct Read {
  std::vector<std::string> texts;
  std::vector<std::string> refusals;
  std::vector<int64_t> numbers;
  int64_t blocks = 0;
};

Read ReadFrom(const std::vector<std::string>& files, const ReadPosition& from,
              std::vector<ReadPosition>* begins = nullptr) {
  Read read;
  auto reader = RecordReader::Open(files, from);
  EXPECT_TRUE(reader.ok()) << Message(reader.status());
  for (;;) {
    const ReadPosition begin = (*reader)->position();
    Block block;
    const auto more = (*reader)->Next(&block);
    EXPECT_TRUE(more.ok()) << Message(more.status());
    if (!more.ok() || !*more) return read;
    if (begins != nullptr) begins->push_back(begin);
    ++read.blocks;
    for (const Record& record : block.records) {
      Document document;
      bool passed_over = false;
      const std::string wrong = ReadDocument(block, record, "text", &document, &passed_over);
      if (passed_over) continue;
      read.numbers.push_back(record.number);
      (wrong.empty() ? read.texts : read.refusals)
          .push_back(wrong.empty() ? document.text() : wrong);
    }
  }
}

Read ReadAll(const std::vector<std::string>& files) { return ReadFrom(files, {}); }

TEST(RecordReaderTest, LinesAreNumberedOverAllFiles) {
  const std::string a = Write("a.jsonl", "\xEF\xBB\xBF{\"text\":\"1\"}\r\n\n{\"text\":\"3\"}");
  const std::string b = Write("b.txt", "x\n \ny\n");
  const Read read = ReadAll({a, b});
  EXPECT_EQ(read.texts, (std::vector<std::string>{"1", "3", "x", "y"}));
  EXPECT_EQ(read.numbers, (std::vector<int64_t>{1, 3, 4, 6}));
}

TEST(RecordReaderTest, CompressedFilesAreReadByTheirBytes) {
  const std::string lines = "{\"text\":\"1\"}\n{\"text\":\"2\"}\n";
  for (const data::Compression compression : {data::Compression::kGzip, data::Compression::kZstd}) {
    // Two members, one line across them.
    const std::string bytes = data::Compressed(lines.substr(0, 15), compression) +
                              data::Compressed(lines.substr(15), compression);
    EXPECT_EQ(ReadAll({Write("c.jsonl", bytes)}).texts, (std::vector<std::string>{"1", "2"}));
    // Damage is named, and what is before it is read.
    const Read cut = ReadAll({Write("cut.jsonl", bytes.substr(0, bytes.size() - 3))});
    ASSERT_FALSE(cut.texts.empty());
    EXPECT_EQ(cut.texts[0], "1");
    ASSERT_EQ(cut.refusals.size(), 1u);
    EXPECT_NE(cut.refusals[0].find("cut.jsonl: "), std::string::npos) << cut.refusals[0];
    EXPECT_NE(cut.refusals[0].find("ends early"), std::string::npos) << cut.refusals[0];
  }
  const std::string junk = data::Compressed(lines, data::Compression::kGzip) + "junk";
  EXPECT_EQ(ReadAll({Write("junk.jsonl.gz", junk)}).refusals.size(), 1u);
}

TEST(RecordReaderTest, FilesOfOtherFormatsAreNamed) {
  const std::string a = Write("a.jsonl", "{\"text\":\"1\"}\n");
  const std::string table = Write("table", std::string("PAR1\x15\x04\n{\"text\":\"2\"}\n", 24));
  const std::string arrow = Write("table.arrow", std::string("ARROW1\0\0\xFF\n", 10));
  const std::string text = Write("text.txt", "ARROW1 and PAR1\n");
  const std::string pointer =
      Write("p.jsonl", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n");
  const std::string tar =
      Write("t.jsonl.gz", data::Compressed("a.jsonl" + std::string(250, '\0') + "ustar" +
                                               std::string(250, '\0') + "{\"text\":\"3\"}\n",
                                           data::Compression::kGzip));
  const Read read = ReadAll({table, a, arrow, text, pointer, tar});
  EXPECT_EQ(read.texts, (std::vector<std::string>{"1", "ARROW1 and PAR1"}));
  EXPECT_EQ(read.refusals, (std::vector<std::string>{
                               table + ": is Parquet, not lines of JSON, lines of text or WARC",
                               arrow + ": is Arrow, not lines of JSON, lines of text or WARC",
                               pointer + ": is a pointer of Git LFS, not lines of JSON, lines of "
                                         "text or WARC",
                               tar + ": is a tar archive, not lines of JSON, lines of text or "
                                     "WARC"}));
}

TEST(RecordReaderTest, ALineThatIsTooLongIsRefused) {
  const std::string fits(kMaxRecordBytes - 20, 'x');
  const std::string path =
      Write("long.txt", "a\n" + std::string(kMaxRecordBytes + 1, 'y') + "\n" + fits + "\nb\n" +
                            std::string(3 * kMaxRecordBytes, 'z'));
  const Read read = ReadAll({path});
  EXPECT_EQ(read.texts, (std::vector<std::string>{"a", fits, "b"}));
  EXPECT_EQ(read.refusals, (std::vector<std::string>(2, "a line of more than 16 MiB")));
  EXPECT_EQ(read.numbers, (std::vector<int64_t>{1, 2, 3, 4, 5}));
}

// Wherever a run continues, it sees the blocks that it would have seen.
TEST(RecordReaderTest, BlocksAreTheSameFromEveryPosition) {
  std::string lines;
  for (int i = 0; lines.size() < 5 * kBlockBytes; ++i) {
    const size_t size = i % 40 == 7 ? kBlockBytes + 300000 : static_cast<size_t>(i * 7919 % 200000);
    lines += std::string(size, static_cast<char>('a' + i % 26)) + "\n";
  }
  const std::vector<std::string> files = {
      Write("p.txt", lines), Write("q.txt.gz", data::Compressed(lines, data::Compression::kGzip))};
  std::vector<ReadPosition> begins;
  const Read all = ReadFrom(files, {}, &begins);
  ASSERT_GT(begins.size(), 8u);
  for (const ReadPosition& from : begins) {
    const auto again = ReadPosition::FromJson(from.ToJson());
    ASSERT_TRUE(again.ok());
    std::vector<ReadPosition> rest;
    const Read read = ReadFrom(files, *again, &rest);
    EXPECT_EQ(rest.back().offset, begins.back().offset);
    EXPECT_EQ(read.blocks,
              static_cast<int64_t>(begins.end() - std::find_if(begins.begin(), begins.end(),
                                                               [&](const ReadPosition& p) {
                                                                 return p.number == from.number;
                                                               })));
    EXPECT_TRUE(std::equal(read.texts.rbegin(), read.texts.rend(), all.texts.rbegin()));
  }
}

std::string Warc(const std::string& type, const std::string& content, int64_t length = -1) {
  // WARC 1.0 has addresses between brackets, 1.1 has them bare. A resource is wget's log here.
  const std::string url = type == "conversion" ? "http://a/b"
                          : type == "resource" ? "<metadata://gnu.org/software/wget/warc/wget.log>"
                                               : "<http://a/b>";
  return "WARC/1.0\r\nWARC-Type: " + type + "\r\nWARC-Target-URI: " + url +
         "\r\nWARC-Record-ID: <urn:1>\r\nContent-Length: " +
         std::to_string(length < 0 ? std::ssize(content) : length) + "\r\n\r\n" + content +
         "\r\n\r\n";
}

TEST(RecordReaderTest, WarcRecords) {
  const std::string page =
      "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=ISO-8859-1\r\n\r\n<p>caf\xE9</p>";
  const std::string chunked =
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n";
  const std::string path =
      Write("a.warc.gz",
            data::Compressed(Warc("warcinfo", "software: x"), data::Compression::kGzip) +
                data::Compressed(Warc("conversion", "plain\ntext"), data::Compression::kGzip) +
                data::Compressed(
                    Warc("response", page) + Warc("response", chunked) + Warc("resource", "a log"),
                    data::Compression::kGzip));
  auto reader = RecordReader::Open({path}, {});
  Block block;
  ASSERT_TRUE(*(*reader)->Next(&block));
  ASSERT_EQ(block.records.size(), 5u);
  Document document;
  bool passed_over = false;
  for (const size_t about_others : {0, 4}) {
    EXPECT_EQ(ReadDocument(block, block.records[about_others], "text", &document, &passed_over),
              "");
    EXPECT_TRUE(passed_over);
  }
  EXPECT_EQ(ReadDocument(block, block.records[1], "text", &document, &passed_over), "");
  EXPECT_EQ(document.text(), "plain\ntext");
  EXPECT_EQ(document.id(), "<urn:1>");
  EXPECT_EQ(document.Url(), "http://a/b");
  EXPECT_EQ(ReadDocument(block, block.records[2], "text", &document, &passed_over), "");
  EXPECT_FALSE(document.has_text());
  EXPECT_EQ(document.Url(), "http://a/b");
  EXPECT_EQ(document.Text("html"), "<p>café</p>");
  EXPECT_EQ(ReadDocument(block, block.records[3], "text", &document, &passed_over), "");
  EXPECT_EQ(document.text(), "abcde");
  // And as WET again.
  std::string wet;
  AppendWet(document, &wet);
  EXPECT_EQ(ReadAll({Write("b.wet", wet)}).texts, std::vector<std::string>{"abcde"});
}

TEST(RecordReaderTest, WarcOfWrongLengths) {
  const std::string good = Warc("conversion", "good");
  const Read read = ReadAll({Write(
      "w.warc",
      good + Warc("conversion", "too short", 3) + good + Warc("conversion", "too long", 20) + good +
          Warc("conversion", "huge", int64_t{1} << 40) + good + "junk\n" + good +
          "WARC/1.0\r\nContent-Length: x\r\n\r\n" + good + Warc("conversion", "cut", 1000))});
  EXPECT_EQ(read.texts, (std::vector<std::string>(6, "good")));
  EXPECT_EQ(read.refusals,
            (std::vector<std::string>{"a WARC record whose Content-Length is wrong",
                                      "a WARC record whose Content-Length is wrong",
                                      "a WARC record of more than 16 MiB", "no WARC record",
                                      "a WARC record without a Content-Length",
                                      "a WARC record that ends before its Content-Length"}));
}

}  // namespace
}  // namespace tessera::corpus
