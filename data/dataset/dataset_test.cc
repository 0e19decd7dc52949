// SPDX-License-Identifier: Apache-2.0
// Indexed datasets on the disk, how text gets there, and the samples made of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "core/batch_keys.h"
#include "core/thread_pool.h"
#include "data/dataset/blended_dataset.h"
#include "data/dataset/byte_source.h"
#include "data/dataset/document_dataset.h"
#include "data/dataset/indexed_dataset.h"
#include "data/dataset/indexed_dataset_writer.h"
#include "data/dataset/map_dataset.h"
#include "data/dataset/packed_dataset.h"
#include "data/dataset/subset.h"
#include "data/dataset/text_input.h"
#include "data/dataset/token_dataset.h"
#include "data/dataset/tokenize.h"
#include "data/tokenizer/byte_tokenizer.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;
using Wide = std::vector<int64_t>;

template <typename T>
std::string Raw(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// The bytes of an .idx as the layout says, put together by hand.
std::string Index(uint8_t type, const std::vector<int32_t>& lengths, const Wide& pointers,
                  const Wide& documents) {
  std::string out("MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17);
  out += static_cast<char>(type);
  out += Raw<uint64_t>({lengths.size(), documents.size()});
  return out + Raw(lengths) + Raw(pointers) + Raw(documents);
}

class DatasetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/dataset_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Put(const std::string& name, const std::string& bytes) const {
    fs::create_directories(fs::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }
  std::string Get(const std::string& name) const {
    const auto text = ReadFile(Path(name));
    EXPECT_TRUE(text.ok()) << text.status();
    return text.ok() ? *text : "";
  }
  std::shared_ptr<const IndexedDataset> Open(const std::string& name) const {
    auto data = IndexedDataset::Open(Path(name));
    EXPECT_TRUE(data.ok()) << data.status();
    return data.ok() ? *data : nullptr;
  }
  // Writes documents of one sequence each.
  std::shared_ptr<const IndexedDataset> Write(const std::string& name,
                                              const std::vector<Ids>& documents,
                                              int64_t vocab_size = 1000) const {
    auto writer = IndexedDatasetWriter::Create(Path(name), vocab_size);
    EXPECT_TRUE(writer.ok()) << writer.status();
    for (const Ids& document : documents) {
      EXPECT_TRUE((*writer)->AddSequence(document).ok());
      (*writer)->EndDocument();
    }
    EXPECT_TRUE((*writer)->Finish().ok());
    return Open(name);
  }
  std::vector<std::string> Names() const {
    auto names = ListDirectory(folder_);
    return names.ok() ? *names : std::vector<std::string>();
  }
  std::string folder_;
};

Wide All(const IndexedDataset& data) {
  Wide out(static_cast<size_t>(data.num_tokens()));
  data.Read(0, out);
  return out;
}

// The samples of these numbers.
StatusOr<Batch> MakeBatch(const Dataset& dataset, const Wide& indices) {
  std::vector<Sample> samples;
  for (const int64_t index : indices) samples.push_back({index, 0});
  return dataset.MakeBatch(samples);
}

Wide Values(const Batch& batch, const TensorKey& key) { return batch.at(key).ToVector<int64_t>(); }

Wide Range(int64_t begin, int64_t end) {
  Wide out(static_cast<size_t>(end - begin));
  std::iota(out.begin(), out.end(), begin);
  return out;
}

Ids Counting(int32_t count, int32_t first = 0) {
  Ids out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

// ---- Indexed layout ----

TEST_F(DatasetTest, WriterMakesMegatronsBytes) {
  Write("a", {{1, 2, 3}, {}, {65000}}, 65499);
  EXPECT_EQ(Get("a.bin"), Raw<uint16_t>({1, 2, 3, 65000}));
  EXPECT_EQ(Get("a.idx"), Index(8, {3, 0, 1}, {0, 6, 6}, {0, 1, 2, 3}));
  Write("b", {{1, 70000}}, 65500 + 5000);
  EXPECT_EQ(Get("b.bin"), Raw<int32_t>({1, 70000}));
  EXPECT_EQ(Get("b.idx"), Index(4, {2}, {0}, {0, 1}));
  EXPECT_EQ(Names(), (std::vector<std::string>{"a.bin", "a.idx", "b.bin", "b.idx"}));
}

TEST_F(DatasetTest, WriterRefusesIdsBeyondTheVocabularyAndLeavesNothing) {
  {
    auto writer = IndexedDatasetWriter::Create(Path("a"), 100);
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE((*writer)->AddSequence(Ids{5, 99}).ok());
    const Status status = (*writer)->AddSequence(Ids{7, 100});
    EXPECT_NE(Message(status).find("token id 100 at position 3"), std::string::npos) << status;
    EXPECT_FALSE((*writer)->AddSequence(Ids{-1}).ok());
  }
  EXPECT_TRUE(Names().empty());
  EXPECT_FALSE(IndexedDatasetWriter::Create(Path("none/a"), 100).ok());
}

TEST_F(DatasetTest, ReadsEveryIntegerType) {
  const auto check = [&](uint8_t type, const std::string& bin, int width, const Wide& expected) {
    Put("t.bin", bin);
    Put("t.idx", Index(type, {2, 1}, {0, 2 * width}, {0, 2}));
    const auto data = Open("t");
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(All(*data), expected) << static_cast<int>(type);
    EXPECT_EQ(data->num_documents(), 1);
    EXPECT_EQ(data->num_sequences(), 2);
  };
  check(1, Raw<uint8_t>({1, 255, 3}), 1, {1, 255, 3});
  check(2, Raw<int8_t>({1, -1, 3}), 1, {1, -1, 3});
  check(3, Raw<int16_t>({1, 32767, 3}), 2, {1, 32767, 3});
  check(8, Raw<uint16_t>({1, 65535, 3}), 2, {1, 65535, 3});
  check(4, Raw<int32_t>({1, 1 << 30, 3}), 4, {1, 1 << 30, 3});
  check(5, Raw<int64_t>({1, int64_t{1} << 40, 3}), 8, {1, int64_t{1} << 40, 3});
  check(9, Raw<uint32_t>({1, 4294967295u, 3}), 4, {1, 4294967295, 3});
  check(10, Raw<uint64_t>({1, uint64_t{1} << 40, 3}), 8, {1, int64_t{1} << 40, 3});
}

TEST_F(DatasetTest, SequencesWithGapsAndOutOfOrder) {
  Put("g.bin", Raw<uint16_t>({10, 11, 99, 20, 21, 22, 99}));
  Put("g.idx", Index(8, {3, 0, 2}, {6, 2, 0}, {0, 1, 1, 3}));
  const auto data = Open("g");
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(All(*data), (Wide{20, 21, 22, 10, 11}));
  Wide two(2);
  data->Read(2, two);
  EXPECT_EQ(two, (Wide{22, 10}));
  EXPECT_EQ(data->ByteOffset(1), 8);
  EXPECT_EQ(data->ByteOffset(4), 2);
  EXPECT_EQ(data->num_documents(), 3);
  EXPECT_EQ(data->document_begin(1), 3);
  EXPECT_EQ(data->document_begin(2), 3);
  EXPECT_EQ(data->document_begin(3), 5);
  EXPECT_EQ(data->DocumentAt(2), 0);
  EXPECT_EQ(data->DocumentAt(3), 2);
  EXPECT_THROW(data->Read(4, two), Error);
  EXPECT_THROW(data->Read(-1, two), Error);
  EXPECT_THROW(data->DocumentAt(5), Error);
}

TEST_F(DatasetTest, PrefixIsFoundWithEitherName) {
  Write("p", {{1, 2}});
  for (const char* name : {"p", "p.bin", "p.idx"}) {
    EXPECT_EQ(IndexedDatasetPrefix(Path(name)), Path("p"));
    EXPECT_NE(Open(name), nullptr);
  }
  EXPECT_EQ(IndexedDatasetPrefix(Path("q")), std::nullopt);
  EXPECT_EQ(IndexedDataset::Open(Path("q")).status().code(), StatusCode::kNotFound);
}

TEST_F(DatasetTest, HostileIndexesAreRefusedByName) {
  const std::string bin = Raw<uint16_t>({1, 2, 3, 4});
  const std::string good = Index(8, {2, 2}, {0, 4}, {0, 1, 2});
  Put("h.bin", bin);
  const auto failure = [&](const std::string& index) {
    Put("h.idx", index);
    const auto data = IndexedDataset::Open(Path("h"));
    EXPECT_FALSE(data.ok());
    const std::string message = data.ok() ? "" : Message(data.status());
    EXPECT_NE(message.find("h.idx"), std::string::npos) << message;
    return message;
  };
  const auto patched = [&](size_t offset, const std::string& bytes) {
    std::string index = good;
    return index.replace(offset, bytes.size(), bytes);
  };
  const auto has = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message << " lacks " << part;
  };
  Put("h.idx", good);
  ASSERT_NE(Open("h"), nullptr);
  for (size_t size = 0; size < good.size(); ++size) failure(good.substr(0, size));
  failure(good + "x");
  has(failure(patched(9, Raw<uint64_t>({2}))), "version 2");
  has(failure(patched(17, "\x07")), "type code 7");
  has(failure(patched(17, std::string(1, '\0'))), "type code 0");
  has(failure(patched(17, "\x0b")), "type code 11");
  has(failure("TNTIDX" + good.substr(6)), "the older format (TNTIDX); preprocess_data.py");
  for (const uint64_t count : {~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 62,
                               (~uint64_t{0}) / 12 + 1, uint64_t{3}, uint64_t{1000}}) {
    failure(patched(18, Raw<uint64_t>({count})));
    failure(patched(26, Raw<uint64_t>({count + 1})));
  }
  has(failure(patched(34, Raw<int32_t>({-2}))), "length -2 at byte 34");
  has(failure(patched(38, Raw<int32_t>({3}))), "sequence 1");
  has(failure(patched(42, Raw<int64_t>({-2}))), "byte -2");
  has(failure(patched(50, Raw<int64_t>({6}))), "outside");
  has(failure(patched(50, Raw<int64_t>({INT64_MAX}))), "says byte 50");
  has(failure(patched(58, Raw<int64_t>({1}))), "border 0 at byte 58");
  has(failure(patched(66, Raw<int64_t>({3}))), "border 1");
  has(failure(patched(66, Raw<int64_t>({-1}))), "border 1");
  has(failure(patched(74, Raw<int64_t>({1}))), "last document border");
  failure(Index(8, {2, 2}, {0, 4}, {}));
  has(failure("not an index at all, but long enough to be one .............."), "MMIDIDX");
  Put("h.bin", bin.substr(0, 7));
  has(failure(good), "h.bin");
}

// ---- Text ----

TEST_F(DatasetTest, ListsFilesBelowDirectories) {
  Put("in/b.txt", "b");
  Put("in/a/z.txt", "z");
  Put("in/.git/config", "no");
  Put("in/.hidden", "no");
  const std::string other = Put("other", "o");
  fs::create_directory_symlink(Path("in"), Path("in/loop"));
  const auto files = ListInputFiles({other, Path("in")});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(*files, (std::vector<std::string>{other, Path("in/a/z.txt"), Path("in/b.txt")}));
  EXPECT_EQ(ListInputFiles({Path("none")}).status().code(), StatusCode::kNotFound);
  fs::create_directory(Path("empty"));
  EXPECT_FALSE(ListInputFiles({Path("empty")}).ok());
}

TEST_F(DatasetTest, LinksThatWouldLeaveDataOutAreRefused) {
  Put("in/a.txt", "a");
  const std::string elsewhere = Put("elsewhere/b.txt", "b");
  fs::create_symlink(elsewhere, Path("in/b.txt"));
  fs::create_symlink("nowhere", Path("in/.hidden"));
  const auto files = ListInputFiles({Path("in")});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(*files, (std::vector<std::string>{Path("in/a.txt"), Path("in/b.txt")}));

  fs::create_symlink("nowhere", Path("in/c.txt"));
  EXPECT_EQ(
      ListInputFiles({Path("in")}).status().message(),
      Path("in/c.txt") + ": a link to 'nowhere', which does not exist; mend or remove the link");
  fs::remove(Path("in/c.txt"));
  fs::create_directory_symlink("../elsewhere", Path("in/part"));
  EXPECT_EQ(ListInputFiles({Path("in")}).status().message(),
            Path("in/part") +
                ": a link to the folder '../elsewhere', which is not read; name "
                "that folder itself, or remove the link");
}

TEST_F(DatasetTest, DocumentsOfTextAndJsonLines) {
  Put("in/a.txt", "one\ntwo\n");
  Put("in/b.txt", "");
  Put("in/c.jsonl",
      "{\"text\": \"x\\ny\", \"id\": 1}\r\n\n  \n{\"text\": \"\"}\n{\"text\": \"\xC3\xA9\"}");
  const auto files = ListInputFiles({Path("in")});
  ASSERT_TRUE(files.ok());
  std::vector<std::string> seen;
  const auto visit = [&](std::string_view text, const std::string& where) {
    seen.push_back(where.substr(folder_.size()) + "=" + std::string(text));
    return OkStatus();
  };
  ASSERT_TRUE(ForEachDocument(*files, {}, visit).ok());
  EXPECT_EQ(seen, (std::vector<std::string>{"/in/a.txt=one\ntwo\n", "/in/c.jsonl:1=x\ny",
                                            "/in/c.jsonl:5=\xC3\xA9"}));
  const auto failure = [&](const std::string& bytes, const TextInputOptions& options) {
    return Message(ForEachDocument({Put("bad", bytes)}, options, visit));
  };
  const TextInputOptions lines{.format = TextFormat::kJsonLines, .json_key = "body"};
  EXPECT_EQ(failure("abc\xFFxyz", {}), Path("bad") + ": invalid UTF-8 at byte 3");
  EXPECT_EQ(failure("{\"text\": 1, \"n\": 2}", lines),
            Path("bad") + ":1: no string \"body\" (members: text, n); name it with --json-key");
  EXPECT_EQ(failure("{\"body\": \"a\"}\n{\"body\": null}", lines),
            Path("bad") +
                ":2: no string \"body\", which is null (members: body); leave the record "
                "out, or name another member with --json-key");
  EXPECT_EQ(failure("{\"body\": \"a\"}\n[1]\n", lines), Path("bad") + ":2: not a JSON object");
  EXPECT_NE(failure("{\"body\": \"a\"}\n{\"body\": \"a\n", lines).find(":2: not valid JSON"),
            std::string::npos);
  EXPECT_NE(failure(std::string(100000, '['), lines).find("deeper"), std::string::npos);
  EXPECT_NE(failure("{\"body\": \"\\ud800\"}", lines).find(":1: not valid"), std::string::npos);
}

// Records are read as such by every name that such files have; what is no text is called by its
// format's name.
TEST_F(DatasetTest, DocumentsOfEveryKindOfRecord) {
  const std::string lines = "{\"text\": \"x, y\", \"id\": 1}\n{\"id\": 2, \"text\": \"z\"}\n";
  const std::string array = "[" + lines.substr(0, lines.find('\n')) + ",{\"text\": \"z\"}]";
  const std::pair<const char*, std::string> files[] = {{"a.jsonl", lines},
                                                       {"a.ndjson", lines},
                                                       {"a.json", lines},
                                                       {"b.json", array},
                                                       {"b.JSON", array},
                                                       {"a.JSONL", lines},
                                                       {"a.JsonL", lines},
                                                       {"c.json", "\xEF\xBB\xBF" + lines},
                                                       {"b.jsonl", array},
                                                       {"a.csv", "id,text\n1,\"x, y\"\n2,z\n"},
                                                       {"a.CSV", "text\n\"x, y\"\nz"},
                                                       {"a.tsv", "text\tid\nx, y\t1\r\nz\t2\r\n"},
                                                       {"a.Tsv", "\xEF\xBB\xBFtext\nx, y\nz\n"}};
  for (const auto& [name, bytes] : files) {
    std::vector<std::string> seen;
    const Status status =
        ForEachDocument({Put(name, bytes)}, {}, [&](std::string_view text, const std::string&) {
          seen.emplace_back(text);
          return OkStatus();
        });
    EXPECT_TRUE(status.ok()) << name << ": " << status;
    EXPECT_EQ(seen, (std::vector<std::string>{"x, y", "z"})) << name;
  }
  const auto failure = [&](const std::string& name, const std::string& bytes) {
    return Message(ForEachDocument(
        {Put(name, bytes)}, {}, [](std::string_view, const std::string&) { return OkStatus(); }));
  };
  EXPECT_EQ(failure("d.csv", "a,b\n1,2\n"),
            Path("d.csv") + ": no column 'text' (columns: a, b); name it with --json-key");
  // Other tasks' records.
  const std::pair<std::string, std::string> tasks[] = {
      {R"("messages": [])", "`--task chat` learns such conversations"},
      {R"("conversations": [])", "`--task chat` learns such conversations"},
      {R"("instruction": "", "output": "")", "`--task chat` learns such conversations"},
      {R"("prompt": "", "chosen": "", "rejected": "")", "`--task preference` learns such pairs"}};
  for (const auto& [members, task] : tasks) {
    const std::string said = failure("d.jsonl", "{" + members + "}");
    EXPECT_TRUE(said.ends_with("; name it with --json-key; " + task)) << said;
  }
  EXPECT_EQ(failure("d.json", "{\n \"data\": [\"pretty\"]\n}"),
            Path("d.json") + ": no string \"text\" (members: data); name it with --json-key");
  EXPECT_NE(failure("d.json", "{\n \"text\": \"pretty\"\n").find("d.json:1: not valid JSON"),
            std::string::npos);
  const std::pair<std::string, const char*> formats[] = {
      {"BZh91AY&SY\xFF", "compressed with bzip2"},
      {std::string("\xFD"
                   "7zXZ\0",
                   6),
       "compressed with xz"},
      {"PK\x03\x04\xFF", "a zip archive"},
      {std::string("\xFF\xFEh\0i\0", 6), "UTF-16"},
      {std::string("\xFE\xFF\0h\0i", 6), "UTF-16"}};
  for (const auto& [bytes, format] : formats) {
    for (const char* name : {"e.txt", "e.gz", "e.jsonl", "e.csv", "e.json"}) {
      EXPECT_NE(failure(name, bytes).find(Concat(Path(name), ": is ", format, ", not text; ")),
                std::string::npos)
          << failure(name, bytes);
    }
  }
  // An archive of texts is valid UTF-8.
  const std::string tar = "a.txt" + std::string(252, '\0') + "ustar" + std::string(250, '\0');
  for (const auto compression : {Compression::kNone, Compression::kGzip}) {
    EXPECT_NE(failure("e.tar", Compressed(tar, compression)).find("is a tar archive, not text"),
              std::string::npos);
  }
  // nanoGPT's token ids: of a small vocabulary they are valid UTF-8, of GPT-2's they are not.
  for (const auto& [name, bytes] : {std::pair("train", std::string("\x12\0\x2f\0\x38\0\x01\0", 8)),
                                    {"train.txt", std::string("\x12\0\0\0\x38\0\0\0", 8)},
                                    {"train.bin", std::string("\xE6\x1A\xC6\xC6", 4)}}) {
    const std::string said = failure(name, bytes);
    EXPECT_TRUE(said.starts_with(Path(name) + ": holds binary numbers, not text; of token ids "))
        << said;
  }
  EXPECT_EQ(failure("e.txt", std::string("a word\0", 7)), "");
  EXPECT_NE(failure("e.txt", "PAR1\x15\xFF").find("is a Parquet file, not text; give it a name"),
            std::string::npos);
  EXPECT_NE(
      failure("e.arrow", "FEA1\xFF").find("Feather file of version 1, not text; write it again"),
      std::string::npos);
  EXPECT_NE(failure("e.txt", "ARROW1\xFF").find("is an Arrow file, not text; give it a name"),
            std::string::npos);
}

TEST_F(DatasetTest, TokenizesWithEndOfTextBetweenDocuments) {
  Put("in/1.txt", "ab");
  Put("in/2.txt", "c");
  const ByteTokenizer tokenizer;
  auto done = TokenizeToIndexedDataset(tokenizer, {Path("in")}, Path("out/sub/tokens"), {});
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->num_documents, 2);
  EXPECT_EQ(done->num_tokens, 5);
  EXPECT_EQ(All(*Open("out/sub/tokens")), (Wide{'a', 'b', 256, 'c', 256}));
  done = TokenizeToIndexedDataset(tokenizer, {Path("in")}, Path("plain"), {.append_eos = false});
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(All(*Open("plain")), (Wide{'a', 'b', 'c'}));

  Put("none.txt", "");
  const auto empty = TokenizeToIndexedDataset(tokenizer, {Path("none.txt")}, Path("e"), {});
  EXPECT_NE(Message(empty.status()).find("none.txt: no text"), std::string::npos);
  EXPECT_FALSE(fs::exists(Path("e.bin")));
  Put("bad.txt", std::string(5000000, 'x') + "\xC3");
  const auto bad = TokenizeToIndexedDataset(tokenizer, {Path("bad.txt")}, Path("e"), {});
  EXPECT_EQ(Message(bad.status()), Path("bad.txt") + ": invalid UTF-8 at byte 5000000");
}

TEST_F(DatasetTest, ManyDocumentsKeepTheirOrderOnAnyNumberOfThreads) {
  std::string lines;
  std::string expected;
  for (int i = 0; i < 3000; ++i) {
    const std::string text(static_cast<size_t>(1 + i * i % 4001), static_cast<char>('a' + i % 26));
    lines += "{\"text\": \"" + text + "\"}\n";
    expected += text;
  }
  Put("many.jsonl", lines);
  const ByteTokenizer tokenizer;
  for (const int threads : {1, 3}) {
    SetNumThreads(threads);
    const std::string prefix = Concat("many", threads);
    ASSERT_TRUE(TokenizeToIndexedDataset(tokenizer, {Path("many.jsonl")}, Path(prefix),
                                         {.append_eos = false})
                    .ok());
    std::string got;
    for (const int64_t id : All(*Open(prefix))) got += static_cast<char>(id);
    EXPECT_TRUE(got == expected);
  }
  SetNumThreads(AvailableCores());
  EXPECT_EQ(Get("many1.idx"), Get("many3.idx"));
}

// As LlamaTokenizer's files: <s> before a text. Of BERT's, [CLS] is the tasks' to place, and [SEP]
// ends a document, since there is no end of text.
TEST_F(DatasetTest, DocumentsBeginAndEndAsTheTokenizersTexts) {
  const auto tokenizer = [&](const std::string& name, const std::string& first) {
    Put(name + "/tokenizer.json", R"({"added_tokens": [{"id": 2, "content": ")" + first +
                                      R"(", "special": true}],
            "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, ")" +
                                      first + R"(": 2},
                      "unk_token": "a"},
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": {"type": "TemplateProcessing",
              "single": [{"SpecialToken": {"id": ")" +
                                      first + R"(", "type_id": 0}},
                         {"Sequence": {"id": "A", "type_id": 0}}],
              "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                       {"Sequence": {"id": "B", "type_id": 1}}],
              "special_tokens": {")" + first +
                                      R"(": {"id": ")" + first + R"(", "ids": [2], "tokens": [")" +
                                      first + R"("]}}}})");
    auto loaded = LoadTokenizer(Path(name));
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return *std::move(loaded);
  };
  Put("in/1.txt", "b a");
  Put("in/2.txt", "b");
  const auto llama = tokenizer("llama", "<s>");
  EXPECT_EQ(llama->text_begin(), std::vector<int32_t>{2});
  const auto tokens = [&](const Tokenizer& with, const TokenizeOptions& options) {
    EXPECT_TRUE(TokenizeToIndexedDataset(with, {Path("in")}, Path("t"), options).ok());
    return All(*Open("t"));
  };
  EXPECT_EQ(tokens(*llama, {}), (Wide{2, 1, 0, 2, 1}));
  EXPECT_EQ(tokens(*llama, {.prepend_begin = false}), (Wide{1, 0, 1}));
  Put("bert/tokenizer_config.json", R"({"cls_token": "[CLS]", "sep_token": "a"})");
  const auto bert = tokenizer("bert", "[CLS]");
  ASSERT_EQ(bert->cls_id(), 2);
  ASSERT_EQ(bert->sep_id(), 0);
  EXPECT_EQ(bert->text_begin(), std::vector<int32_t>());
  EXPECT_EQ(tokens(*bert, {}), (Wide{1, 0, 0, 1, 0}));
  EXPECT_EQ(tokens(*bert, {.append_eos = false}), (Wide{1, 0, 1}));
}

