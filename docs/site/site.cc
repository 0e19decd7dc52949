// SPDX-License-Identifier: Apache-2.0
#include "docs/site/site.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "docs/site/guides.h"
#include "docs/site/html.h"
#include "docs/site/manual.h"
#include "docs/site/navigation.h"
#include "docs/site/reference.h"
#include "docs/site/sources.h"
#include "net/html/page_assets.h"

namespace tessera::site {
namespace {

std::string FileOfSite(const std::string& root, const std::string& name) {
  StatusOr<std::string> text = ReadFile(JoinPath(root, "docs/site/" + name));
  if (!text.ok()) throw std::runtime_error(Message(text.status()));
  return *std::move(text);
}

// Where links of the guide `from` lead: to a guide's page, the list of a folder's guides, or a
// source.
std::string LinkOf(const std::string& from, const std::string& link, const SiteInputs& inputs,
                   Sources& sources) {
  const std::optional<std::string> path = ResolvedLink(from, link);
  if (!path.has_value() || link.starts_with('#')) return link;
  const std::string part = link.substr(std::min(link.find('#'), link.size()));
  const std::string page = PathOfGuide(from);
  if (inputs.guides.count(*path) > 0) return RelativeLink(page, PathOfGuide(*path)) + part;
  const auto first = inputs.guides.lower_bound(*path + "/");
  if (first != inputs.guides.end() && first->first.starts_with(*path + "/")) {
    return RelativeLink(page, *path + "/index.html") + part;
  }
  const std::string target = sources.PathOf(*path);
  return target.empty() ? link : RelativeLink(page, target) + part;
}

// What site.js searches: pages, and their sections by the number of their page.
std::string SearchIndex(const std::map<std::string, Page>& pages) {
  std::string names;
  std::string sections;
  int number = 0;
  for (const auto& [path, page] : pages) {
    if (page.sections.empty()) continue;
    names += (names.empty() ? "" : ",\n") + std::string("[") + JsonQuoted(path) + "," +
             JsonQuoted(page.title) + "]";
    for (const Section& section : page.sections) {
      sections += (sections.empty() ? "" : ",\n") + std::string("[") + std::to_string(number) +
                  "," + JsonQuoted(section.anchor) + "," + JsonQuoted(section.heading) + "," +
                  JsonQuoted(section.text) + "]";
    }
    ++number;
  }
  return "// Made by tools/site.\nwindow.searchIndex = {pages: [\n" + names + "\n], sections: [\n" +
         sections + "\n]};\n";
}

}  // namespace

Files SiteOf(const SiteInputs& inputs) {
  std::map<std::string, Page> pages;
  const auto add = [&](Page page) {
    std::string path = page.path;
    pages.emplace(std::move(path), std::move(page));
  };
  Reference reference = ReferenceOf(inputs.reference);
  for (Page& page : reference.pages) add(std::move(page));
  Manual manual;
  if (!inputs.manual.empty()) manual = ManualOf(inputs.manual);
  for (Page& page : manual.pages) add(std::move(page));
  Sources sources(inputs.root, std::move(reference.headers));
  for (const auto& [path, html] : inputs.guides) {
    add(GuideOf(path, html, [&, &from = path](const std::string& link) {
      return LinkOf(from, link, inputs, sources);
    }));
  }
  for (Page& page : sources.Pages()) add(std::move(page));
  const Navigation navigation(FileOfSite(inputs.root, "navigation.txt"), pages);
  for (Page& page : navigation.FolderPages()) add(std::move(page));

  Files files = sources.pictures();
  const std::string frame = FileOfSite(inputs.root, "page.html");
  for (const auto& [path, page] : pages) {
    const std::string home = RelativeLink(path, "index.html");
    files[path] = net::Fill(
        frame, {{"title", Escaped(path == "index.html" ? page.title : page.title + " - Tessera")},
                {"root", home.substr(0, home.size() - std::string_view("index.html").size())},
                {"navigation", navigation.Html(page)},
                {"content", page.body},
                {"version", Escaped(manual.version.empty() ? "Tessera" : manual.version)}});
  }
  for (const char* name : {"site.css", "site.js"}) files[name] = FileOfSite(inputs.root, name);
  files["search-index.js"] = SearchIndex(pages);
  return files;
}

}  // namespace tessera::site
