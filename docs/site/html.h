// SPDX-License-Identifier: Apache-2.0
// What the site needs of HTML: the tags of a page with their attributes, and the text between them.
//
//   for (const Tag& tag : TagsOf(page)) {
//     if (const Attribute* link = tag.Find("href")) Follow(link->value);
//   }
//
// The pages come from programs (cmark-gfm, Doxygen) and from here: no page of the world at large.
#ifndef TESSERA_DOCS_SITE_HTML_H_
#define TESSERA_DOCS_SITE_HTML_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::site {

struct Attribute {
  std::string name;
  std::string value;  // without entities
  size_t begin = 0;   // of the attribute in the page, its name and the space before it included
  size_t end = 0;     // behind the closing quote
  size_t value_begin = 0;
  size_t value_end = 0;
};

struct Tag {
  std::string name;     // in small letters
  bool closes = false;  // </name>
  size_t begin = 0;     // of "<"
  size_t end = 0;       // behind ">"
  std::vector<Attribute> attributes;

  const Attribute* Find(std::string_view attribute) const;
};

// In their order. Comments and the contents of <script> and <style> have none.
std::vector<Tag> TagsOf(std::string_view html);

// Text as HTML, also between double quotes.
std::string Escaped(std::string_view text);

// HTML without tags, comments and entities; runs of blanks are one blank. What elements that stand
// on lines of their own hold does not run together.
std::string PlainText(std::string_view html);

// The anchor of a heading, as GitHub makes it: "ZeRO, in short" is "zero-in-short".
std::string AnchorOf(std::string_view heading);

}  // namespace tessera::site

#endif  // TESSERA_DOCS_SITE_HTML_H_
