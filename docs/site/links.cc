// SPDX-License-Identifier: Apache-2.0
#include "docs/site/links.h"

#include <algorithm>
#include <set>

#include "docs/site/html.h"

namespace tessera::site {
namespace {

std::vector<std::string> Parts(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    parts.emplace_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return parts;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// "a%20b" -> "a b".
std::string WithoutPercents(std::string_view link) {
  std::string text;
  for (size_t i = 0; i < link.size(); ++i) {
    const bool code = link[i] == '%' && i + 2 < link.size() && HexDigit(link[i + 1]) >= 0 &&
                      HexDigit(link[i + 2]) >= 0;
    text += code ? static_cast<char>(HexDigit(link[i + 1]) * 16 + HexDigit(link[i + 2])) : link[i];
    if (code) i += 2;
  }
  return text;
}

bool IsHtml(std::string_view path) { return path.ends_with(".html"); }

// The parts of a page that a link may name.
std::set<std::string> AnchorsOf(const std::vector<Tag>& tags) {
  std::set<std::string> anchors;
  for (const Tag& tag : tags) {
    if (const Attribute* id = tag.Find("id")) anchors.insert(id->value);
    if (tag.name != "a") continue;
    if (const Attribute* name = tag.Find("name")) anchors.insert(name->value);
  }
  return anchors;
}

bool BeginsWithScheme(std::string_view link) {
  const size_t colon = link.find(':');
  return colon != std::string_view::npos && colon < link.find('/') && colon < link.find('#');
}

}  // namespace

std::string RelativeLink(std::string_view from, std::string_view to) {
  const std::vector<std::string> here = Parts(from);
  const std::vector<std::string> there = Parts(to);
  size_t common = 0;
  while (common + 1 < here.size() && common + 1 < there.size() && here[common] == there[common]) {
    ++common;
  }
  std::string link;
  for (size_t i = common; i + 1 < here.size(); ++i) link += "../";
  for (size_t i = common; i < there.size(); ++i)
    link += there[i] + (i + 1 < there.size() ? "/" : "");
  return link;
}

std::optional<std::string> ResolvedLink(std::string_view from, std::string_view link) {
  const std::string path = WithoutPercents(link.substr(0, link.find_first_of("#?")));
  if (path.empty()) return std::string(from);
  if (path.front() == '/') return std::nullopt;
  std::vector<std::string> parts = Parts(from);
  if (!parts.empty()) parts.pop_back();
  for (const std::string& part : Parts(path)) {
    if (part == "..") {
      if (parts.empty()) return std::nullopt;
      parts.pop_back();
    } else if (part != ".") {
      parts.push_back(part);
    }
  }
  std::string resolved;
  for (const std::string& part : parts) resolved += (resolved.empty() ? "" : "/") + part;
  return resolved;
}

std::vector<std::string> DeadLinks(const Files& files) {
  std::map<std::string, std::vector<Tag>, std::less<>> tags;
  std::map<std::string, std::set<std::string>, std::less<>> anchors;
  for (const auto& [path, content] : files) {
    if (!IsHtml(path)) continue;
    tags[path] = TagsOf(content);
    anchors[path] = AnchorsOf(tags[path]);
  }
  std::set<std::string> faults;
  const auto check = [&](const std::string& page, const std::string& link, bool loaded) {
    const auto fault = [&](std::string_view what) {
      faults.insert(page + ": " + std::string(what) + " '" + link + "'");
    };
    if (link.starts_with("data:") && loaded) return;
    if (BeginsWithScheme(link) || link.starts_with("//")) {
      const bool followed = link.starts_with("https://") || link.starts_with("http://") ||
                            link.starts_with("mailto:");
      if (loaded || !followed) fault(loaded ? "loads from elsewhere" : "dead link");
      return;
    }
    const std::optional<std::string> target = ResolvedLink(page, link);
    if (!target.has_value() || files.count(*target) == 0) return fault("dead link");
    const size_t hash = link.find('#');
    if (hash == std::string::npos || hash + 1 == link.size()) return;
    const std::string anchor = WithoutPercents(std::string_view(link).substr(hash + 1));
    if (!IsHtml(*target) || anchors[*target].count(anchor) == 0) fault("dead link");
  };
  for (const auto& [page, page_tags] : tags) {
    for (const Tag& tag : page_tags) {
      const bool loads = tag.name == "link";  // a style
      if (const Attribute* href = tag.Find("href")) check(page, href->value, loads);
      if (const Attribute* src = tag.Find("src")) check(page, src->value, /*loaded=*/true);
    }
  }
  return {faults.begin(), faults.end()};
}

}  // namespace tessera::site
