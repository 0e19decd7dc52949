// SPDX-License-Identifier: Apache-2.0
#include "corpus/io/record_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/utf8.h"
#include "corpus/io/warc.h"

namespace tessera::corpus {
namespace {

using nlohmann::json;

constexpr size_t kFirstBytes = 8;      // tell WARC
constexpr size_t kForeignBytes = 264;  // tell what is no text
constexpr size_t kWarcHeaderBytes = size_t{64} << 10;

FileKind KindOf(std::string_view path, std::string_view begin) {
  const std::string_view name = data::WithoutCompression(path);
  if (begin.starts_with("WARC/") || name.ends_with(".warc") || name.ends_with(".wet")) {
    return FileKind::kWarc;
  }
  return name.ends_with(".txt") ? FileKind::kLines : FileKind::kJsonLines;
}

// What a file is whose first bytes no records have; empty: it may be read.
std::string_view ForeignFormat(std::string_view begin) {
  using std::string_view_literals::operator""sv;
  constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
      {"PAR1\x15"sv, "Parquet"},
      {"ARROW1\0"sv, "Arrow"},
      {"\xFD"
       "7zXZ\0"sv,
       "compressed by xz"},
      {"BZh91AY&"sv, "compressed by bzip2"},
      {"PK\x03\x04"sv, "a ZIP archive"},
      {"version https://git-lfs.github.com/spec/"sv, "a pointer of Git LFS"}};
  for (const auto& [bytes, format] : kFormats) {
    if (begin.starts_with(bytes)) return format;
  }
  constexpr size_t kTarMark = 257;
  const bool is_tar = begin.size() > kTarMark && begin.substr(kTarMark).starts_with("ustar");
  return is_tar ? "a tar archive" : "";
}

bool IsBlank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

json ReadPosition::ToJson() const {
  return {{"file", file}, {"offset", offset}, {"number", number}};
}

StatusOr<ReadPosition> ReadPosition::FromJson(const json& json) {
  ReadPosition position;
  for (const auto& [key, value] : {std::pair<const char*, int64_t*>{"file", &position.file},
                                   {"offset", &position.offset},
                                   {"number", &position.number}}) {
    if (!json.is_object() || !json.contains(key) || !json[key].is_number_integer()) {
      return DataLoss("a position without ", key);
    }
    *value = json[key];
  }
  return position;
}

StatusOr<std::unique_ptr<RecordReader>> RecordReader::Open(std::vector<std::string> files,
                                                           const ReadPosition& from,
                                                           bool whole_files) {
  std::unique_ptr<RecordReader> reader(new RecordReader(std::move(files)));
  for (const std::string& path : reader->files_) {
    struct stat status;
    if (stat(path.c_str(), &status) != 0) return SystemFailure(errno, path, ": cannot read");
    reader->sizes_.push_back(status.st_size);
    reader->bytes_in_all_ += status.st_size;
  }
  reader->position_ = from;
  reader->whole_files_ = whole_files;
  return reader;
}

Status RecordReader::OpenFile() {
  const std::string& path = files_[static_cast<size_t>(position_.file)];
  TESSERA_ASSIGN_OR_RETURN(source_, data::ByteSource::Open(path));
  pending_.clear();
  at_end_ = false;
  damage_.clear();
  // A file that is damaged at once is of the kind that its name says.
  TESSERA_ASSIGN_OR_RETURN(const bool any, Fill(kFirstBytes));
  kind_ = whole_files_ ? FileKind::kWhole
                       : KindOf(path, any ? pending_.view().substr(0, kFirstBytes) : "");
  TESSERA_RETURN_IF_ERROR(Fill(kForeignBytes).status());
  if (const std::string_view format = ForeignFormat(pending_.view());
      !whole_files_ && !format.empty()) {
    pending_.clear();
    at_end_ = true;
    damage_ = Concat(path, ": is ", format, ", not lines of JSON, lines of text or WARC");
  }
  if (position_.offset == 0) return OkStatus();
  const auto skip = static_cast<size_t>(position_.offset);
  const size_t read = std::min(skip, pending_.size());
  pending_.DropFront(read);
  return source_->Skip(static_cast<int64_t>(skip - read));
}

StatusOr<bool> RecordReader::Fill(size_t wanted) {
  if (pending_.size() >= wanted) return true;
  const size_t before = pending_.size();
  if (!at_end_) {
    char* const begin = pending_.Resize(wanted);
    const StatusOr<size_t> read = source_->Read(begin + before, wanted - before);
    pending_.Resize(before + (read.ok() ? *read : 0));
    if (!read.ok()) {
      // The disk's own failures end the run; damaged data end the file.
      if (read.status().code() != StatusCode::kDataLoss) return read.status();
      damage_ = read.status().message();
    }
    at_end_ = pending_.size() == before;
    if (!at_end_ && pending_.size() < wanted) return Fill(wanted);
  }
  return pending_.size() >= wanted;
}

void RecordReader::CloseFile() {
  source_ = nullptr;
  pending_.clear();
  ++position_.file;
  position_.offset = 0;
}

void RecordReader::Consume(size_t size) {
  pending_.DropFront(size);
  position_.offset += static_cast<int64_t>(size);
}

StatusOr<bool> RecordReader::Next(Block* block) {
  while (position_.file < std::ssize(files_)) {
    if (source_ == nullptr) TESSERA_RETURN_IF_ERROR(OpenFile());
    TESSERA_ASSIGN_OR_RETURN(const bool any, NextOfFile(block));
    if (any) return true;
  }
  return false;
}

StatusOr<bool> RecordReader::NextOfFile(Block* block) {
  block->path = files_[static_cast<size_t>(position_.file)];
  block->kind = kind_;
  block->bytes.clear();
  block->records.clear();
  switch (kind_) {
    case FileKind::kWarc:
      TESSERA_RETURN_IF_ERROR(NextWarc(block));
      break;
    case FileKind::kWhole:
      TESSERA_RETURN_IF_ERROR(NextWhole(block));
      break;
    default:
      TESSERA_RETURN_IF_ERROR(NextLines(block));
  }
  if (at_end_ && pending_.empty()) {
    if (!damage_.empty()) block->records.push_back({position_.number++, 0, 0, damage_});
    CloseFile();
  }
  return !block->records.empty();
}

// How much is read ahead follows from the block's begin alone: a run that continues here has the
// same blocks.
Status RecordReader::NextLines(Block* block) {
  size_t end = 0;
  bool last = false;
  const size_t most = static_cast<size_t>(kMaxRecordBytes) + 1;
  for (size_t wanted = kBlockBytes;; wanted = std::min(2 * wanted, most)) {
    TESSERA_ASSIGN_OR_RETURN(const bool filled, Fill(wanted));
    last = !filled;
    end = pending_.view().rfind('\n') + 1;  // 0: nowhere
    if (last || end > 0) break;
    if (wanted == most) return PassLine(block);
  }
  const bool at_begin = position_.offset == 0;
  // The last line needs no line feed; of a damaged file it is none.
  if (last && damage_.empty()) end = pending_.size();
  block->bytes = pending_.Take(end);
  position_.offset += static_cast<int64_t>(end);
  if (last) Consume(pending_.size());
  const std::string& bytes = block->bytes;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t feed = std::min(bytes.find('\n', begin), bytes.size());
    const std::string_view line(bytes.data() + begin, feed - begin);
    const int64_t number = position_.number++;
    if (!IsBlank(line)) {
      const size_t carriage = line.ends_with('\r') ? 1 : 0;
      const bool marked = at_begin && begin == 0 && line.starts_with("\xEF\xBB\xBF");
      const size_t mark = marked ? 3 : 0;
      block->records.push_back({number, static_cast<int64_t>(begin + mark),
                                static_cast<int64_t>(line.size() - carriage - mark)});
    }
    begin = feed + 1;
  }
  return OkStatus();
}

