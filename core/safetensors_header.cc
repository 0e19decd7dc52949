// SPDX-License-Identifier: Apache-2.0
#include "core/safetensors_header.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "base/utf8.h"

namespace tessera::safetensors_internal {
namespace {

struct ElementType {
  std::string_view name;
  int bits;
};

// Every element type of the format.
constexpr ElementType kElementTypes[] = {
    {"BOOL", 8}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},
    {"U16", 16}, {"F16", 16},    {"BF16", 16},   {"I32", 32},    {"U32", 32},
    {"F32", 32}, {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

std::optional<int> ElementBits(std::string_view dtype) {
  for (const ElementType& type : kElementTypes) {
    if (type.name == dtype) return type.bits;
  }
  return std::nullopt;
}

// Text from the file as part of a one-line message.
std::string Quoted(std::string_view text) {
  constexpr size_t kMost = 200;
  std::string cut(text.substr(0, kMost));
  for (char& c : cut) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return "'" + cut + (text.size() > kMost ? "...'" : "'");
}

// Takes what a walk through the text meets (Walk). The header's grammar is fixed and three levels
// deep, so one state per level is enough and nothing nests without bound; `false` ends the walk.
class HeaderReader {
 public:
  Header header;
  std::string error;

  bool Null() {
    // The format's library writes absent metadata this way.
    if (state_ == State::kEntry && entry_.name == kMetadata) {
      state_ = State::kRoot;
      return true;
    }
    return Unexpected("null");
  }
  bool Boolean() { return Unexpected("a boolean"); }
  // As the text spells it.
  bool Number(std::string_view text) {
    uint64_t value = 0;
    int64_t below = 0;
    const char* const end = text.data() + text.size();
    const auto is_all = [&](const std::from_chars_result& result) {
      return result.ec == std::errc() && result.ptr == end;
    };
    if (is_all(std::from_chars(text.data(), end, value))) {
      if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Number(static_cast<int64_t>(value));
      }
      return Fail(Concat("number ", value, " is too large"));
    }
    if (is_all(std::from_chars(text.data(), end, below))) {
      return below < 0 ? Fail(Concat("negative number ", below)) : Number(below);
    }
    return Fail(Concat("number ", text.substr(0, 40), " is not an integer that fits"));
  }

  bool Text(std::string value) {
    if (state_ == State::kMetadataValue) {
      state_ = State::kMetadata;
      return header.metadata.emplace(std::move(field_), std::move(value)).second ||
             Fail("duplicate key in __metadata__");
    }
    if (state_ == State::kField && field_ == "dtype") {
      entry_.dtype = std::move(value);
      state_ = State::kTensor;
      return true;
    }
    return Unexpected("a string");
  }

  bool StartObject() {
    if (state_ == State::kStart) {
      state_ = State::kRoot;
      return true;
    }
    if (state_ == State::kEntry) {
      state_ = entry_.name == kMetadata ? State::kMetadata : State::kTensor;
      return true;
    }
    return Unexpected("an object");
  }

  bool Key(std::string value) {
    switch (state_) {
      case State::kRoot:
        entry_ = {};
        offsets_.clear();
        seen_ = 0;
        entry_.name = std::move(value);
        state_ = State::kEntry;
        return names_.insert(entry_.name).second || Fail("duplicate entry");
      case State::kMetadata:
        field_ = std::move(value);
        state_ = State::kMetadataValue;
        return true;
      case State::kTensor:
        return Field(value);
      default:
        return Unexpected("a key");
    }
  }

  bool EndObject() {
    if (state_ == State::kTensor) {
      if (seen_ != 7) return Fail("needs dtype, shape and data_offsets");
      if (offsets_.size() != 2) return Fail("data_offsets must be two numbers");
      entry_.begin = offsets_[0];
      entry_.end = offsets_[1];
      header.entries.push_back(std::move(entry_));
      entry_ = {};
      state_ = State::kRoot;
    } else if (state_ == State::kMetadata) {
      entry_ = {};
      state_ = State::kRoot;
    } else {
      state_ = State::kEnd;
    }
    return true;
  }

  bool StartArray() {
    if (state_ != State::kField || field_ == "dtype") return Unexpected("an array");
    state_ = State::kArray;
    return true;
  }
  bool EndArray() {
    state_ = State::kTensor;
    return true;
  }

 private:
  // Where in {"name": {"dtype": "F32", "shape": [...], ...}} the parser is: before the document,
  // among the entries, behind an entry's name, among a tensor's fields, behind a field's name, in
  // its numbers; among the metadata, behind a metadata key; behind the document.
  enum class State {
    kStart,
    kRoot,
    kEntry,
    kTensor,
    kField,
    kArray,
    kMetadata,
    kMetadataValue,
    kEnd,
  };
  static constexpr std::string_view kMetadata = "__metadata__";

  bool Fail(const std::string& what) {
    error = entry_.name.empty() ? what : "tensor " + Quoted(entry_.name) + ": " + what;
    return false;
  }
  bool Unexpected(const std::string& what) { return Fail("unexpected " + what); }

  bool Field(const std::string& name) {
    const int bit = name == "dtype" ? 1 : name == "shape" ? 2 : name == "data_offsets" ? 4 : 0;
    if (bit == 0) return Fail("unknown key " + Quoted(name));
    if ((seen_ & bit) != 0) return Fail("duplicate key " + Quoted(name));
    seen_ |= bit;
    field_ = name;
    state_ = State::kField;
    return true;
  }

  bool Number(int64_t value) {
    if (state_ != State::kArray) return Unexpected("a number");
    (field_ == "shape" ? entry_.shape : offsets_).push_back(value);
    return true;
  }

  State state_ = State::kStart;
  SafetensorsFile::Entry entry_;
  std::string field_;
  std::vector<int64_t> offsets_;
  int seen_ = 0;  // 1: dtype, 2: shape, 4: data_offsets
  std::unordered_set<std::string> names_;
};

// Tells `reader` of the value that comes; false: it wants no more, or the text is no JSON.
bool Walk(JsonReader* json, HeaderReader* reader) {
  std::string text;
  switch (json->Next()) {
    case '{':
      json->Take('{');
      if (!reader->StartObject()) return false;
      if (json->Take('}')) return reader->EndObject();
      do {
        text.clear();
        if (!json->ReadString(&text) || !json->Take(':')) return false;
        if (!reader->Key(std::move(text)) || !Walk(json, reader)) return false;
      } while (json->Take(','));
      return json->Take('}') && reader->EndObject();
    case '[':
      json->Take('[');
      if (!reader->StartArray()) return false;
      if (json->Take(']')) return reader->EndArray();
      do {
        if (!Walk(json, reader)) return false;
      } while (json->Take(','));
      return json->Take(']') && reader->EndArray();
    case '"':
      return json->ReadString(&text) && reader->Text(std::move(text));
    case 'n':
      return json->TakeWord("null") && reader->Null();
    case 't':
      return json->TakeWord("true") && reader->Boolean();
    case 'f':
      return json->TakeWord("false") && reader->Boolean();
    default:
      bool whole = false;
      const std::string_view number = json->TakeNumber(&whole);
      return !number.empty() && reader->Number(number);
  }
}

Status CheckEntry(const SafetensorsFile::Entry& entry, int64_t data_bytes,
                  const std::string& where) {
  const std::optional<int> bits = ElementBits(entry.dtype);
  if (!bits.has_value()) {
    return InvalidArgument(where, ": unknown dtype ", Quoted(entry.dtype));
  }
  if (entry.begin > entry.end || entry.end > data_bytes) {
    return DataLoss(where, ": data_offsets [", entry.begin, ", ", entry.end,
                    "] do not lie in the file's ", data_bytes, " bytes of data");
  }
  const std::optional<int64_t> bytes = TensorBytes(entry.shape, *bits);
  if (!bytes.has_value()) {
    return DataLoss(where, ": the shape's number of bytes overflows or is no whole number");
  }
  if (*bytes != entry.end - entry.begin) {
    return DataLoss(where, ": dtype and shape take ", *bytes, " bytes, data_offsets [", entry.begin,
                    ", ", entry.end, "] give ", entry.end - entry.begin);
  }
  return OkStatus();
}

// JSON's escapes, no others: UTF-8 passes through.
void AppendEscaped(std::string_view text, std::string& out) {
  out += '"';
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace

std::optional<int64_t> TensorBytes(const std::vector<int64_t>& shape, int64_t bits_per_element) {
  int64_t elements = 1;
  int64_t bits = 0;
  for (int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) return std::nullopt;
  }
  if (__builtin_mul_overflow(elements, bits_per_element, &bits) || bits % 8 != 0) {
    return std::nullopt;
  }
  return bits / 8;
}

StatusOr<Header> ParseHeader(std::string_view text, int64_t data_bytes, const std::string& path) {
  HeaderReader reader;
  // The format's library insists on the brace; white space may follow the object, not precede it.
  if (text.empty() || text[0] != '{') {
    return DataLoss(path, ": not a safetensors file (the header does not start with '{')");
  }
  const auto not_json = [&](size_t byte) {
    return DataLoss(path, ": the header is not valid JSON at byte ", 8 + byte);
  };
  if (const size_t bad = FindInvalidUtf8(text); bad != kNoInvalidUtf8) return not_json(bad + 1);
  JsonReader json(text);
  if (!Walk(&json, &reader) || !json.AtEnd()) {
    if (reader.error.empty()) return not_json(json.position() + 1);
    return DataLoss(path, ": ", reader.error);
  }
  Header header = std::move(reader.header);
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  int64_t covered = 0;
  for (const SafetensorsFile::Entry& entry : header.entries) {
    const std::string where = Concat(path, ": tensor ", Quoted(entry.name));
    TESSERA_RETURN_IF_ERROR(CheckEntry(entry, data_bytes, where));
    if (entry.begin != covered) {
      return DataLoss(where, ": its data starts at ", entry.begin,
                      entry.begin < covered ? ", inside the data before it, which ends at "
                                            : ", leaving a hole after ",
                      covered);
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    return DataLoss(path, ": the tensors take ", covered, " bytes, but ", data_bytes,
                    " follow the header");
  }
  return header;
}

std::string FormatHeader(const std::vector<SafetensorsFile::Entry>& entries,
                         const SafetensorsFile::Metadata& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":";
    char separator = '{';
    for (const auto& [key, value] : metadata) {
      text += separator;
      separator = ',';
      AppendEscaped(key, text);
      text += ':';
      AppendEscaped(value, text);
    }
    text += '}';
  }
  for (const SafetensorsFile::Entry& entry : entries) {
    if (text.size() > 1) text += ',';
    AppendEscaped(entry.name, text);
    text += ":{\"dtype\":\"" + entry.dtype + "\",\"shape\":[";
    for (size_t d = 0; d < entry.shape.size(); ++d) {
      if (d > 0) text += ',';
      text += std::to_string(entry.shape[d]);
    }
    text += "],\"data_offsets\":[" + std::to_string(entry.begin) + ',' + std::to_string(entry.end) +
            "]}";
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace tessera::safetensors_internal
