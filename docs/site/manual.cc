// SPDX-License-Identifier: Apache-2.0
#include "docs/site/manual.h"

#include <cctype>
#include <map>
#include <sstream>
#include <stdexcept>

#include "docs/site/html.h"

namespace tessera::site {
namespace {

// Without troff's signs: "\-" is "-", "\e" a backslash, "\&" nothing.
std::string Plain(std::string_view line) {
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\' || i + 1 == line.size()) {
      text += line[i];
    } else if (const char sign = line[++i]; sign == 'e') {
      text += '\\';
    } else if (sign != '&') {
      text += sign;
    }
  }
  return text;
}

struct Item {
  std::string head;  // "--lr, --learning-rate FLOAT"
  std::string text;
};

struct ManualGroup {
  std::string name;  // "": before the first .SS
  std::vector<std::string> paragraphs;
  std::vector<Item> items;
};

struct Chapter {
  std::string name;
  std::vector<ManualGroup> groups = {ManualGroup()};
  std::string example;  // lines as they stand
};

struct Macro {
  std::string name;  // "": a line of text
  std::string text;
};

Macro MacroOf(const std::string& line) {
  if (line.empty() || line[0] != '.') return {"", Plain(line)};
  const size_t blank = line.find(' ');
  return {line.substr(0, blank), blank == std::string::npos ? "" : Plain(line.substr(blank + 1))};
}

void AddLine(std::string& text, const std::string& line) {
  if (!text.empty()) text += ' ';
  text += line;
}

std::vector<Chapter> ChaptersOf(std::string_view man_page, std::string& version) {
  std::vector<Chapter> chapters;
  enum { kParagraph, kHead, kItem, kExample } where = kParagraph;
  std::istringstream in{std::string(man_page)};
  for (std::string line; std::getline(in, line);) {
    const auto [name, text] = MacroOf(line);
    if (name == ".TH") {
      const size_t quote = text.rfind('"', text.size() - 2);
      version = text.substr(quote + 1, text.size() - quote - 2);
      continue;
    }
    if (name == ".SH") {
      chapters.emplace_back();
      chapters.back().name = text;
      where = kParagraph;
      chapters.back().groups[0].paragraphs.emplace_back();
      continue;
    }
    if (chapters.empty()) throw std::runtime_error("the manual begins without .SH: " + line);
    ManualGroup& group = chapters.back().groups.back();
    if (name == ".SS") {
      chapters.back().groups.push_back({text, {""}, {}});
      where = kParagraph;
    } else if (name == ".PP") {
      group.paragraphs.emplace_back();
      where = kParagraph;
    } else if (name == ".TP") {
      where = kHead;
    } else if (name == ".nf") {
      where = kExample;
    } else if (name == ".fi") {
      where = kParagraph;
    } else if (!name.empty() && name != ".B") {
      throw std::runtime_error("the manual has a macro that the site does not read: " + name);
    } else if (where == kHead) {
      group.items.push_back({text, ""});
      where = kItem;
    } else if (where == kItem) {
      AddLine(group.items.back().text, text);
    } else if (where == kExample) {
      chapters.back().example += text + "\n";
    } else if (name == ".B") {
      group.paragraphs.back() = text;  // a synopsis
      group.paragraphs.emplace_back();
    } else {
      AddLine(group.paragraphs.back(), text);
    }
  }
  return chapters;
}

// "--lr, --learning-rate FLOAT" -> "--lr"; of "-h, --help" the long one.
std::string OptionName(const std::string& head) {
  size_t begin = head.find("--");
  if (begin == std::string::npos) begin = 0;
  return head.substr(begin, head.find_first_of(", ", begin) - begin);
}

// "corpus run" -> "commands/corpus-run.html".
std::string PathOf(std::string command) {
  for (char& c : command) {
    if (c == ' ') c = '-';
  }
  return "commands/" + command + ".html";
}

