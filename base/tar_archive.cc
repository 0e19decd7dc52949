// SPDX-License-Identifier: Apache-2.0
#include "base/tar_archive.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/file.h"

namespace tessera {
namespace {

constexpr int64_t kBlock = 512;
// Of an extended header: a long name, or what pax says of one entry.
constexpr int64_t kMaxExtension = int64_t{1} << 20;

// An entry's header as it lies in the archive.
struct Block {
  char name[100];
  char mode[8], uid[8], gid[8];
  char size[12];
  char mtime[12];
  char checksum[8];
  char type;
  char link[100];
  char magic[6];
  char version[2];
  char owner[32], group[32];
  char device[16];
  char prefix[155];
  char rest[12];
};
static_assert(sizeof(Block) == kBlock);

template <size_t n>
std::string_view Text(const char (&field)[n]) {
  return {field, strnlen(field, n)};
}

// Octal digits between blanks, or, with the first bit set, a big-endian number.
template <size_t n>
std::optional<int64_t> Number(const char (&field)[n]) {
  const auto first = static_cast<unsigned char>(field[0]);
  int64_t value = 0;
  if (first & 0x80) {
    if (first != 0x80) return std::nullopt;  // negative, or far too large
    for (size_t i = 1; i < n; ++i) {
      if (value > INT64_MAX >> 8) return std::nullopt;
      value = value << 8 | static_cast<unsigned char>(field[i]);
    }
    return value;
  }
  std::string_view text = Text(field);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  text = text.substr(0, text.find(' '));
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= 0 ? std::optional(value) : std::nullopt;
}

// The sum of the header's bytes, its own field taken for blanks. Old writers summed signed ones.
bool ChecksumFits(const Block& block) {
  const auto said = Number(block.checksum);
  Block copy = block;
  std::memset(copy.checksum, ' ', sizeof(copy.checksum));
  char bytes[kBlock];
  std::memcpy(bytes, &copy, sizeof(bytes));
  int64_t sum = 0, signed_sum = 0;
  for (const char byte : bytes) {
    sum += static_cast<unsigned char>(byte);
    signed_sum += static_cast<signed char>(byte);
  }
  return said && (*said == sum || *said == signed_sum);
}

bool IsZero(const Block& block) {
  static constexpr Block kZero = {};
  return std::memcmp(&block, &kZero, sizeof(block)) == 0;
}

// nullptr: none that is known.
const char* CompressionOf(std::string_view begin) {
  using namespace std::string_view_literals;
  static constexpr std::pair<std::string_view, const char*> kKinds[] = {
      {"\x1f\x8b"sv, "gzip"},           {"\x28\xb5\x2f\xfd"sv, "zstd"},
      {"\xfd\x37zXZ\0"sv, "xz"},        {"BZh"sv, "bzip2"},
      {"PK\x03\x04"sv, "zip"},          {"\x04\x22\x4d\x18"sv, "lz4"},
      {"\x37\x7a\xbc\xaf\x27"sv, "7z"}, {"\x1f\x9d"sv, "compress"}};
  for (const auto& [magic, name] : kKinds) {
    if (begin.starts_with(magic)) return name;
  }
  return nullptr;
}

// What makes an entry of this type unreadable; nullptr: nothing.
const char* WhyRefused(char type) {
  switch (type) {
    case '\0':
    case '0':
    case '7':  // contiguous
    case '5':
      return nullptr;
    case '1':
    case '2':
      return "is a link (tar's --dereference follows it)";
    case 'S':
      return "is a sparse file";
    case '3':
    case '4':
    case '6':
      return "is a device or a pipe";
    default:
      return "is of a type that is not known";
  }
}

// What extended headers say of the entry that comes next.
struct Extension {
  std::optional<std::string> path;
  std::optional<int64_t> size;
  bool sparse = false;
};

// pax: lines "<length> <key>=<value>\n", the length being that of the line. False: they are not.
bool ReadPax(std::string_view text, Extension* extension) {
  while (!text.empty()) {
    size_t length = 0;
    const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto digits = static_cast<size_t>(at - text.data());
    if (error != std::errc() || length > text.size() || length < digits + 3) return false;
    if (text[digits] != ' ' || text[length - 1] != '\n') return false;
    const std::string_view line = text.substr(digits + 1, length - digits - 2);
    text.remove_prefix(length);
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view key = line.substr(0, equals);
    const std::string_view value = line.substr(equals + 1);
    if (key == "path") extension->path = value;
    if (key.starts_with("GNU.sparse.")) extension->sparse = true;
    if (key != "size") continue;
    int64_t size = 0;
    const auto [end, wrong] = std::from_chars(value.data(), value.data() + value.size(), size);
    if (wrong != std::errc() || end != value.data() + value.size() || size < 0) return false;
    extension->size = size;
  }
  return true;
}

// "./a//b" is "a/b"; "" is the archive's root.
StatusOr<std::string> PlainName(std::string_view name, const std::string& where) {
  const auto refuse = [&](const char* why) {
    std::string shown(name.substr(0, 200));
    std::replace_if(
        shown.begin(), shown.end(), [](char c) { return c >= 0 && c < ' '; }, '?');
    return InvalidArgument(where, ": the name '", shown, "' ", why);
  };
  if (name.empty()) return refuse("is empty");
  if (name.starts_with('/')) return refuse("is absolute");
  std::string plain;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    begin = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..") return refuse("has a part '..'");
    plain.append(plain.empty() ? "" : "/").append(part);
  }
  const bool control = std::any_of(plain.begin(), plain.end(),
                                   [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; });
  if (control) return refuse("has control characters");
  return plain;
}

class Archive {
 public:
  Archive(const MountedFile& bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  StatusOr<MountedFolder::Files> List() {
    TESSERA_RETURN_IF_ERROR(CheckIsTar());
    while (true) {
      if (at_ + kBlock > bytes_.size()) return CutOff(": has no end; it is cut off");
      Block block;
      TESSERA_RETURN_IF_ERROR(bytes_.Read(at_, &block, kBlock));
      if (IsZero(block)) break;
      TESSERA_RETURN_IF_ERROR(Take(block));
    }
    for (const auto& [path, file] : files_) {
      if (folders_.contains(path)) return Twice(path);
    }
    return WithoutCommonFolder();
  }

 private:
  Status CheckIsTar() {
    char begin[8] = {};
    const int64_t size = std::min<int64_t>(bytes_.size(), sizeof(begin));
    TESSERA_RETURN_IF_ERROR(bytes_.Read(0, begin, size));
    const char* compression = CompressionOf({begin, static_cast<size_t>(size)});
    if (compression != nullptr) {
      return InvalidArgument(name_, ": is compressed (", compression, "); unpack it first");
    }
    if (bytes_.size() < kBlock) {
      return InvalidArgument(name_, ": ", bytes_.size(), " bytes are no tar archive");
    }
    return OkStatus();
  }

  // Of the entry at at_; goes to the one after it.
  Status Take(const Block& block) {
    const std::string where = Concat(name_, ": entry at byte ", at_);
    if (!ChecksumFits(block)) {
      return at_ == 0 ? InvalidArgument(name_, ": is no tar archive")
                      : DataLoss(where, ": the header is damaged");
    }
    const auto said = Number(block.size);
    if (!said) return DataLoss(where, ": its size is no number");
    const bool extends = std::strchr("LKxg", block.type) != nullptr && block.type != '\0';
    const bool has_data = extends || block.type != '5';
    const int64_t size = !has_data ? 0 : extends ? *said : next_.size.value_or(*said);
    const int64_t begin = at_ + kBlock;
    if (size > bytes_.size() - begin) {
      return CutOff(
          Concat(": the entry at byte ", at_, " has ", size, " bytes, which reach beyond its end"));
    }
    // The padding of the last entry may be missing, as may the archive's end: seen above.
    at_ = begin + (size + kBlock - 1) / kBlock * kBlock;
    if (extends) return Extend(block.type, begin, size, where);
    return Add(block, begin, size, where);
  }

  Status Extend(char type, int64_t begin, int64_t size, const std::string& where) {
    if (type == 'g' || type == 'K') return OkStatus();  // of all entries (no paths); of links
    if (size > kMaxExtension) return DataLoss(where, ": an extended header of ", size, " bytes");
    std::string text(static_cast<size_t>(size), '\0');
    TESSERA_RETURN_IF_ERROR(bytes_.Read(begin, text.data(), size));
    if (type == 'L') {
      next_.path = text.substr(0, text.find('\0'));
    } else if (!ReadPax(text, &next_)) {
      return DataLoss(where, ": the extended header is damaged");
    }
    return OkStatus();
  }

  Status Add(const Block& block, int64_t begin, int64_t size, const std::string& where) {
    const Extension extension = std::exchange(next_, {});
    std::string name(Text(block.name));
    // GNU's format has other fields there.
    const bool has_prefix = std::memcmp(block.magic, "ustar\0", 6) == 0 && block.prefix[0] != '\0';
    if (has_prefix) name = Concat(Text(block.prefix), "/", name);
    if (extension.path) name = *extension.path;
    TESSERA_ASSIGN_OR_RETURN(const std::string path, PlainName(name, where));
    const char* why = extension.sparse ? WhyRefused('S') : WhyRefused(block.type);
    if (why != nullptr) return InvalidArgument(name_, ": '", path, "' ", why);
    // Before POSIX, a folder was a name with a slash at its end.
    const bool is_folder = block.type == '5' || path.empty() || name.ends_with('/');
    for (size_t slash = path.find('/'); slash != path.npos; slash = path.find('/', slash + 1)) {
      folders_.insert(path.substr(0, slash));
    }
    if (is_folder) {
      folders_.insert(path);
      return OkStatus();
    }
    const bool added = files_.emplace(path, bytes_.Part(begin, size)).second;
    return added ? OkStatus() : Twice(path);
  }

  MountedFolder::Files WithoutCommonFolder() {
    if (files_.empty()) return std::move(files_);
    const std::string& first = files_.begin()->first;
    const std::string folder = first.substr(0, first.find('/') + 1);
    const bool common = !folder.empty() && files_.rbegin()->first.starts_with(folder);
    if (!common) return std::move(files_);
    MountedFolder::Files below;
    for (auto& [path, file] : files_) below.emplace(path.substr(folder.size()), std::move(file));
    return below;
  }

  Status Twice(const std::string& path) const {
    return InvalidArgument(name_, ": holds '", path, "' twice");
  }
  Status CutOff(const std::string& why) const {
    return DataLoss(name_, why, " (", bytes_.size(), " bytes)");
  }

  const MountedFile& bytes_;
  const std::string& name_;
  int64_t at_ = 0;
  Extension next_;
  MountedFolder::Files files_;
  std::set<std::string> folders_;
};

}  // namespace

StatusOr<MountedFolder> MountTar(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  const auto owner = std::make_shared<const MappedFile>(std::move(mapped));
  return MountTar(MountedFile::OfBytes(owner->data(), owner->size(), owner), path);
}

StatusOr<MountedFolder> MountTar(const MountedFile& archive, const std::string& name) {
  TESSERA_ASSIGN_OR_RETURN(MountedFolder::Files files, Archive(archive, name).List());
  return MountedFolder(name, std::move(files));
}

}  // namespace tessera