TEST_F(DatasetTest, FilesAreReusedWhileNothingChanged) {
  const std::string input = Put("in.txt", "abc");
  const ByteTokenizer tokenizer;
  const auto run = [&](const Tokenizer& with, const TokenizeOptions& options) {
    const auto done = TokenizeToIndexedDataset(with, {input}, Path("c"), options);
    EXPECT_TRUE(done.ok()) << done.status();
    return done.ok() && done->reused;
  };
  EXPECT_FALSE(run(tokenizer, {}));
  EXPECT_TRUE(run(tokenizer, {}));
  EXPECT_FALSE(run(tokenizer, {.append_eos = false}));
  EXPECT_TRUE(run(tokenizer, {.append_eos = false}));
  EXPECT_FALSE(run(tokenizer, {.append_eos = false, .reuse = false}));
  const auto chars = MakeTokenizer("char", {input}, {});
  ASSERT_TRUE(chars.ok());
  EXPECT_EQ((*chars)->vocab_size(), 5);
  EXPECT_FALSE(run(**chars, {}));
  EXPECT_TRUE(run(**chars, {}));
  Put("in.txt", "abcd");
  EXPECT_FALSE(run(**chars, {}));
  EXPECT_EQ(All(*Open("c")), (Wide{2, 3, 4, 0, 1}));
  Put("c.idx", "damaged");
  EXPECT_FALSE(run(**chars, {}));
  std::string bytes = Get("c.bin");
  bytes[0] ^= 1;  // still an id of the vocabulary
  Put("c.bin", bytes);
  EXPECT_FALSE(run(**chars, {}));
  EXPECT_EQ(All(*Open("c")), (Wide{2, 3, 4, 0, 1}));
  fs::remove(Path("c.bin"));
  EXPECT_FALSE(run(**chars, {}));
  Put("c.json", "{");
  EXPECT_FALSE(run(**chars, {}));
  EXPECT_TRUE(run(**chars, {}));
  fs::last_write_time(input, fs::last_write_time(input) + std::chrono::seconds(2));
  EXPECT_FALSE(run(**chars, {}));
}

