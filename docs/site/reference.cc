// SPDX-License-Identifier: Apache-2.0
#include "docs/site/reference.h"

#include <set>
#include <sstream>

#include "docs/site/html.h"

namespace tessera::site {
namespace {

constexpr std::string_view kTitle = "<!--title ";
constexpr std::string_view kOfAHeader = " File Reference";

bool IsList(std::string_view name) {
  for (const std::string_view list : {"functions", "globals", "namespacemembers", "classes.html",
                                      "hierarchy.html", "index.html"}) {
    if (name.starts_with(list)) return true;
  }
  return false;
}

// Without pictures, scripts' calls and looks, which the site's style decides. Doxygen links to the
// list of nested classes also where all of them are left out: such a link is text.
std::string Simplified(std::string_view html) {
  static const auto* kDropped =
      new std::set<std::string>{"onclick", "style", "target", "align", "valign", "width"};
  const bool has_nested = html.find("id=\"nested-classes\"") != std::string_view::npos;
  std::string text;
  size_t at = 0;
  for (const Tag& tag : TagsOf(html)) {
    if (tag.name == "img") {
      text += html.substr(at, tag.begin - at);
      at = tag.end;
    }
    for (const Attribute& attribute : tag.attributes) {
      const bool dead =
          !has_nested && attribute.name == "href" && attribute.value == "#nested-classes";
      if (tag.name == "img" || (kDropped->count(attribute.name) == 0 && !dead)) continue;
      text += html.substr(at, attribute.begin - at);
      at = attribute.end;
    }
  }
  return text += html.substr(at);
}

// The page's first paragraph, where it is what the page is about: "Linear layers ...".
std::string BriefOf(std::string_view html) {
  const size_t contents = html.find("<div class=\"contents\">");
  if (contents == std::string_view::npos) return "";
  const size_t begin = html.find_first_not_of(" \n", contents + 22);
  if (begin == std::string_view::npos || html.substr(begin, 2) != "<p") return "";
  const size_t end = html.find("</p>", begin);
  if (end == std::string_view::npos) return "";
  std::string brief = PlainText(html.substr(begin, end - begin));
  if (const size_t more = brief.find(" More..."); more != std::string::npos) brief.resize(more);
  return brief.starts_with("#include") ? "" : brief;
}

Page PageOf(const std::string& name, std::string_view html) {
  const size_t title_end = html.find("-->");
  Page page("api/" + name, PlainText(html.substr(kTitle.size(), title_end - kTitle.size())));
  page.body = "<div class=\"reference\">" + Simplified(html.substr(title_end + 3)) + "</div>\n";
  return page;
}

// The list of headers, by their folders.
Page IndexOf(const std::map<std::string, std::string>& headers,
             const std::map<std::string, std::string>& briefs) {
  Page page("api/index.html", "C++ reference");
  page.sections.push_back({"", "", "Headers, classes and namespaces", 1});
  page.body =
      "<h1>C++ reference</h1>\n<p>The headers that programs outside are given, by their comments. "
      "Also: <a href=\"annotated.html\">classes</a>, <a href=\"namespaces.html\">namespaces</a>. "
      "The search finds every name.</p>\n";
  std::string folder;
  for (const auto& [header, path] : headers) {
    const std::string top = header.substr(0, header.find('/'));
    if (top != folder) {
      if (!folder.empty()) page.body += "</table></div>\n";
      page.body += "<h2 id=\"" + Escaped(top) + "\">" + Escaped(top) +
                   "</h2>\n<div class=\"table\"><table>\n";
      page.sections.push_back({top, top, "", 2});
      folder = top;
    }
    page.body += "<tr><td><a href=\"" + Escaped(path.substr(4)) + "\"><code>" + Escaped(header) +
                 "</code></a></td><td>" + Escaped(briefs.at(header)) + "</td></tr>\n";
  }
  if (!folder.empty()) page.body += "</table></div>\n";
  return page;
}

// "  <name>size</name>" -> "size", for the element `name`.
bool Reads(const std::string& line, std::string_view element, std::string& text) {
  const std::string open = "<" + std::string(element) + ">";
  const size_t begin = line.find(open);
  if (begin == std::string::npos) return false;
  const size_t end = line.find("</", begin);
  text = PlainText(std::string_view(line).substr(begin + open.size(), end - begin - open.size()));
  return true;
}

// Doxygen's file of tags has an element a line. Adds what it names to the pages' sections.
void AddNames(const std::string& tags, std::map<std::string, Page>& pages) {
  std::string scope;       // the class or namespace
  std::string scope_file;  // its page
  std::string name;
  std::string file;
  std::string anchor;
  bool in_member = false;
  const auto add = [&](const std::string& page, Section section) {
    const auto found = pages.find(page);
    if (found != pages.end()) found->second.sections.push_back(std::move(section));
  };
  std::istringstream in(tags);
  for (std::string line; std::getline(in, line);) {
    if (line.find("<compound ") != std::string::npos) {
      scope = scope_file = "";
    } else if (line.find("<member ") != std::string::npos) {
      in_member = true;
      name = file = anchor = "";
    } else if (line.find("</member>") != std::string::npos) {
      in_member = false;
      // A header lists the members of its namespaces as well, which are elsewhere.
      if (file == scope_file && !name.empty()) {
        const bool macro = file.ends_with("_8h.html");
        add(file, {anchor, macro ? name : scope + "::" + name, "", 3});
      }
    } else if (in_member) {
      if (!Reads(line, "name", name) && !Reads(line, "anchorfile", file)) {
        Reads(line, "anchor", anchor);
      }
    } else {
      if (scope.empty()) Reads(line, "name", scope);
      if (scope_file.empty() && Reads(line, "filename", scope_file)) {
        if (!scope_file.ends_with("_8h.html")) add(scope_file, {"", scope, "", 2});
      }
    }
  }
}

}  // namespace

Reference ReferenceOf(const std::map<std::string, std::string>& files) {
  Reference reference;
  std::map<std::string, Page> pages;
  std::map<std::string, std::string> briefs;
  for (const auto& [name, html] : files) {
    if (!name.ends_with(".html") || IsList(name) || !html.starts_with(kTitle)) continue;
    Page page = PageOf(name, html);
    const std::string brief = BriefOf(html);
    page.sections.push_back({"", "", brief, 1});
    if (name.ends_with("_8h.html") && page.title.ends_with(kOfAHeader)) {
      const std::string header = page.title.substr(0, page.title.size() - kOfAHeader.size());
      reference.headers[header] = page.path;
      briefs[header] = brief;
    }
    pages[name] = std::move(page);
  }
  if (pages.empty()) return reference;
  if (const auto tags = files.find("tags.xml"); tags != files.end()) AddNames(tags->second, pages);
  reference.pages.push_back(IndexOf(reference.headers, briefs));
  for (auto& [name, page] : pages) reference.pages.push_back(std::move(page));
  return reference;
}

}  // namespace tessera::site
