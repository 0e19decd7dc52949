// SPDX-License-Identifier: Apache-2.0
#include "corpus/extract/page_blocks.h"

#include <libxml/HTMLparser.h>
#include <libxml/parserInternals.h>

#include <algorithm>
#include <iterator>
#include <memory>

namespace tessera::corpus {
namespace {

enum Kind : uint8_t {
  kInline,   // continues with the block
  kBlock,    // ends it and begins another
  kHidden,   // nobody reads it
  kBreak,    // a line feed
  kAside,    // a block, and no content
  kContent,  // a block, and the content
};

struct Element {
  std::string_view name;
  Kind kind;
};

// Sorted. What is not here is inline.
constexpr Element kElements[] = {
    {"address", kBlock},   {"applet", kHidden},    {"article", kContent},  {"aside", kAside},
    {"audio", kHidden},    {"blockquote", kBlock}, {"body", kBlock},       {"br", kBreak},
    {"button", kHidden},   {"canvas", kHidden},    {"caption", kBlock},    {"center", kBlock},
    {"datalist", kHidden}, {"dd", kBlock},         {"details", kBlock},    {"dialog", kAside},
    {"dir", kBlock},       {"div", kBlock},        {"dl", kBlock},         {"dt", kBlock},
    {"embed", kHidden},    {"fieldset", kAside},   {"figcaption", kBlock}, {"figure", kBlock},
    {"footer", kAside},    {"form", kBlock},       {"frame", kHidden},     {"frameset", kHidden},
    {"h1", kBlock},        {"h2", kBlock},         {"h3", kBlock},         {"h4", kBlock},
    {"h5", kBlock},        {"h6", kBlock},         {"head", kHidden},      {"header", kBlock},
    {"hr", kBlock},        {"iframe", kHidden},    {"legend", kBlock},     {"li", kBlock},
    {"main", kContent},    {"map", kHidden},       {"math", kHidden},      {"menu", kAside},
    {"nav", kAside},       {"noframes", kHidden},  {"noscript", kHidden},  {"object", kHidden},
    {"ol", kBlock},        {"option", kHidden},    {"p", kBlock},          {"pre", kBlock},
    {"script", kHidden},   {"section", kBlock},    {"select", kHidden},    {"style", kHidden},
    {"summary", kBlock},   {"svg", kHidden},       {"table", kBlock},      {"tbody", kBlock},
    {"td", kBlock},        {"template", kHidden},  {"textarea", kHidden},  {"tfoot", kBlock},
    {"th", kBlock},        {"thead", kBlock},      {"tr", kBlock},         {"ul", kBlock},
    {"video", kHidden}};

Kind KindOf(std::string_view name) {
  const auto* const found = std::ranges::lower_bound(kElements, name, {}, &Element::name);
  return found != std::end(kElements) && found->name == name ? found->kind : kInline;
}

// Words of classes and ids that say that a part is no content.
bool IsNamedAside(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "ad",          "ads",     "advert",     "advertisement", "banner",    "breadcrumb",
      "breadcrumbs", "byline",  "comment",    "comments",      "cookie",    "cookies",
      "copyright",   "disqus",  "footer",     "gdpr",          "login",     "masthead",
      "menu",        "meta",    "modal",      "nav",           "navbar",    "navigation",
      "newsletter",  "pager",   "pagination", "popup",         "promo",     "recommended",
      "related",     "respond", "share",      "sharing",       "sidebar",   "signup",
      "skip",        "social",  "sponsor",    "sponsored",     "subscribe", "tags",
      "toolbar",     "widget",  "widgets"};
  return std::ranges::binary_search(kNames, name);
}

std::string_view Attribute(const xmlChar** attributes, std::string_view name) {
  for (; attributes != nullptr && attributes[0] != nullptr; attributes += 2) {
    if (attributes[1] != nullptr && name == reinterpret_cast<const char*>(attributes[0])) {
      return reinterpret_cast<const char*>(attributes[1]);
    }
  }
  return {};
}

// Whether one of the words of a class, or a part of it between dashes, is such a name.
bool HasAsideName(std::string_view names) {
  std::string word;
  bool first_part = true;
  for (size_t i = 0; i <= names.size(); ++i) {
    const char c = i < names.size() ? names[i] : ' ';
    const bool ends = c == ' ' || c == '\t' || c == '\n';
    if (ends || c == '_' || c == '-') {
      // "sidebar-left" is a sidebar, "post-meta" is meta; "no-sidebar" and "has-menu" are none.
      if (first_part && (word == "no" || word == "has" || word == "with")) {
        while (i < names.size() && names[i] != ' ') ++i;
      } else if (IsNamedAside(word)) {
        return true;
      }
      word.clear();
      first_part = ends || i >= names.size();
      continue;
    }
    word += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  }
  return false;
}

bool IsHiddenBy(const xmlChar** attributes) {
  std::string style(Attribute(attributes, "style"));
  std::erase(style, ' ');
  return style.find("display:none") != std::string::npos ||
         style.find("visibility:hidden") != std::string::npos ||
         Attribute(attributes, "aria-hidden") == "true";
}

bool IsMainBy(const xmlChar** attributes) {
  return Attribute(attributes, "role") == "main" ||
         Attribute(attributes, "itemprop") == "articleBody";
}

class Reader {
 public:
  Reader(PageBlocks* page, htmlParserCtxtPtr context) : page_(page), context_(context) {}