// ---- Samples ----

TEST_F(DatasetTest, PackedWindowsCoverTheStream) {
  const auto data = Write("w", {Counting(7), Counting(4, 7), Counting(9, 11)});  // 0 ... 19
  for (const int64_t seq_len : {1, 2, 3, 6, 9, 18, 19}) {
    const auto made = PackedDataset::Create(data, {.seq_len = seq_len, .vocab_size = 20});
    ASSERT_TRUE(made.ok()) << made.status();
    const PackedDataset& packed = **made;
    EXPECT_EQ(packed.size(), 19 / seq_len);
    for (int64_t i = 0; i < packed.size(); ++i) {
      const auto batch = MakeBatch(packed, Wide{i});
      ASSERT_TRUE(batch.ok());
      EXPECT_EQ(Values(*batch, keys::kInputIds), Range(i * seq_len, (i + 1) * seq_len));
      EXPECT_EQ(Values(*batch, keys::kTargets), Range(i * seq_len + 1, (i + 1) * seq_len + 1));
      EXPECT_FALSE(batch->has(keys::kPositionIds));
      EXPECT_EQ(batch->targets, seq_len);
    }
    EXPECT_THROW((void)MakeBatch(packed, Wide{packed.size()}), Error);
  }
  const auto few = PackedDataset::Create(data, {.seq_len = 20, .vocab_size = 20});
  EXPECT_NE(Message(few.status()).find("20 tokens are too few: 21 are needed"), std::string::npos)
      << few.status();
  EXPECT_THROW((void)PackedDataset::Create(data, {.seq_len = 0, .vocab_size = 20}), Error);
  // Tokens made of a text are named by the text, wherever they lie.
  const auto of_text = IndexedDataset::Open(Path("w"), "my.txt");
  ASSERT_TRUE(of_text.ok());
  const auto few_of_text = PackedDataset::Create(*of_text, {.seq_len = 20, .vocab_size = 20});
  EXPECT_EQ(Message(few_of_text.status()),
            "my.txt: 20 tokens are too few: 21 are needed with a sequence length of 20");
}

