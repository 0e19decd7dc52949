// SPDX-License-Identifier: Apache-2.0
#include "docs/site/navigation.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "docs/site/guides.h"
#include "docs/site/html.h"
#include "docs/site/links.h"

namespace tessera::site {
namespace {

bool IsIndexOf(const std::string& path, const std::string& folder) {
  return path == folder + "index.html";
}

// Pages that show what others have: they are reached from these.
bool IsShownElsewhere(const std::string& path) {
  return path.starts_with("source/") || path.starts_with("api/");
}

}  // namespace

Navigation::Navigation(std::string_view text, const std::map<std::string, Page>& pages) {
  std::set<std::string> named;
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '[') {
      groups_.push_back({line.substr(1, line.find(']') - 1), {}});
      continue;
    }
    if (groups_.empty())
      throw std::runtime_error("navigation.txt: no [Group] before '" + line + "'");
    const size_t blank = std::min(line.find(' '), line.size());
    const std::string name = line.substr(0, blank);
    Entry entry;
    entry.label = line.substr(std::min(blank + 1, line.size()));
    if (name.ends_with('/')) {
      entry.path = name + "index.html";
      for (const auto& [path, page] : pages) {
        if (path.starts_with(name) && !IsIndexOf(path, name)) entry.children.push_back(path);
      }
      std::sort(entry.children.begin(), entry.children.end(),
                [&](const std::string& a, const std::string& b) {
                  return pages.at(a).title < pages.at(b).title;
                });
      if (entry.children.empty()) {
        // Commands and reference are made only where their inputs were given.
        if (name == "commands/" || name == "api/") continue;
        throw std::runtime_error("navigation.txt: no page in '" + name + "'");
      }
      named.insert(entry.children.begin(), entry.children.end());
    } else {
      entry.path = PathOfGuide(name);
      const auto page = pages.find(entry.path);
      if (page == pages.end()) throw std::runtime_error("navigation.txt: no page '" + name + "'");
      if (entry.label.empty()) entry.label = page->second.title;
    }
    named.insert(entry.path);
    groups_.back().entries.push_back(std::move(entry));
  }
  Group more{"More", {}};
  for (const auto& [path, page] : pages) {
    titles_[path] = page.title;
    if (named.count(path) == 0 && !IsShownElsewhere(path)) {
      more.entries.push_back({path, page.title, {}});
    }
  }
  if (!more.entries.empty()) groups_.push_back(std::move(more));
}

std::vector<Page> Navigation::FolderPages() const {
  std::vector<Page> pages;
  for (const Group& group : groups_) {
    for (const Entry& entry : group.entries) {
      if (entry.children.empty() || titles_.count(entry.path) > 0) continue;
      Page page(entry.path, entry.label);
      page.sections.push_back({"", "", "", 1});
      page.body = "<h1>" + Escaped(entry.label) + "</h1>\n<ul>\n";
      for (const std::string& child : entry.children) {
        page.body += "<li><a href=\"" + Escaped(RelativeLink(entry.path, child)) + "\">" +
                     Escaped(titles_.at(child)) + "</a></li>\n";
      }
      page.body += "</ul>\n";
      pages.push_back(std::move(page));
    }
  }
  return pages;
}

std::string Navigation::Html(const Page& page) const {
  const auto link = [&](const std::string& path, const std::string& label) {
    return "<a href=\"" + Escaped(RelativeLink(page.path, path)) + "\"" +
           (path == page.path ? " aria-current=\"page\"" : "") + ">" + Escaped(label) + "</a>";
  };
  const auto parts = [&] {
    std::string html;
    for (const Section& section : page.sections) {
      if (section.level != 2 || section.anchor.empty()) continue;
      html += "<li><a href=\"#" + Escaped(section.anchor) + "\">" + Escaped(section.heading) +
              "</a></li>\n";
    }
    return html.empty() ? html : "<ul class=\"parts\">\n" + html + "</ul>\n";
  };
  std::string html;
  for (const Group& group : groups_) {
    html += "<h2>" + Escaped(group.name) + "</h2>\n<ul>\n";
    for (const Entry& entry : group.entries) {
      html += "<li>" + link(entry.path, entry.label);
      if (entry.path == page.path) html += "\n" + parts();
      const auto& children = entry.children;
      const bool reference = entry.path.starts_with("api/");  // too many for a list
      if (std::find(children.begin(), children.end(), page.path) != children.end() && !reference) {
        html += "\n<ul>\n";
        for (const std::string& child : children) {
          html += "<li>" + link(child, titles_.at(child)) + "</li>\n";
        }
        html += "</ul>\n";
      }
      html += "</li>\n";
    }
    html += "</ul>\n";
  }
  return html;
}

}  // namespace tessera::site