std::string Capital(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// The groups' headings, paragraphs and options. `links` leads from "As of train." to that page.
void AddGroups(const Chapter& chapter, const std::map<std::string, std::string>& links,
               Page& page) {
  std::map<std::string, int> used;
  for (const ManualGroup& group : chapter.groups) {
    if (!group.name.empty()) {
      std::string anchor = AnchorOf(group.name);
      if (const int before = used[anchor]++; before > 0) anchor += "-" + std::to_string(before);
      page.body += "<h2 id=\"" + Escaped(anchor) + "\">" + Escaped(group.name) + "</h2>\n";
      page.sections.push_back({anchor, group.name, "", 2});
    }
    for (const std::string& paragraph : group.paragraphs) {
      if (paragraph.empty()) continue;
      const auto link = links.find(paragraph);
      page.body += link == links.end() ? "<p>" + Escaped(paragraph) + "</p>\n" : link->second;
    }
    if (group.items.empty()) continue;
    page.body += "<dl class=\"options\">\n";
    for (const Item& item : group.items) {
      std::string anchor = OptionName(item.head);
      if (const int before = used[anchor]++; before > 0) anchor += "-" + std::to_string(before);
      page.body += "<dt id=\"" + Escaped(anchor) + "\"><code>" + Escaped(item.head) +
                   "</code></dt>\n<dd>" + Escaped(item.text) + "</dd>\n";
      page.sections.push_back({anchor, item.head, item.text, 3});
    }
    page.body += "</dl>\n";
  }
}

Page CommandPage(const Chapter& chapter, const Item& command, const std::string& program,
                 const std::map<std::string, std::string>& links) {
  Page page(PathOf(command.head), program + " " + command.head);
  page.sections.push_back({"", "", command.text, 1});
  Chapter rest = chapter;
  std::vector<std::string>& paragraphs = rest.groups[0].paragraphs;
  page.body = "<h1>" + Escaped(page.title) + "</h1>\n";
  std::erase(paragraphs, "");
  if (!paragraphs.empty()) {
    page.body += "<pre><code>" + Escaped(paragraphs[0]) + "</code></pre>\n";
    paragraphs.erase(paragraphs.begin());
  }
  for (const std::string& paragraph : paragraphs) {
    page.body += "<p>" + Escaped(paragraph) + "</p>\n";
  }
  paragraphs.clear();
  if (!chapter.example.empty() && chapter.example != "\n") {
    page.body += "<pre><code>" + Escaped(chapter.example) + "</code></pre>\n";
  }
  AddGroups(rest, links, page);
  return page;
}

}  // namespace

Manual ManualOf(std::string_view man_page) {
  Manual manual;
  const std::vector<Chapter> chapters = ChaptersOf(man_page, manual.version);
  const std::string program = manual.version.substr(0, manual.version.find(' '));
  std::map<std::string, Item> commands;  // by the name of their chapter
  for (const Chapter& chapter : chapters) {
    if (chapter.name != "COMMANDS") continue;
    for (const Item& item : chapter.groups[0].items) commands[Capital(item.head)] = item;
  }
  std::map<std::string, std::string> links;
  for (const auto& [name, command] : commands) {
    links["As of " + command.head + "."] =
        "<p>As of <a href=\"" + Escaped(PathOf(command.head).substr(9)) + "\">" + Escaped(program) +
        " " + Escaped(command.head) + "</a>.</p>\n";
  }
  links["As of " + program + "."] =
      "<p>As of <a href=\"index.html\">" + Escaped(program) + "</a> itself.</p>\n";

  Page all("commands/index.html", "Commands");
  all.sections.push_back({"", "", "", 1});
  all.body = "<h1>Commands</h1>\n";
  manual.pages.emplace_back();
  for (const Chapter& chapter : chapters) {
    if (const auto command = commands.find(chapter.name); command != commands.end()) {
      manual.pages.push_back(CommandPage(chapter, command->second, program, links));
    } else if (chapter.name == "COMMANDS") {
      all.body += "<dl class=\"options\">\n";
      for (const Item& item : chapter.groups[0].items) {
        all.body += "<dt><a href=\"" + Escaped(PathOf(item.head).substr(9)) + "\"><code>" +
                    Escaped(program + " " + item.head) + "</code></a></dt>\n<dd>" +
                    Escaped(item.text) + "</dd>\n";
      }
      all.body += "</dl>\n";
    } else if (chapter.name == "NAME") {
      for (const std::string& paragraph : chapter.groups[0].paragraphs) {
        if (!paragraph.empty()) all.body += "<p>" + Escaped(paragraph) + "</p>\n";
      }
    } else if (chapter.name == "OPTIONS") {
      AddGroups(chapter, links, all);
    } else if (chapter.name == "EXIT STATUS") {
      Chapter status = chapter;
      status.groups[0].name = "Exit status";
      AddGroups(status, links, all);
    }
  }
  manual.pages[0] = std::move(all);
  return manual;
}

}  // namespace tessera::site