TEST_F(DatasetTest, PackedBatchRows) {
  const auto data = Write("w", {Counting(10)});
  const auto made = PackedDataset::Create(data, {.seq_len = 3, .vocab_size = 10});
  ASSERT_TRUE(made.ok());
  const auto batch = MakeBatch(**made, Wide{2, 0});
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->rows, 2);
  EXPECT_EQ(batch->tokens, 6);
  EXPECT_EQ(Values(*batch, keys::kInputIds), (Wide{6, 7, 8, 0, 1, 2}));
  EXPECT_EQ(Values(*batch, keys::kTargets), (Wide{7, 8, 9, 1, 2, 3}));
}

TEST_F(DatasetTest, PackedSplitsFromTheEnd) {
  const auto data = Write("s", {Counting(100)});
  PackedDatasetOptions options{.seq_len = 4, .vocab_size = 100, .validation_fraction = 0.2};
  const auto part = [&](DataPart which) {
    options.part = which;
    return PackedDataset::Create(data, options);
  };
  EXPECT_EQ((*part(DataPart::kTrain))->end(), 80);
  EXPECT_EQ((*part(DataPart::kValidation))->begin(), 80);
  EXPECT_EQ(Values(*MakeBatch(**part(DataPart::kValidation), Wide{0}), keys::kInputIds),
            Range(80, 84));
  options.validation_fraction = 0.01;  // one token: made up to one window
  EXPECT_EQ((*part(DataPart::kTrain))->end(), 95);
  EXPECT_EQ((*part(DataPart::kValidation))->size(), 1);
  options.validation_fraction = 0;
  EXPECT_EQ((*part(DataPart::kTrain))->end(), 100);
  EXPECT_FALSE(part(DataPart::kValidation).ok());
  options.validation_fraction = 0.05;
  options.seq_len = 50;
  for (const DataPart which : {DataPart::kTrain, DataPart::kValidation}) {
    EXPECT_NE(Message(part(which).status()).find("102 are needed"), std::string::npos);
  }
}

