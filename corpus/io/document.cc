// SPDX-License-Identifier: Apache-2.0
#include "corpus/io/document.h"

#include <algorithm>

#include "base/utf8.h"

namespace tessera::corpus {
namespace {

// A member that says nothing is as good as none.
bool IsEmpty(std::string_view json) { return json.empty() || json == "null" || json == "\"\""; }

std::string TextOf(std::string_view json) {
  if (json.empty() || json[0] != '"') return std::string(json);
  std::string text;
  AppendJsonText(json, &text);
  return text;
}

// The member of an object, or of objects within it; empty where there is none.
std::string_view MemberAt(std::string_view object, std::string_view path) {
  std::vector<JsonPiece> members;
  if (ScanJsonObject(object, &members) != nullptr) return "";
  const std::string_view name = path.substr(0, path.find('.'));
  for (auto piece = members.rbegin(); piece != members.rend(); ++piece) {
    if (piece->name == path) return piece->value;
    if (piece->name == name) return MemberAt(piece->value, path.substr(name.size() + 1));
  }
  return "";
}

}  // namespace

const char* Document::Parse(std::string_view line, std::string_view text_key) {
  line_ = line;
  text_.clear();
  changes_.clear();
  text_changed_ = false;
  has_text_ = false;
  text_key_ = text_key;
  if (FindInvalidUtf8(line) != kNoInvalidUtf8) return "invalid UTF-8";
  if (const char* wrong = ScanJsonObject(line, &members_)) return wrong;
  const std::string_view text = Json(text_key);
  if (text.empty() || text == "null") return nullptr;
  if (text[0] != '"') return "a text that is no string";
  AppendJsonText(text, &text_);
  has_text_ = true;
  return nullptr;
}

void Document::Assign(std::string_view text) {
  line_ = {};
  members_.clear();
  changes_.clear();
  text_key_ = "text";
  set_text(std::string(text));
}

void Document::set_text(std::string text) {
  text_ = std::move(text);
  has_text_ = true;
  text_changed_ = true;
}

void Document::RemoveText() {
  Remove(text_key_);
  text_.clear();
  has_text_ = false;
  text_changed_ = false;
}

// Of names that are there twice the last counts, as everywhere.
const JsonPiece* Document::Find(std::string_view name) const {
  const auto found = std::find_if(members_.rbegin(), members_.rend(),
                                  [&](const JsonPiece& piece) { return piece.name == name; });
  return found == members_.rend() ? nullptr : &*found;
}

std::string_view Document::Json(std::string_view name) const {
  for (const auto& [changed, value] : changes_) {
    if (changed == name) return value;
  }
  const JsonPiece* piece = Find(name);
  return piece == nullptr ? std::string_view() : piece->value;
}

std::string Document::Text(std::string_view name) const {
  const std::string_view json = Json(name);
  return json.starts_with('"') ? TextOf(json) : std::string();
}

std::string Document::ValueAt(std::string_view path) const {
  std::string_view json = Json(path);  // a name may have dots
  if (json.empty() && path.find('.') != std::string_view::npos) {
    json = MemberAt(Json(path.substr(0, path.find('.'))), path.substr(path.find('.') + 1));
  }
  return IsEmpty(json) ? "" : TextOf(json);
}

std::string Document::id() const {
  for (const char* name : {"id", "url"}) {
    if (const std::string_view json = Json(name); !IsEmpty(json)) return TextOf(json);
  }
  return std::to_string(number);
}

std::string Document::Url() const {
  if (std::string url = Text("url"); !url.empty()) return url;
  std::vector<JsonPiece> members;
  if (ScanJsonObject(Json("metadata"), &members) != nullptr) return "";
  for (const JsonPiece& piece : members) {
    if (piece.name == "url" && piece.value.starts_with('"')) return TextOf(piece.value);
  }
  return "";
}

void Document::Set(std::string_view name, std::string json) {
  for (auto& [changed, value] : changes_) {
    if (changed == name) {
      value = std::move(json);
      return;
    }
  }
  changes_.emplace_back(name, std::move(json));
}

void Document::Remove(std::string_view name) { Set(name, ""); }

void Document::AppendLine(std::string* out) const {
  const bool whole = changes_.empty() && !text_changed_ && !line_.empty();
  if (whole) {
    out->append(line_);
    *out += '\n';
    return;
  }
  bool first = true;
  const auto begin = [&](std::string_view name) {
    *out += first ? "{\"" : ", \"";
    first = false;
    out->append(name);
    *out += "\": ";
  };
  const auto append_text = [&] {
    begin(text_key_);
    AppendJsonString(text_, out);
  };
  std::vector<bool> written(changes_.size());
  bool text_written = !text_changed_;
  for (const JsonPiece& piece : members_) {
    if (text_changed_ && piece.name == text_key_) {
      if (!text_written) append_text();
      text_written = true;
      continue;
    }
    const auto change = std::find_if(changes_.begin(), changes_.end(),
                                     [&](const auto& c) { return c.first == piece.name; });
    if (change == changes_.end()) {
      begin(piece.name);
      out->append(piece.value);
      continue;
    }
    const auto index = static_cast<size_t>(change - changes_.begin());
    if (!written[index] && !change->second.empty()) {
      begin(piece.name);
      out->append(change->second);
    }
    written[index] = true;
  }
  if (!text_written) append_text();
  for (size_t i = 0; i < changes_.size(); ++i) {
    if (written[i] || changes_[i].second.empty()) continue;
    begin(changes_[i].first);
    out->append(changes_[i].second);
  }
  *out += first ? "{}\n" : "}\n";
}

}  // namespace tessera::corpus
