// SPDX-License-Identifier: Apache-2.0
#include "docs/site/sources.h"

#include <optional>
#include <utility>

#include "base/file.h"
#include "base/utf8.h"
#include "docs/site/html.h"

namespace tessera::site {
namespace {

constexpr size_t kMostBytes = size_t{1} << 19;  // of a source that a page shows

bool IsPicture(std::string_view path) {
  for (const std::string_view end : {".png", ".jpg", ".jpeg", ".svg", ".gif"}) {
    if (path.ends_with(end)) return true;
  }
  return false;
}

// What a build, an editor or git leaves in a folder.
bool IsHidden(std::string_view name) {
  return name.starts_with('.') || name.starts_with("bazel-") || name == "__pycache__";
}

// What tests read: a list names it, without pages of it.
bool IsData(std::string_view name) { return name == "testdata" || name == "findings"; }

// The file, where it is text that a page can show.
std::optional<std::string> TextOf(const std::string& path) {
  if (!PathExists(path) || IsDirectory(path)) return std::nullopt;
  StatusOr<std::string> text = ReadFile(path);
  if (!text.ok() || text->size() > kMostBytes || text->find('\0') != std::string::npos ||
      FindInvalidUtf8(*text) != kNoInvalidUtf8) {
    return std::nullopt;
  }
  return *std::move(text);
}

std::string SourcePath(const std::string& path, bool folder) {
  return "source/" + path + (folder ? "/index.html" : ".html");
}

}  // namespace

Sources::Sources(std::string root, std::map<std::string, std::string> headers)
    : root_(std::move(root)), headers_(std::move(headers)) {}

std::string Sources::PathOf(const std::string& path) {
  if (path.empty()) return "";
  const std::string file = JoinPath(root_, path);
  if (IsPicture(path)) {
    StatusOr<std::string> bytes = ReadFile(file);
    if (!bytes.ok()) return "";
    pictures_[path] = *std::move(bytes);
    return path;
  }
  const bool folder = IsDirectory(file);
  if (!folder && !TextOf(file).has_value()) return "";
  asked_.emplace(path, false);
  return SourcePath(path, folder);
}

Page Sources::FilePage(const std::string& path, const std::string& text) {
  Page page(SourcePath(path, /*folder=*/false), path);
  page.body = "<h1 class=\"file\">" + Escaped(path) + "</h1>\n";
  if (const auto header = headers_.find(path); header != headers_.end()) {
    page.body += "<p><a href=\"" + Escaped(RelativeLink(page.path, header->second)) +
                 "\">Reference of this header</a></p>\n";
  }
  page.body += "<pre><code>" + Escaped(text) + "</code></pre>\n";
  return page;
}

Page Sources::FolderPage(const std::string& path) {
  Page page(SourcePath(path, /*folder=*/true), path + "/");
  page.body = "<h1 class=\"file\">" + Escaped(page.title) + "</h1>\n<ul>\n";
  const StatusOr<std::vector<std::string>> names = ListDirectory(JoinPath(root_, path));
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    if (IsHidden(name)) continue;
    const std::string entry = JoinPath(path, name);
    const std::string shown = Escaped(IsDirectory(JoinPath(root_, entry)) ? name + "/" : name);
    const std::string target = IsPicture(name) || IsData(name) ? "" : PathOf(entry);
    page.body += target.empty() ? "<li>" + shown + "</li>\n"
                                : "<li><a href=\"" + Escaped(RelativeLink(page.path, target)) +
                                      "\">" + shown + "</a></li>\n";
  }
  page.body += "</ul>\n";
  return page;
}

std::vector<Page> Sources::Pages() {
  std::vector<Page> pages;
  for (bool more = true; more;) {
    more = false;
    for (auto& [path, made] : asked_) {
      if (made) continue;
      made = more = true;
      const std::string file = JoinPath(root_, path);
      pages.push_back(IsDirectory(file) ? FolderPage(path) : FilePage(path, *TextOf(file)));
    }
  }
  return pages;
}

}  // namespace tessera::site