  void Start(std::string_view name, const xmlChar** attributes) {
    Open open = {.kind = KindOf(name)};
    open.hidden = open.kind == kHidden || (open.kind != kInline && IsHiddenBy(attributes));
    if (name == "title" && hidden_ > 0) in_title_ = true;
    open.link = name == "a";
    open.pre = name == "pre";
    const bool page_part = name == "body" || name == "html" || name == "main" || name == "article";
    open.aside = open.kind == kAside || (open.kind != kInline && !page_part &&
                                         (HasAsideName(Attribute(attributes, "class")) ||
                                          HasAsideName(Attribute(attributes, "id"))));
    open.main = open.kind == kContent || (open.kind == kBlock && IsMainBy(attributes));
    // A header of the page is none of an article.
    if (name == "header" && main_ == 0) open.aside = true;
    if (open.kind == kBreak) {
      AppendBreak();
    } else if (open.kind != kInline) {
      EndBlock();
      current_.heading = name.size() == 2 && name[0] == 'h' && name[1] >= '1' && name[1] <= '6';
      current_.list_item = name == "li";
    }
    Count(open, 1);
    open_.push_back(open);
    if (std::ssize(open_) > kMaxPageDepth) {
      wrong_ = "elements nested deeper than " + std::to_string(kMaxPageDepth);
      xmlStopParser(context_);
    }
  }

  void End(std::string_view name) {
    if (name == "title") in_title_ = false;
    if (open_.empty()) return;
    const Open closed = open_.back();
    open_.pop_back();
    if (closed.kind != kInline && closed.kind != kBreak) EndBlock();
    Count(closed, -1);
  }

  void Text(std::string_view text) {
    if (in_title_) page_->title += text;
    if (hidden_ > 0) return;
    if (pre_ > 0) {
      current_.text += text;
      if (link_ > 0) link_text_ += text;
      return;
    }
    for (const char c : text) {
      const bool blank = c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f';
      if (!blank) {
        current_.text += c;
      } else if (!current_.text.empty() && current_.text.back() != ' ' &&
                 current_.text.back() != '\n') {
        current_.text += ' ';
      }
      if (link_ > 0) link_text_ += blank ? ' ' : c;
    }
  }

  std::string Finish() {
    EndBlock();
    return wrong_;
  }

 private:
  struct Open {
    Kind kind = kInline;
    bool hidden = false, aside = false, main = false, link = false, pre = false;
  };

  void Count(const Open& open, int by) {
    hidden_ += open.hidden ? by : 0;
    aside_ += open.aside ? by : 0;
    main_ += open.main ? by : 0;
    link_ += open.link ? by : 0;
    pre_ += open.pre ? by : 0;
  }
  void AppendBreak() {
    if (hidden_ > 0 || current_.text.empty()) return;
    if (current_.text.back() == ' ') current_.text.pop_back();
    current_.text += '\n';
    if (link_ > 0) link_text_ += ' ';
  }
  // Before what is counted changes.
  void EndBlock() {
    std::string& text = current_.text;
    const size_t begin = text.find_first_not_of(" \n\t\r");
    if (begin != std::string::npos) {
      text = text.substr(begin, text.find_last_not_of(" \n\t\r") - begin + 1);
      current_.words = CountWords(text);
      current_.link_words = std::min(current_.words, CountWords(link_text_));
      current_.boilerplate = aside_ > 0;
      current_.main = main_ > 0;
      page_->blocks.push_back(std::move(current_));
    }
    const bool heading = begin == std::string::npos && current_.heading;
    const bool list_item = begin == std::string::npos && current_.list_item;
    current_ = PageBlock();
    current_.heading = heading;
    current_.list_item = list_item;
    link_text_.clear();
  }
  static int64_t CountWords(std::string_view text) {
    int64_t words = 0, ideographs = 0;
    bool inside = false;
    for (const char c : text) {
      const auto byte = static_cast<uint8_t>(c);
      ideographs += byte >= 0xE3 && byte <= 0xE9;
      const bool blank = c == ' ' || c == '\n' || c == '\t';
      words += !blank && !inside;
      inside = !blank;
    }
    return words + ideographs / 2;
  }

