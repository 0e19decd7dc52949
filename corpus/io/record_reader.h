// SPDX-License-Identifier: Apache-2.0
// The records of files, in blocks that are the same in every run: lines of .jsonl and .txt, records
// of WARC and WET.
//
//   TESSERA_ASSIGN_OR_RETURN(auto reader, RecordReader::Open(files, {}));
//   Block block;
//   for (;;) {
//     TESSERA_ASSIGN_OR_RETURN(const bool more, reader->Next(&block));
//     if (!more) break;
//     for (const Record& record : block.records) {
//       Document document;
//       if (const std::string wrong = ReadDocument(block, record, "text", &document); ...)
//     }
//   }
//
// A file is compressed or not (data/dataset/byte_source.h), which its bytes say. Its kind follows
// from its name without .gz or .zst, or from what it begins with: .warc and .wet, or "WARC/"; .txt,
// a document a line; anything else is JSON lines. Blank lines count as lines and are no records.
//
// What cannot be read does not end the reading: it is a record with its reason in `refusal`. That
// is a line or WARC record of more than kMaxRecordBytes, a file that is damaged from here on, a
// record whose length is wrong (the next one is looked for).
#ifndef TESSERA_CORPUS_IO_RECORD_READER_H_
#define TESSERA_CORPUS_IO_RECORD_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "corpus/io/document.h"
#include "data/dataset/byte_source.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::corpus {

inline constexpr int64_t kMaxRecordBytes = int64_t{16} << 20;
inline constexpr int64_t kBlockBytes = int64_t{1} << 20;

enum class FileKind { kJsonLines, kLines, kWarc, kWhole };

struct Record {
  int64_t number;  // among all lines and records of the inputs, from 1
  int64_t offset;  // in Block::bytes
  int64_t size;
  std::string refusal = {};  // why there are no bytes; empty: there are
};

// Where a block begins.
struct ReadPosition {
  int64_t file = 0;
  int64_t offset = 0;  // in the file's bytes when they are decompressed
  int64_t number = 1;  // of the next line or record

  nlohmann::json ToJson() const;
  static StatusOr<ReadPosition> FromJson(const nlohmann::json& json);
};

struct Block {
  std::string path;  // of the file that all of it is from
  FileKind kind = FileKind::kJsonLines;
  std::string bytes;
  std::vector<Record> records;
};

class RecordReader {
 public:
  // NotFound and the like for a file that cannot be opened at all.
  // `whole_files`: each file is a block, of one record (kWhole), whatever it holds.
  static StatusOr<std::unique_ptr<RecordReader>> Open(std::vector<std::string> files,
                                                      const ReadPosition& from,
                                                      bool whole_files = false);

  // False: that was all. Blocks hold kBlockBytes and what the last record needs.
  StatusOr<bool> Next(Block* block);
  // Where the next block begins.
  const ReadPosition& position() const { return position_; }
  // How many bytes of the files themselves have been read, and how many there are.
  int64_t bytes_read() const;
  int64_t bytes_in_all() const { return bytes_in_all_; }

 private:
  explicit RecordReader(std::vector<std::string> files) : files_(std::move(files)) {}

  Status OpenFile();
  // Bytes behind `pending_`; false: the file has no more, or none that can be read (damage_).
  StatusOr<bool> Fill(size_t wanted);
  void CloseFile();
  StatusOr<bool> NextOfFile(Block* block);
  Status NextLines(Block* block);
  Status NextWarc(Block* block);
  Status NextWhole(Block* block);
  Status PassLine(Block* block);
  Status RefuseWarc(Block* block, const std::string& why);
  void Consume(size_t size);

  const std::vector<std::string> files_;
  std::vector<int64_t> sizes_;
  int64_t bytes_in_all_ = 0;
  ReadPosition position_;
  std::unique_ptr<data::ByteSource> source_;
  bool whole_files_ = false;
  FileKind kind_ = FileKind::kJsonLines;
  // What has been read and is in no block yet. Dropping bytes in front costs what they are, not
  // what lies behind them.
  class Pending {
   public:
    std::string_view view() const { return std::string_view(bytes_).substr(begin_); }
    size_t size() const { return bytes_.size() - begin_; }
    bool empty() const { return size() == 0; }
    void clear() {
      bytes_.clear();
      begin_ = 0;
    }
    void DropFront(size_t count) {
      begin_ += count;
      if (begin_ < bytes_.size() - begin_) return;
      bytes_.erase(0, begin_);
      begin_ = 0;
    }
    // Makes it so long; what is new is to be written to.
    char* Resize(size_t size) {
      bytes_.resize(begin_ + size);
      return bytes_.data() + begin_;
    }
    // Its first bytes, which are dropped.
    std::string Take(size_t count) {
      std::string rest(view().substr(count));
      Resize(count);
      bytes_.erase(0, begin_);
      begin_ = 0;
      return std::exchange(bytes_, std::move(rest));
    }

   private:
    std::string bytes_;
    size_t begin_ = 0;
  };
  Pending pending_;
  bool at_end_ = false;  // of the file
  std::string damage_;   // why it ends
};

// The document that a record is, or why it is none ("" : it is one). Of WARC records `id`, `url`
// and `date` are members; a page is in the member `html`, as UTF-8, and has no text. *passed_over
// is set for records that are no documents, such as WARC's own information.
std::string ReadDocument(const Block& block, const Record& record, std::string_view text_key,
                         Document* document, bool* passed_over);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_IO_RECORD_READER_H_