Status RecordReader::PassLine(Block* block) {
  for (;;) {
    const size_t feed = pending_.view().find('\n');
    Consume(feed == std::string::npos ? pending_.size() : feed + 1);
    if (feed != std::string::npos) break;
    TESSERA_ASSIGN_OR_RETURN(const bool more, Fill(kBlockBytes));
    if (!more && pending_.empty()) break;
  }
  block->records.push_back(
      {position_.number++, 0, 0, Concat("a line of more than ", kMaxRecordBytes >> 20, " MiB")});
  return OkStatus();
}

Status RecordReader::NextWarc(Block* block) {
  while (block->bytes.size() < static_cast<size_t>(kBlockBytes)) {
    TESSERA_ASSIGN_OR_RETURN(const bool has_header, Fill(kWarcHeaderBytes));
    const size_t blanks = std::min(pending_.view().find_first_not_of("\r\n"), pending_.size());
    if (blanks > 0) {
      Consume(blanks);
      continue;
    }
    if (pending_.empty()) return OkStatus();
    const WarcHeader header = ParseWarcHeader(pending_.view());
    if (!header.wrong.empty()) {
      const bool cut = !has_header && !damage_.empty();
      TESSERA_RETURN_IF_ERROR(RefuseWarc(block, cut ? "" : header.wrong));
      continue;
    }
    if (header.content_length > kMaxRecordBytes) {
      TESSERA_RETURN_IF_ERROR(
          RefuseWarc(block, Concat("a WARC record of more than ", kMaxRecordBytes >> 20, " MiB")));
      continue;
    }
    const size_t size = header.size + static_cast<size_t>(header.content_length);
    TESSERA_ASSIGN_OR_RETURN(const bool whole, Fill(size + 4));
    if (pending_.size() < size) {
      const bool cut = !damage_.empty();
      TESSERA_RETURN_IF_ERROR(
          RefuseWarc(block, cut ? "" : "a WARC record that ends before its Content-Length"));
      continue;
    }
    if (whole && pending_.view().substr(size, 4) != "\r\n\r\n" &&
        pending_.view().substr(size, 2) != "\n\n") {
      TESSERA_RETURN_IF_ERROR(RefuseWarc(block, "a WARC record whose Content-Length is wrong"));
      continue;
    }
    block->records.push_back({position_.number++, static_cast<int64_t>(block->bytes.size()),
                              static_cast<int64_t>(size)});
    block->bytes.append(pending_.view().substr(0, size));
    Consume(size);
  }
  return OkStatus();
}

