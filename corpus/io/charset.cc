// SPDX-License-Identifier: Apache-2.0
#include "corpus/io/charset.h"

#include <iconv.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <optional>

#include "base/utf8.h"

namespace tessera::corpus {
namespace {

constexpr size_t kMetaBytes = 4096;

std::string MetaCharset(std::string_view bytes) {
  std::string head(bytes.substr(0, kMetaBytes));
  for (char& c : head) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  size_t at = head.find("charset=");
  if (at == std::string::npos) return "";
  at += 8;
  while (at < head.size() && (head[at] == '"' || head[at] == '\'' || head[at] == ' ')) ++at;
  size_t end = at;
  while (end < head.size() && (std::isalnum(static_cast<unsigned char>(head[end])) ||
                               std::string_view("-_:.").find(head[end]) != std::string::npos)) {
    ++end;
  }
  return head.substr(at, end - at);
}

// What pages call by one name and mean by another (WHATWG's encoding standard).
std::string NameForIconv(std::string_view charset) {
  std::string name;
  for (const char c : charset) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == ':') {
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  if (name == "iso-8859-1" || name == "latin1" || name == "us-ascii" || name == "ascii") {
    return "windows-1252";
  }
  if (name == "gb2312" || name == "gbk") return "gb18030";
  if (name == "shift_jis" || name == "shift-jis" || name == "sjis") return "cp932";
  if (name == "ks_c_5601-1987" || name == "euc-kr") return "cp949";
  return name;
}

std::optional<std::string> Converted(std::string_view bytes, const std::string& charset) {
  iconv_t converter = iconv_open("UTF-8", charset.c_str());
  if (converter == reinterpret_cast<iconv_t>(-1)) return std::nullopt;
  std::string out;
  char* in = const_cast<char*>(bytes.data());
  size_t left = bytes.size();
  char buffer[4096];
  while (left > 0) {
    char* to = buffer;
    size_t room = sizeof(buffer);
    const size_t result = iconv(converter, &in, &left, &to, &room);
    out.append(buffer, to);
    if (result != static_cast<size_t>(-1) || errno == E2BIG) continue;
    AppendUtf8(kReplacementCharacter, &out);
    ++in;
    --left;
  }
  iconv_close(converter);
  return out;
}

}  // namespace

std::string Utf8OfPage(std::string_view bytes, std::string_view declared) {
  if (bytes.starts_with("\xEF\xBB\xBF")) return ReplaceInvalidUtf8(bytes.substr(3));
  if (bytes.starts_with("\xFF\xFE")) return Converted(bytes.substr(2), "utf-16le").value_or("");
  if (bytes.starts_with("\xFE\xFF")) return Converted(bytes.substr(2), "utf-16be").value_or("");
  if (FindInvalidUtf8(bytes) == kNoInvalidUtf8) return std::string(bytes);
  for (const std::string& charset : {std::string(declared), MetaCharset(bytes)}) {
    const std::string name = NameForIconv(charset);
    if (name == "utf-8" || name == "utf8") return ReplaceInvalidUtf8(bytes);
    if (name.empty()) continue;
    if (auto text = Converted(bytes, name)) return *std::move(text);
  }
  return Converted(bytes, "windows-1252").value_or(ReplaceInvalidUtf8(bytes));
}

}  // namespace tessera::corpus
