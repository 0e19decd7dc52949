// SPDX-License-Identifier: Apache-2.0
// A page of HTML as the blocks of text that a reader sees.
//
//   PageBlocks page;
//   const std::string wrong = ReadPage("<h1>A</h1><p>b <a href=x>c</a>", &page);
//   page.blocks[1].text          // "b c", of which 1 character is a link's
//
// libxml2's HTML parser reads it; what it finds goes into a list, without a tree, so that time and
// memory follow the page's size alone. Elements within each other beyond kMaxPageDepth are refused.
#ifndef TESSERA_CORPUS_EXTRACT_PAGE_BLOCKS_H_
#define TESSERA_CORPUS_EXTRACT_PAGE_BLOCKS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

inline constexpr int kMaxPageDepth = 512;

struct PageBlock {
  std::string text;        // without blanks at both ends, single blanks inside but in <pre>
  int64_t words = 0;       // two ideographs count as one
  int64_t link_words = 0;  // of them in links
  bool heading = false;
  bool list_item = false;
  bool boilerplate = false;  // in a navigation, a footer, a form or what is named like one
  bool main = false;         // in <article>, <main> or what is marked as that
};

struct PageBlocks {
  std::string title;
  std::vector<PageBlock> blocks;
};

// `html` is UTF-8. Why it cannot be read, or empty.
std::string ReadPage(std::string_view html, PageBlocks* page);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_EXTRACT_PAGE_BLOCKS_H_