// Goes on where a line begins with "WARC/1". An empty reason: the file's damage says it all.
Status RecordReader::RefuseWarc(Block* block, const std::string& why) {
  if (!why.empty()) block->records.push_back({position_.number++, 0, 0, why});
  constexpr std::string_view kNext = "\nWARC/1";
  Consume(1);
  for (;;) {
    TESSERA_RETURN_IF_ERROR(Fill(kBlockBytes).status());
    const size_t next = pending_.view().find(kNext);
    if (next != std::string::npos) {
      Consume(next + 1);
      return OkStatus();
    }
    if (at_end_ || pending_.size() < kNext.size()) {
      Consume(pending_.size());
      TESSERA_RETURN_IF_ERROR(Fill(1).status());
      return OkStatus();
    }
    Consume(pending_.size() - kNext.size());
  }
}

Status RecordReader::NextWhole(Block* block) {
  for (size_t wanted = kBlockBytes;; wanted *= 2) {
    TESSERA_ASSIGN_OR_RETURN(const bool filled, Fill(wanted));
    if (!filled) break;
  }
  block->records.push_back({position_.number++, 0, std::ssize(pending_)});
  block->bytes = pending_.Take(pending_.size());
  return OkStatus();
}

int64_t RecordReader::bytes_read() const {
  int64_t read = source_ == nullptr ? 0 : source_->file_position();
  for (int64_t i = 0; i < position_.file; ++i) read += sizes_[static_cast<size_t>(i)];
  return read;
}

std::string ReadDocument(const Block& block, const Record& record, std::string_view text_key,
                         Document* document, bool* passed_over) {
  *passed_over = false;
  document->number = record.number;
  if (!record.refusal.empty()) return record.refusal;
  const std::string_view bytes =
      std::string_view(block.bytes)
          .substr(static_cast<size_t>(record.offset), static_cast<size_t>(record.size));
  switch (block.kind) {
    case FileKind::kJsonLines: {
      const char* const wrong = document->Parse(bytes, text_key);
      return wrong == nullptr ? std::string() : wrong;
    }
    case FileKind::kLines:
      if (FindInvalidUtf8(bytes) != kNoInvalidUtf8) return "invalid UTF-8";
      document->Assign(bytes);
      return "";
    case FileKind::kWarc:
      return DocumentOfWarc(bytes, document, passed_over);
    default:
      return "no document";
  }
}

}  // namespace tessera::corpus
