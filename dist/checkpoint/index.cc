// SPDX-License-Identifier: Apache-2.0
#include "dist/checkpoint/index.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/checksum.h"
#include "nlohmann/json.hpp"

namespace tessera::dist {
namespace {

using Json = nlohmann::json;

constexpr char kFormat[] = "tessera-checkpoint";
constexpr int kVersion = 2;

// Deeper text is not ours, and would exhaust the stack of what walks it.
constexpr int kMaxDepth = 64;

bool IsTooDeep(const std::string& text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') ++i;
    if (c == '"') in_string = !in_string;
    if (in_string) continue;
    if ((c == '{' || c == '[') && ++depth > kMaxDepth) return true;
    if (c == '}' || c == ']') --depth;
  }
  return false;
}

std::string Compact(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<int64_t> Sizes(const Shape& shape) { return {shape.begin(), shape.end()}; }

std::optional<int64_t> ReadCount(const Json& json) {
  if (!json.is_number_integer()) return std::nullopt;
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) return std::nullopt;
  const int64_t count = json.get<int64_t>();
  if (count < 0) return std::nullopt;
  return count;
}

// A list of at most kMaxDims sizes whose product is an int64.
std::optional<Shape> ReadShape(const Json& json) {
  if (!json.is_array() || json.size() > static_cast<size_t>(kMaxDims)) return std::nullopt;
  Shape shape;
  int64_t numel = 1;
  for (const Json& size : json) {
    const std::optional<int64_t> count = ReadCount(size);
    if (!count) return std::nullopt;
    if (__builtin_mul_overflow(numel, std::max<int64_t>(*count, 1), &numel)) return std::nullopt;
    shape.push_back(*count);
  }
  return shape;
}

// A file beside the index, and nowhere else.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

std::optional<SavedPiece> ReadPiece(const Json& json, const Shape& shape) {
  if (!json.is_object()) return std::nullopt;
  for (const char* key : {"file", "key"}) {
    if (!json.contains(key) || !json[key].is_string()) return std::nullopt;
  }
  SavedPiece saved{json["file"].get<std::string>(), json["key"].get<std::string>(), {}, 0};
  const auto begin = ReadShape(json.value("begin", Json()));
  const auto size = ReadShape(json.value("size", Json()));
  const auto crc = ReadCount(json.value("crc32c", Json()));
  if (!IsPlainName(saved.file) || !begin || !size || !crc || *crc > int64_t{UINT32_MAX} ||
      begin->ndim() != shape.ndim() || size->ndim() != shape.ndim()) {
    return std::nullopt;
  }
  for (int d = 0; d < shape.ndim(); ++d) {
    if ((*begin)[d] > shape[d] || (*size)[d] > shape[d] - (*begin)[d]) return std::nullopt;
  }
  saved.piece.box = {*begin, *size};
  saved.crc32c = static_cast<uint32_t>(*crc);
  if (json.contains("range")) {
    const auto range = ReadShape(json["range"]);
    if (!range || range->ndim() != 2 || (*range)[0] > (*range)[1] || (*range)[1] > size->numel()) {
      return std::nullopt;
    }
    saved.piece.range = {(*range)[0], (*range)[1]};
  }
  return saved;
}

std::optional<CheckpointEntry> ReadEntry(const Json& json, const char* list) {
  if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string() ||
      !json.contains(list) || !json[list].is_array()) {
    return std::nullopt;
  }
  const auto dtype = ParseDType(json["dtype"].get<std::string>());
  const auto shape = ReadShape(json.value("shape", Json()));
  if (!dtype || !shape) return std::nullopt;
  CheckpointEntry entry{*dtype, *shape, {}};
  for (const Json& piece : json[list]) {
    std::optional<SavedPiece> saved = ReadPiece(piece, *shape);
    if (!saved) return std::nullopt;
    entry.pieces.push_back(*std::move(saved));
  }
  return entry;
}

}  // namespace

// Key by key: where memory ends within a list of initial values, those that were made are lost.
Json EntriesToJson(const CheckpointEntries& entries) {
  Json json = Json::object();
  for (const auto& [name, entry] : entries) {
    Json pieces = Json::array();
    for (const SavedPiece& saved : entry.pieces) {
      Json piece = Json::object();
      piece["file"] = saved.file;
      piece["key"] = saved.key;
      piece["begin"] = Sizes(saved.piece.box.begin);
      piece["size"] = Sizes(saved.piece.box.size);
      piece["crc32c"] = saved.crc32c;
      if (saved.piece.range) {
        piece["range"] = Sizes({saved.piece.range->begin, saved.piece.range->end});
      }
      pieces.push_back(std::move(piece));
    }
    Json& written = json[name];
    written["dtype"] = std::string(DTypeName(entry.dtype));
    written["shape"] = Sizes(entry.shape);
    written["pieces"] = std::move(pieces);
  }
  return json;
}

StatusOr<CheckpointEntries> ParseEntries(const Json& json, int version, const std::string& path) {
  if (!json.is_object()) return InvalidArgument(path, ": not an index of a Tessera checkpoint");
  CheckpointEntries entries;
  for (const auto& [name, value] : json.items()) {
    std::optional<CheckpointEntry> entry = ReadEntry(value, version == 1 ? "boxes" : "pieces");
    if (!entry) return DataLoss(path, ": the entry of tensor '", name, "' is damaged");
    entries[name] = *std::move(entry);
  }
  return entries;
}

std::string IndexText(const CheckpointIndex& index) {
  // Key by key: a list of pairs leaks where memory ends.
  Json whole;
  Json& body = whole["body"];
  body["format"] = kFormat;
  body["version"] = kVersion;
  body["step"] = index.step;
  body["trainer"] = *index.trainer;
  body["tensors"] = EntriesToJson(index.entries);
  const std::string text = Compact(body);
  whole["crc32c"] = Crc32c(text.data(), text.size());
  return whole.dump(1, ' ', false, Json::error_handler_t::replace);
}

StatusOr<CheckpointIndex> ParseIndex(const std::string& text, const std::string& path) {
  if (IsTooDeep(text)) return DataLoss(path, ": the index is damaged");
  const Json whole = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!whole.is_object() || !whole.contains("body") || !whole.contains("crc32c") ||
      !whole["crc32c"].is_number_unsigned()) {
    return DataLoss(path, ": the index is damaged");
  }
  const Json& body = whole["body"];
  const std::string compact = Compact(body);
  if (Crc32c(compact.data(), compact.size()) != whole["crc32c"].get<uint64_t>()) {
    return DataLoss(path, ": the checksum does not fit; the index is damaged");
  }
  if (!body.is_object() || !body.contains("format") || body["format"] != kFormat ||
      !body.contains("version") || !body.contains("step") || !body.contains("tensors")) {
    return InvalidArgument(path, ": not an index of a Tessera checkpoint");
  }
  const Json& version = body["version"];
  if (version != 1 && version != kVersion) {
    return InvalidArgument(path, ": version ", Compact(version), " is not supported");
  }
  const std::optional<int64_t> step = ReadCount(body["step"]);
  if (!step) return InvalidArgument(path, ": not an index of a Tessera checkpoint");
  CheckpointIndex index{*step, body.value("trainer", Json::object()), {}};
  TESSERA_ASSIGN_OR_RETURN(index.entries, ParseEntries(body["tensors"], version.get<int>(), path));
  return index;
}

}  // namespace tessera::dist
