// SPDX-License-Identifier: Apache-2.0
#include "models/hub/torch_file/stored_zip.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/printable_text.h"

namespace tessera::models {
namespace {

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint32_t kEntrySignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocatorSignature = 0x07064b50;
constexpr size_t kLocalBytes = 30;
constexpr size_t kEntryBytes = 46;
constexpr size_t kEndBytes = 22;
constexpr size_t kEnd64Bytes = 56;
constexpr size_t kLocatorBytes = 20;
constexpr size_t kLongestComment = 65535;
constexpr uint16_t kZip64Field = 1;
constexpr uint32_t kIn64 = 0xffffffff;  // the true number is in the zip64 field
constexpr size_t kLongestRecord = 200;

// Little-endian. The caller has checked that the bytes are there.
template <typename T>
T Get(std::string_view bytes, size_t at) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<T>(static_cast<uint8_t>(bytes[at + i])) << (8 * i));
  }
  return value;
}

bool Within(uint64_t at, uint64_t size, std::string_view bytes) {
  return at <= bytes.size() && size <= bytes.size() - at;
}

struct Directory {
  uint64_t at = 0;
  uint64_t bytes = 0;
  uint64_t entries = 0;
};

std::optional<size_t> FindEnd(std::string_view bytes) {
  if (bytes.size() < kEndBytes) return std::nullopt;
  const size_t last = bytes.size() - kEndBytes;
  for (size_t back = 0; back <= std::min(last, kLongestComment); ++back) {
    if (Get<uint32_t>(bytes, last - back) == kEndSignature) return last - back;
  }
  return std::nullopt;
}

StatusOr<Directory> FindDirectory(std::string_view bytes, const std::string& where) {
  const std::optional<size_t> end = FindEnd(bytes);
  if (!end) return DataLoss(where, ": the zip archive has no directory at its end; it was cut off");
  Directory directory = {Get<uint32_t>(bytes, *end + 16), Get<uint32_t>(bytes, *end + 12),
                         Get<uint16_t>(bytes, *end + 10)};
  const bool located =
      *end >= kLocatorBytes && Get<uint32_t>(bytes, *end - kLocatorBytes) == kLocatorSignature;
  if (located) {
    const uint64_t at = Get<uint64_t>(bytes, *end - kLocatorBytes + 8);
    if (!Within(at, kEnd64Bytes, bytes) || Get<uint32_t>(bytes, at) != kEnd64Signature) {
      return DataLoss(where, ": the zip archive's 64-bit directory is damaged");
    }
    directory = {Get<uint64_t>(bytes, at + 48), Get<uint64_t>(bytes, at + 40),
                 Get<uint64_t>(bytes, at + 32)};
  }
  if (!Within(directory.at, directory.bytes, bytes) ||
      directory.entries > directory.bytes / kEntryBytes) {
    return DataLoss(where, ": the zip archive's directory lies beyond its end");
  }
  return directory;
}

// What an entry of the directory says, with the numbers that need 64 bits.
struct Record {
  std::string_view name;
  uint16_t flags = 0;
  uint16_t method = 0;
  uint64_t packed = 0;
  uint64_t size = 0;
  uint64_t local = 0;
};

// The zip64 field holds those of the three numbers that did not fit, in this order.
bool ReadZip64(std::string_view extra, Record* record) {
  for (size_t at = 0; at + 4 <= extra.size();) {
    const size_t size = Get<uint16_t>(extra, at + 2);
    if (size > extra.size() - at - 4) return false;
    const std::string_view field = extra.substr(at + 4, size);
    at += 4 + size;
    if (Get<uint16_t>(extra, at - size - 4) != kZip64Field) continue;
    size_t next = 0;
    for (uint64_t* number : {&record->size, &record->packed, &record->local}) {
      if (*number != kIn64) continue;
      if (next + 8 > field.size()) return false;
      *number = Get<uint64_t>(field, next);
      next += 8;
    }
  }
  return true;
}

StatusOr<std::string_view> DataOf(const Record& record, std::string_view bytes,
                                  const std::string& what) {
  if ((record.flags & 1) != 0) return InvalidArgument(what, " is encrypted");
  if (record.method != 0 || record.packed != record.size) {
    return InvalidArgument(what, " is compressed, which torch does not do");
  }
  if (!Within(record.local, kLocalBytes, bytes) ||
      Get<uint32_t>(bytes, record.local) != kLocalSignature) {
    return DataLoss(what, " is not where the directory says");
  }
  const uint64_t data = record.local + kLocalBytes + Get<uint16_t>(bytes, record.local + 26) +
                        Get<uint16_t>(bytes, record.local + 28);
  if (!Within(data, record.size, bytes)) return DataLoss(what, " lies beyond the file's end");
  return bytes.substr(data, record.size);
}

}  // namespace

bool StoredZip::Is(std::string_view bytes) {
  return bytes.size() >= 4 && Get<uint32_t>(bytes, 0) == kLocalSignature;
}

StatusOr<StoredZip> StoredZip::Read(std::string_view bytes, const std::string& where) {
  TESSERA_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(bytes, where));
  const std::string_view records = bytes.substr(directory.at, directory.bytes);
  StoredZip zip;
  size_t at = 0;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    const auto damaged = [&] {
      return DataLoss(where, ": entry ", i, " of the zip archive's directory is damaged");
    };
    if (!Within(at, kEntryBytes, records) || Get<uint32_t>(records, at) != kEntrySignature) {
      return damaged();
    }
    const size_t name = Get<uint16_t>(records, at + 28);
    const size_t extra = Get<uint16_t>(records, at + 30);
    const size_t comment = Get<uint16_t>(records, at + 32);
    if (!Within(at + kEntryBytes, name + extra + comment, records)) return damaged();
    Record record = {.name = records.substr(at + kEntryBytes, name),
                     .flags = Get<uint16_t>(records, at + 8),
                     .method = Get<uint16_t>(records, at + 10),
                     .packed = Get<uint32_t>(records, at + 20),
                     .size = Get<uint32_t>(records, at + 24),
                     .local = Get<uint32_t>(records, at + 42)};
    if (!ReadZip64(records.substr(at + kEntryBytes + name, extra), &record)) return damaged();
    at += kEntryBytes + name + extra + comment;
    if (record.method != 0 && record.name.find("/code/__torch__") != std::string_view::npos) {
      return InvalidArgument(where,
                             ": is a program of TorchScript; "
                             "torch.save(model.state_dict(), FILE) writes its weights");
    }
    TESSERA_ASSIGN_OR_RETURN(
        const std::string_view data,
        DataOf(record, bytes,
               Concat(where, ": '", PrintableLine(std::string(record.name), kLongestRecord),
                      "' of the zip archive")));
    zip.entries_.push_back({record.name, data});
  }
  return zip;
}

}  // namespace tessera::models
