// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/text_file.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"

namespace tessera::data {
namespace {

// How a format's files begin, what it is called, and what makes text of it.
struct Format {
  std::string_view begin;
  const char* name;
  const char* advice;
};

constexpr auto kFormats = std::to_array<Format>({
    {"BZh", "compressed with bzip2", "decompress it with bunzip2"},
    {"\xFD"
     "7zXZ",
     "compressed with xz", "decompress it with unxz"},
    {"PK\x03\x04", "a zip archive", "extract it with unzip"},
    {"PAR1", "a Parquet file", "give it a name that ends in .parquet"},
    {"FEA1", "a Feather file of version 1", "write it again with version 2"},
    {"ARROW1", "an Arrow file", "give it a name that ends in .arrow"},
    {"\xFF\xFE", "UTF-16", "convert it to UTF-8 with iconv"},
    {"\xFE\xFF", "UTF-16", "convert it to UTF-8 with iconv"},
});

// Numbers of two or more bytes, such as nanoGPT's token ids (train.bin) of a small vocabulary, are
// valid UTF-8, too, with a zero byte in most of them.
bool HoldsNumbers(std::string_view bytes) {
  constexpr size_t kLook = 4096;
  bytes = bytes.substr(0, kLook);
  const auto zeros = std::ranges::count(bytes, '\0');
  return zeros > 0 && 4 * static_cast<size_t>(zeros) >= bytes.size();
}

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

bool EndsInOneOf(std::string_view path, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) {
    return path.size() >= ending.size() &&
           std::equal(ending.begin(), ending.end(), path.end() - std::ssize(ending),
                      [](char a, char b) { return a == Lower(b); });
  });
}

std::string_view BytesOf(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.size())};
}

StatusOr<std::string_view> TextIn(std::string_view bytes, const std::string& path, int64_t offset) {
  // An archive of texts is UTF-8, too.
  constexpr size_t kTarMark = 257;
  if (offset == 0 && bytes.size() >= kTarMark && bytes.substr(kTarMark).starts_with("ustar")) {
    return InvalidArgument(path, ": is a tar archive, not text; extract it with tar");
  }
  const size_t bad = FindInvalidUtf8(bytes);
  const bool valid = bad == kNoInvalidUtf8;
  if (!valid) {
    for (const Format& format : kFormats) {
      if (offset > 0 || !bytes.starts_with(format.begin)) continue;
      return InvalidArgument(path, ": is ", format.name, ", not text; ", format.advice);
    }
  }
  if (offset == 0 && (HoldsNumbers(bytes) || (!valid && EndsInOneOf(path, {".bin"})))) {
    return InvalidArgument(path,
                           ": holds binary numbers, not text; of token ids Megatron-LM's .bin with "
                           "its .idx is read, which `tessera tokenize` writes from the text");
  }
  if (!valid) {
    return InvalidArgument(path, ": invalid UTF-8 at byte ", static_cast<int64_t>(bad) + offset);
  }
  if (offset == 0 && bytes.starts_with(kByteOrderMark)) bytes.remove_prefix(kByteOrderMark.size());
  return bytes;
}

}  // namespace tessera::data