  PageBlocks* const page_;
  const htmlParserCtxtPtr context_;
  std::string wrong_;
  std::vector<Open> open_;
  PageBlock current_;
  std::string link_text_;
  bool in_title_ = false;
  int hidden_ = 0, aside_ = 0, main_ = 0, link_ = 0, pre_ = 0;
};

Reader& ReaderOf(void* user) { return *static_cast<Reader*>(user); }

// libxml2 compares each attribute of a tag with all before it. No page needs so many.
constexpr size_t kMostAttributes = 256;

bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f'; }

// Where the tag that begins at `open` ends: behind its '>', or at the end of the page. `most` is
// where its attributes become too many; npos: nowhere.
size_t TagEnd(std::string_view html, size_t open, size_t* most) {
  *most = std::string_view::npos;
  size_t attributes = 0;
  char quote = 0;
  for (size_t i = open + 1; i < html.size(); ++i) {
    const char c = html[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '>') {
      return i + 1;
    } else if ((c == '"' || c == '\'') && html[i - 1] == '=') {
      quote = c;
    } else if (!IsBlank(c) && c != '/' &&
               (IsBlank(html[i - 1]) || html[i - 1] == '/' || html[i - 1] == '"' ||
                html[i - 1] == '\'')) {
      if (++attributes == kMostAttributes + 1) *most = i;
    }
  }
  return html.size();
}

// The page without the attributes of a tag behind the first kMostAttributes; empty: it has no such.
std::string WithFewAttributes(std::string_view html) {
  std::string kept;
  size_t copied = 0;
  for (size_t open = html.find('<'); open != std::string_view::npos && open + 1 < html.size();) {
    size_t next = open + 1;
    if (IsNameStart(html[next])) {
      size_t most = 0;
      next = TagEnd(html, open, &most);
      if (most != std::string_view::npos) {
        kept.append(html.substr(copied, most - copied));
        copied = html[next - 1] == '>' ? next - 1 : next;
      }
    }
    open = html.find('<', next);
  }
  if (copied > 0) kept.append(html.substr(copied));
  return kept;
}

std::string_view NameOf(const xmlChar* name) { return reinterpret_cast<const char*>(name); }

}  // namespace

std::string ReadPage(std::string_view html, PageBlocks* page) {
  *page = PageBlocks();
  static const bool started = [] {
    xmlInitParser();
    return true;
  }();
  (void)started;
  const std::string shorter = WithFewAttributes(html);
  if (!shorter.empty()) html = shorter;
  if (html.empty()) return "";
  const std::unique_ptr<htmlParserCtxt, decltype(&htmlFreeParserCtxt)> context(
      htmlCreateMemoryParserCtxt(html.data(), static_cast<int>(html.size())), htmlFreeParserCtxt);
  if (context == nullptr) return "libxml2 does not start";
  Reader reader(page, context.get());
  htmlSAXHandler handler = {};
  handler.startElement = [](void* user, const xmlChar* name, const xmlChar** attributes) {
    ReaderOf(user).Start(NameOf(name), attributes);
  };
  handler.endElement = [](void* user, const xmlChar* name) { ReaderOf(user).End(NameOf(name)); };
  handler.characters = [](void* user, const xmlChar* text, int size) {
    ReaderOf(user).Text({reinterpret_cast<const char*>(text), static_cast<size_t>(size)});
  };
  handler.ignorableWhitespace = handler.characters;
  *context->sax = handler;
  context->userData = &reader;
  htmlCtxtUseOptions(context.get(), HTML_PARSE_RECOVER | HTML_PARSE_NOERROR | HTML_PARSE_NOWARNING |
                                        HTML_PARSE_IGNORE_ENC | HTML_PARSE_NONET);
  xmlSwitchEncoding(context.get(), XML_CHAR_ENCODING_UTF8);
  htmlParseDocument(context.get());
  return reader.Finish();
}

}  // namespace tessera::corpus
