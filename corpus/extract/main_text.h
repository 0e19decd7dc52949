// SPDX-License-Identifier: Apache-2.0
// The text that a page is about, without menus, teasers, footers and comments.
//
//   MainText(page)
//
// Blocks are judged by their words and links and those of their neighbours (the decision tree of
// Kohlschütter, Fankhauser, Nejdl, "Boilerplate Detection using Shallow Text Features", WSDM 2010),
// within <article> or <main> where a page has them, and outside of what is named as a navigation, a
// sidebar and the like. Headings stay before what they head.
#ifndef TESSERA_CORPUS_EXTRACT_MAIN_TEXT_H_
#define TESSERA_CORPUS_EXTRACT_MAIN_TEXT_H_

#include <string>

#include "corpus/extract/page_blocks.h"

namespace tessera::corpus {

// Blocks with a line feed behind each; empty where there is none.
std::string MainText(const PageBlocks& page);

// All blocks.
std::string AllText(const PageBlocks& page);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_EXTRACT_MAIN_TEXT_H_
