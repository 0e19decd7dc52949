// SPDX-License-Identifier: Apache-2.0
#include "docs/site/html.h"

#include <cstdint>
#include <set>
#include <utility>

#include "base/utf8.h"

namespace tessera::site {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool IsAlnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
char Small(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string Small(std::string_view text) {
  std::string small(text);
  for (char& c : small) c = Small(c);
  return small;
}

// "&#38;" -> 38; 0 for what is no number.
uint32_t CodeOf(std::string_view entity) {
  if (entity.size() < 2 || entity[0] != '#') return 0;
  const bool hex = entity[1] == 'x' || entity[1] == 'X';
  uint32_t code = 0;
  for (const char c : entity.substr(hex ? 2 : 1)) {
    const char small = Small(c);
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(hex && small >= 'a' && small <= 'f')) return 0;
    code = code * (hex ? 16 : 10) + static_cast<uint32_t>(digit ? c - '0' : small - 'a' + 10);
    if (code > 0x10FFFF) return 0;
  }
  return code;
}

std::string WithoutEntities(std::string_view html) {
  static constexpr std::pair<std::string_view, std::string_view> kNamed[] = {
      {"amp", "&"}, {"lt", "<"}, {"gt", ">"}, {"quot", "\""}, {"apos", "'"}, {"nbsp", " "}};
  std::string text;
  for (size_t i = 0; i < html.size(); ++i) {
    const size_t end = html[i] == '&' ? html.find(';', i) : std::string_view::npos;
    if (end == std::string_view::npos || end - i > 10) {
      text += html[i];
      continue;
    }
    const std::string_view entity = html.substr(i + 1, end - i - 1);
    const size_t before = text.size();
    for (const auto& [name, meaning] : kNamed) {
      if (entity == name) text += meaning;
    }
    const uint32_t code = CodeOf(entity);
    if (code == 0xA0) {
      text += ' ';
    } else if (code != 0) {
      AppendUtf8(code, &text);
    }
    if (text.size() == before) {
      text += html[i];
    } else {
      i = end;
    }
  }
  return text;
}

// Reads the attributes of the tag up to its ">"; returns the place behind that.
size_t ReadAttributes(std::string_view html, size_t i, Tag& tag) {
  while (i < html.size() && html[i] != '>') {
    const size_t begin = i;
    while (i < html.size() && (IsBlank(html[i]) || html[i] == '/')) ++i;
    const size_t name_begin = i;
    while (i < html.size() && !IsBlank(html[i]) && html[i] != '=' && html[i] != '>' &&
           html[i] != '/') {
      ++i;
    }
    if (i == name_begin) {
      if (i < html.size() && html[i] == '=') ++i;
      continue;
    }
    Attribute attribute;
    attribute.name = Small(html.substr(name_begin, i - name_begin));
    attribute.begin = begin;
    attribute.value_begin = attribute.value_end = i;
    if (i < html.size() && html[i] == '=') {
      ++i;
      const char quote = i < html.size() ? html[i] : '\0';
      const bool quoted = quote == '"' || quote == '\'';
      if (quoted) ++i;
      attribute.value_begin = i;
      while (i < html.size() && (quoted ? html[i] != quote : !IsBlank(html[i]) && html[i] != '>')) {
        ++i;
      }
      attribute.value_end = i;
      if (quoted && i < html.size()) ++i;
    }
    attribute.end = i;
    attribute.value = WithoutEntities(
        html.substr(attribute.value_begin, attribute.value_end - attribute.value_begin));
    tag.attributes.push_back(std::move(attribute));
  }
  return i < html.size() ? i + 1 : i;
}

}  // namespace

const Attribute* Tag::Find(std::string_view attribute) const {
  for (const Attribute& candidate : attributes) {
    if (candidate.name == attribute) return &candidate;
  }
  return nullptr;
}

std::vector<Tag> TagsOf(std::string_view html) {
  std::vector<Tag> tags;
  size_t i = 0;
  while ((i = html.find('<', i)) != std::string_view::npos) {
    if (html.substr(i, 4) == "<!--") {
      const size_t end = html.find("-->", i + 4);
      if (end == std::string_view::npos) break;
      i = end + 3;
      continue;
    }
    Tag tag;
    tag.begin = i++;
    if (i < html.size() && html[i] == '/') {
      tag.closes = true;
      ++i;
    }
    const size_t name_begin = i;
    while (i < html.size() && IsAlnum(html[i])) ++i;
    if (i == name_begin) continue;  // "<!DOCTYPE", or a "<" that begins nothing
    tag.name = Small(html.substr(name_begin, i - name_begin));
    i = ReadAttributes(html, i, tag);
    tag.end = i;
    const bool raw = !tag.closes && (tag.name == "script" || tag.name == "style");
    const std::string closing = "</" + tag.name;
    tags.push_back(std::move(tag));
    if (raw) {
      const size_t end = html.find(closing, i);
      if (end == std::string_view::npos) break;
      i = end;
    }
  }
  return tags;
}

std::string Escaped(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string PlainText(std::string_view html) {
  static const auto* kWithin = new std::set<std::string>{"a",    "b",      "code", "del", "em", "i",
                                                         "span", "strong", "sub",  "sup", "tt"};
  std::string text;
  size_t at = 0;
  const auto append = [&](size_t end) {
    std::string_view piece = html.substr(at, end - at);
    for (size_t comment; (comment = piece.find("<!--")) != std::string_view::npos;) {
      const size_t behind = piece.find("-->", comment);
      text += WithoutEntities(piece.substr(0, comment));
      piece = behind == std::string_view::npos ? "" : piece.substr(behind + 3);
    }
    text += WithoutEntities(piece);
  };
  bool hidden = false;  // within <script> or <style>
  for (const Tag& tag : TagsOf(html)) {
    if (!hidden) append(tag.begin);
    hidden = !tag.closes && (tag.name == "script" || tag.name == "style");
    if (kWithin->count(tag.name) == 0) text += ' ';
    at = tag.end;
  }
  append(html.size());
  std::string collapsed;
  for (const char c : text) {
    if (!IsBlank(c)) {
      collapsed += c;
    } else if (!collapsed.empty() && collapsed.back() != ' ') {
      collapsed += ' ';
    }
  }
  if (!collapsed.empty() && collapsed.back() == ' ') collapsed.pop_back();
  return collapsed;
}

std::string AnchorOf(std::string_view heading) {
  std::string anchor;
  for (const char c : heading) {
    if (c == ' ') {
      anchor += '-';
    } else if (IsAlnum(c) || c == '-' || c == '_' || static_cast<unsigned char>(c) >= 0x80) {
      anchor += Small(c);
    }
  }
  return anchor;
}

}  // namespace tessera::site
