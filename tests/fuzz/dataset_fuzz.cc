// SPDX-License-Identifier: Apache-2.0
// Data files: .bin/.idx, JSON lines, tables (data/dataset/).
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "data/dataset/byte_source.h"
#include "data/dataset/indexed_dataset.h"
#include "data/dataset/indexed_dataset_writer.h"
#include "data/dataset/record_input.h"
#include "data/dataset/text_input.h"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

bool RunIndexed(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.WriteAll(bytes, {"tokens.idx", "tokens.bin"});
  const auto dataset = data::IndexedDataset::Open(folder.Path("tokens"));
  if (!dataset.ok()) return false;
  // Everything was checked, so that reading cannot fail.
  std::vector<int64_t> ids(static_cast<size_t>(std::min<int64_t>((*dataset)->num_tokens(), 256)));
  (*dataset)->Read(0, ids);
  (*dataset)->Read((*dataset)->num_tokens() - std::ssize(ids), ids);
  for (int64_t d = 0; d < std::min<int64_t>((*dataset)->num_documents(), 64); ++d) {
    const int64_t begin = (*dataset)->document_begin(d);
    if (begin < (*dataset)->num_tokens()) (*dataset)->DocumentAt(begin);
  }
  return true;
}

std::vector<std::string> IndexedSeeds() {
  std::vector<std::string> seeds;
  for (const int64_t vocab_size : {100, 70000}) {
    const FuzzFolder folder;
    auto writer = data::IndexedDatasetWriter::Create(folder.Path("tokens"), vocab_size);
    if (!writer.ok()) return {};
    for (const std::vector<int32_t>& ids : {std::vector<int32_t>{1, 2, 3}, {4}, {5, 6}}) {
      (*writer)->AddSequence(ids).IgnoreError();
      if (ids.size() < 3) (*writer)->EndDocument();
    }
    (*writer)->Finish().IgnoreError();
    seeds.push_back(Joined({FileOf(folder.Path("tokens.idx")), FileOf(folder.Path("tokens.bin"))}));
  }
  return seeds;
}

// The documents of a file, each with a zero behind it; nullopt: it is refused.
std::optional<std::string> Documents(const std::string& path) {
  std::string documents;
  const Status read =
      data::ForEachDocument({path}, {}, [&](std::string_view text, const std::string&) {
        documents.append(text).push_back('\0');
        return OkStatus();
      });
  if (!read.ok()) return std::nullopt;
  return documents;
}

bool RunJsonLines(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.Write("text.jsonl", bytes);
  return Documents(folder.Path("text.jsonl")).has_value();
}

// The first byte says which compression, and whether the rest is compressed already. Of a text that
// is compressed here, in two parts, the documents are those of the text.
bool RunCompressedText(std::string_view bytes) {
  static const FuzzFolder folder;
  if (bytes.empty()) return false;
  const auto kind = static_cast<uint8_t>(bytes[0]);
  const data::Compression compression =
      kind % 2 == 0 ? data::Compression::kGzip : data::Compression::kZstd;
  const std::string name = kind % 2 == 0 ? "text.jsonl.gz" : "text.jsonl.zst";
  const std::string_view text = bytes.substr(1);
  if (kind & 2) {
    folder.Write(name, text);
    return Documents(folder.Path(name)).has_value();
  }
  folder.Write("text.jsonl", text);
  const size_t middle = text.size() / 2;
  folder.Write(name, data::Compressed(text.substr(0, middle), compression) +
                         data::Compressed(text.substr(middle), compression));
  const std::optional<std::string> plain = Documents(folder.Path("text.jsonl"));
  TESSERA_CHECK(Documents(folder.Path(name)) == plain, "fuzz",
                "compressed text is read otherwise than the text");
  return plain.has_value();
}

std::vector<std::string> CompressedTextSeeds() {
  const std::string lines = "{\"text\": \"a b\"}\n{\"text\": \"\\u00e9\"}\n";
  return {std::string("\0", 1) + lines, "\x01" + lines,
          "\x02" + data::Compressed(lines, data::Compression::kGzip),
          "\x03" + data::Compressed(lines, data::Compression::kZstd)};
}

std::vector<std::string> JsonLinesSeeds() {
  return {"{\"text\": \"a b\"}\n\n{\"text\": \"\\u00e9\\ud83d\\ude00\", \"x\": [1, 2.5e3]}\r\n"};
}

// The first byte says which kind of table.
bool RunTable(std::string_view bytes) {
  static const FuzzFolder folder;
  constexpr std::array<const char*, 4> kNames = {"t.csv", "t.tsv", "t.json", "t.jsonl"};
  if (bytes.empty()) return false;
  const char* const name = kNames[static_cast<uint8_t>(bytes[0]) % kNames.size()];
  folder.Write(name, bytes.substr(1));
  const auto columns = data::ColumnsOf(folder.Path(name));
  if (!columns.ok()) return false;
  size_t length = 0;
  const Status read = data::ForEachRecord(
      folder.Path(name), *columns, [&](std::span<const std::string> fields, const std::string&) {
        for (const std::string& field : fields) length += field.size();
        return OkStatus();
      });
  return read.ok();
}

std::vector<std::string> TableSeeds() {
  return {"\x04sentence,label\n\"a, \"\"b\"\"\",1\r\nc,0\n", "\x05sentence\tlabel\na\t1\n",
          "\x06[{\"sentence\": \"a\", \"label\": 1}, {\"sentence\": \"b\", \"label\": true}]",
          "\x07{\"sentence\": \"a\", \"label\": 1.5}\n{\"sentence\": \"b\", \"label\": 2}\n"};
}

const FuzzTargetRegistration indexed({.name = "indexed_dataset",
                                      .run = RunIndexed,
                                      .seeds = IndexedSeeds,
                                      .words = {std::string("MMIDIDX\0\0", 9)}});
const FuzzTargetRegistration json_lines({.name = "json_lines",
                                         .run = RunJsonLines,
                                         .seeds = JsonLinesSeeds,
                                         .words = {"\"text\"", "\\u", "\\ud83d", "\xEF\xBB\xBF"}});
const FuzzTargetRegistration compressed_text({.name = "compressed_text",
                                              .run = RunCompressedText,
                                              .seeds = CompressedTextSeeds,
                                              .words = {"\"text\"", "\x1F\x8B\x08",
                                                        "\x28\xB5\x2F\xFD"}});
const FuzzTargetRegistration table({.name = "table",
                                    .run = RunTable,
                                    .seeds = TableSeeds,
                                    .words = {"\"\"", "\r\n", "\xEF\xBB\xBF", "sentence"}});

}  // namespace
}  // namespace tessera::fuzz