TEST_F(DatasetTest, PackedResetsAtDocuments) {
  const auto data = Write("r", {{1, 2, 3}, {}, {4}, {5, 6, 7, 8, 9, 10}});
  const auto made =
      PackedDataset::Create(data, {.seq_len = 4, .vocab_size = 50, .reset_at_documents = true});
  ASSERT_TRUE(made.ok()) << made.status();
  const auto batch = MakeBatch(**made, Wide{0, 1});
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(Values(*batch, keys::kInputIds), (Wide{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(Values(*batch, keys::kTargets), (Wide{2, 3, -100, -100, 6, 7, 8, 9}));
  EXPECT_EQ(Values(*batch, keys::kPositionIds), (Wide{0, 1, 2, 0, 0, 1, 2, 3}));
  EXPECT_EQ(Values(*batch, keys::kDocumentIds), (Wide{0, 0, 0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(batch->targets, 6);
}

TEST_F(DatasetTest, DocumentsAreRowsOfTheirOwnLength) {
  const auto data = Write("d", {{1, 2, 3}, {9}, {}, Counting(10, 10), {5, 6}});
  const auto made = DocumentDataset::Create(data, {.seq_len = 4, .vocab_size = 50});
  ASSERT_TRUE(made.ok()) << made.status();
  const DocumentDataset& documents = **made;
  ASSERT_EQ(documents.size(), 5);  // the long one is three: 4, 4 and 1
  const auto batch = MakeBatch(documents, Wide{0, 3, 4});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(Values(*batch, keys::kInputIds), (Wide{1, 2, 18, 0, 5, 0}));
  EXPECT_EQ(Values(*batch, keys::kTargets), (Wide{2, 3, 19, -100, 6, -100}));
  const Tensor mask = batch->at(keys::kTokenMask);
  EXPECT_EQ(mask.shape(), Shape({3, 2}));
  EXPECT_EQ(mask.ToVector<int32_t>(), (std::vector<int32_t>{1, 1, 1, 0, 1, 0}));
  EXPECT_FALSE(MakeBatch(documents, Wide{1, 2})->has(keys::kTokenMask));
  EXPECT_EQ(batch->targets, 4);
  EXPECT_EQ(batch->tokens, 6);
  EXPECT_EQ(Values(*MakeBatch(documents, Wide{1}), keys::kInputIds), Range(10, 14));
  EXPECT_EQ(Values(*MakeBatch(documents, Wide{2}), keys::kTargets), Range(15, 19));
  EXPECT_THROW((void)MakeBatch(documents, Wide{5}), Error);
  const auto narrow = DocumentDataset::Create(data, {.seq_len = 4, .vocab_size = 19});
  EXPECT_NE(Message(MakeBatch(**narrow, Wide{3}).status()).find("token id 19 at position 13"),
            std::string::npos);
  auto blend = BlendedDataset::Create({*made, *made}, {1, 1});
  ASSERT_TRUE(blend.ok()) << blend.status();
  EXPECT_EQ(Values(*MakeBatch(**blend, Wide{0, 1}), keys::kInputIds), (Wide{1, 2, 1, 2}));
}

// Each token but a document's first is predicted once, by either part or the other.
TEST_F(DatasetTest, DocumentsArePredictedWholeAndSplitBetweenThem) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<Ids> documents;
    int32_t next = 0;
    for (int d = 0; d < 2 + round; ++d) {
      const auto length = static_cast<int32_t>(2 + random() % 9);
      documents.push_back(Counting(length, next));
      next += length;
    }
    const auto data = Write(Concat("p", round), documents);
    PackedDatasetOptions options{.seq_len = 1 + round % 5, .vocab_size = 1000};
    options.validation_fraction = 0.1 * (round % 8);
    std::map<int64_t, int> times;
    for (const DataPart part : {DataPart::kTrain, DataPart::kValidation}) {
      if (part == DataPart::kValidation && options.validation_fraction == 0) continue;
      options.part = part;
      const auto made = DocumentDataset::Create(data, options);
      ASSERT_TRUE(made.ok()) << made.status();
      for (int64_t i = 0; i < (*made)->size(); ++i) {
        const auto batch = MakeBatch(**made, Wide{i});
        for (const int64_t target : Values(*batch, keys::kTargets)) ++times[target];
      }
    }
    for (const Ids& document : documents) {
      EXPECT_EQ(times.count(document[0]), 0u);
      for (size_t t = 1; t < document.size(); ++t) EXPECT_EQ(times[document[t]], 1);
    }
  }
  const auto one = Write("one", {{1}, {2, 3, 4}});
  const PackedDatasetOptions half{
      .seq_len = 4, .vocab_size = 9, .part = DataPart::kValidation, .validation_fraction = 0.5};
  const auto none = DocumentDataset::Create(one, half);
  EXPECT_NE(Message(none.status()).find("none of two tokens is left to validate on"),
            std::string::npos)
      << none.status();
}

TEST_F(DatasetTest, PackedNamesIdsBeyondTheVocabulary) {
  const auto data = Write("v", {Counting(9)});
  const auto made = PackedDataset::Create(data, {.seq_len = 4, .vocab_size = 8});
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(MakeBatch(**made, Wide{0}).ok());
  const auto batch = MakeBatch(**made, Wide{1});  // id 8 is its last label
  EXPECT_EQ(Message(batch.status()),
            Path("v") + ".bin: token id 8 at position 8 (byte 16) is beyond the vocabulary of 8");
  Put("n.bin", Raw<int8_t>({1, -5, 1}));
  Put("n.idx", Index(2, {3}, {0}, {0, 1}));
  const auto negative = PackedDataset::Create(Open("n"), {.seq_len = 2, .vocab_size = 8});
  EXPECT_NE(Message(MakeBatch(**negative, Wide{0}).status()).find("token id -5 at position 1"),
            std::string::npos);
}

TEST(SubsetTest, WhatASplitKeepsHasTheOrderOfTheData) {
  const auto all = std::make_shared<MapDataset<int64_t>>(
      20, [](int64_t index) -> StatusOr<int64_t> { return index; },
      [](std::span<const int64_t> items) -> StatusOr<Batch> {
        const std::vector<int64_t> ids(items.begin(), items.end());
        return BatchOf({{keys::kInputIds, Tensor::FromVector(ids, {std::ssize(ids), 1})}});
      });
  const auto samples = [](const Dataset& part) {
    std::vector<Sample> every;
    for (int64_t i = 0; i < part.size(); ++i) every.push_back({.index = i});
    return part.MakeBatch(every)->at(keys::kInputIds).ToVector<int64_t>();
  };
  EXPECT_EQ(SplitDataset(all, {.fraction = 0}).first, all);
  for (const bool from_end : {false, true}) {
    const auto [kept, held_out] = SplitDataset(all, {.fraction = 0.4, .from_end = from_end});
    const std::vector<int64_t> order = samples(*kept);
    EXPECT_EQ(order.size(), 12U);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
    EXPECT_EQ(order.back() == 11, from_end);
    std::set<int64_t> both(order.begin(), order.end());
    for (const int64_t index : samples(*held_out)) both.insert(index);
    EXPECT_EQ(both.size(), 20U);
  }
  const auto kept = SplitDataset(all, {.fraction = 0.4}).first;
  EXPECT_THROW(static_cast<void>(kept->MakeBatch(std::vector<Sample>{{.index = 12}})), Error);
}

TEST_F(DatasetTest, BlendKeepsProportionsEverywhere) {
  const auto packed = [&](const std::string& name, int32_t tokens) {
    return *PackedDataset::Create(Write(name, {Counting(tokens)}),
                                  {.seq_len = 2, .vocab_size = 1000});
  };
  const std::vector<std::shared_ptr<const TokenDataset>> parts = {packed("x", 11), packed("y", 41),
                                                                  packed("z", 5)};
  const std::vector<double> weights = {3, 6, 1};
  const auto made = BlendedDataset::Create(parts, weights);
  ASSERT_TRUE(made.ok()) << made.status();
  const BlendedDataset& blend = **made;
  std::vector<int64_t> counts(3, 0);
  for (int64_t i = 0; i < 3 * BlendedDataset::kPeriod; ++i) {
    const BlendedDataset::Place place = blend.PlaceOf(i);
    EXPECT_EQ(place.index, counts[place.dataset] % parts[place.dataset]->size());
    ++counts[place.dataset];
    // The lag of one sample or so, and half a sample per period for rounding the weights.
    const double bound = 1.5 + 0.5 * static_cast<double>(1 + i / BlendedDataset::kPeriod);
    for (size_t d = 0; d < 3; ++d) {
      const double share = weights[d] / 10 * static_cast<double>(i + 1);
      ASSERT_NEAR(static_cast<double>(counts[d]), share, bound) << i;
    }
  }
  // The largest for its weight is seen whole: 20 samples at 6 of 10.
  EXPECT_GE(blend.size(), 33);
  EXPECT_LE(blend.size(), 35);
  std::map<std::pair<int64_t, int64_t>, int> seen;
  for (int64_t i = 0; i < blend.size(); ++i) {
    const BlendedDataset::Place place = blend.PlaceOf(i);
    ++seen[{place.dataset, place.index}];
  }
  EXPECT_EQ(seen.size(), 5u + 20u + 2u);
  const BlendedDataset::Place first = blend.PlaceOf(0);
  EXPECT_EQ(Values(*MakeBatch(blend, Wide{0}), keys::kInputIds),
            Values(*MakeBatch(*parts[first.dataset], Wide{first.index}), keys::kInputIds));
}

TEST_F(DatasetTest, BlendOfTinyWeightsAndBadOnes) {
  const auto part =
      *PackedDataset::Create(Write("x", {Counting(11)}), {.seq_len = 2, .vocab_size = 99});
  const auto tiny = BlendedDataset::Create({part, part, part}, {1.0, 1e-12, 1e-300});
  ASSERT_TRUE(tiny.ok()) << tiny.status();
  std::vector<int> counts(3, 0);
  for (int64_t i = 0; i < BlendedDataset::kPeriod; ++i) ++counts[(*tiny)->PlaceOf(i).dataset];
  EXPECT_EQ(counts, (std::vector<int>{BlendedDataset::kPeriod - 2, 1, 1}));
  EXPECT_EQ((*BlendedDataset::Create({part}, {0.5}))->size(), part->size());
  for (const double bad : {0.0, -1.0, std::nan(""), static_cast<double>(INFINITY)}) {
    EXPECT_FALSE(BlendedDataset::Create({part, part}, {1.0, bad}).ok()) << bad;
  }
  EXPECT_FALSE(BlendedDataset::Create({part, part}, {1.0}).ok());
  EXPECT_FALSE(BlendedDataset::Create({}, {}).ok());
  const auto other =
      *PackedDataset::Create(Write("y", {Counting(11)}), {.seq_len = 3, .vocab_size = 99});
  EXPECT_FALSE(BlendedDataset::Create({part, other}, {1.0, 1.0}).ok());
}

}  // namespace
}  // namespace tessera::data
