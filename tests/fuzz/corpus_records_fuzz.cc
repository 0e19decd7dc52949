// SPDX-License-Identifier: Apache-2.0
// corpus/io: lines, compressed files, WARC.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "corpus/io/record_reader.h"
#include "data/dataset/byte_source.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

using data::Compressed;
using data::Compression;

// The first byte chooses the file's name; what is read must be UTF-8, and JSON when it is written.
bool Run(std::string_view bytes) {
  if (bytes.empty()) return false;
  static const FuzzFolder folder;
  const std::string name = bytes[0] == 'w' ? "a.warc" : bytes[0] == 't' ? "a.txt" : "a.jsonl";
  folder.Write(name, bytes.substr(1));
  auto reader = corpus::RecordReader::Open({folder.Path(name)}, {});
  if (!reader.ok()) return false;
  int64_t read = 0, number = 0;
  corpus::Block block;
  for (;;) {
    const StatusOr<bool> more = (*reader)->Next(&block);
    if (!more.ok() || !*more) break;
    for (const corpus::Record& record : block.records) {
      TESSERA_CHECK(record.number > number, "records", "numbers do not grow");
      number = record.number;
      corpus::Document document;
      bool passed_over = false;
      if (!corpus::ReadDocument(block, record, "text", &document, &passed_over).empty()) continue;
      if (passed_over) continue;
      ++read;
      TESSERA_CHECK(FindInvalidUtf8(document.text()) == kNoInvalidUtf8, "records",
                    "a text is no UTF-8");
      document.Set("added", "1");
      std::string line;
      document.AppendLine(&line);
      TESSERA_CHECK(nlohmann::json::accept(line), "records", "a line is no JSON: ", line);
    }
  }
  return read > 0;
}

std::vector<std::string> Seeds() {
  const std::string lines =
      "{\"id\": 1, \"text\": \"a\\u00e9\\n\"}\n{\"url\": \"http://a\", \"text\": \"b\", \"o\": "
      "[{}]}\n";
  const std::string page =
      "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=latin1\r\nTransfer-Encoding: chunked\r\n"
      "\r\n5\r\n<p>\xE9\x61\r\n0\r\n\r\n";
  const std::string warc =
      "WARC/1.0\r\nWARC-Type: response\r\nContent-Length: " + std::to_string(page.size()) +
      "\r\n\r\n" + page +
      "\r\n\r\nWARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: "
      "4\r\n\r\ntext\r\n\r\n";
  return {"j" + lines,
          "j" + Compressed(lines, Compression::kGzip),
          "j" + Compressed(lines, Compression::kZstd),
          "tone\ntwo\n",
          "w" + warc,
          "w" + Compressed(warc, Compression::kGzip)};
}

const FuzzTargetRegistration registration(
    {.name = "corpus_records",
     .run = Run,
     .seeds = Seeds,
     .words = {"WARC/1.0", "Content-Length: ", "WARC-Type: ", "conversion", "response", "resource",
               "Content-Encoding: gzip", "charset=", "\\ud83d", "\"text\": "}});

}  // namespace
}  // namespace tessera::fuzz
