// SPDX-License-Identifier: Apache-2.0
// corpus/extract and corpus/repair: pages, and texts of any kind.
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "corpus/extract/main_text.h"
#include "corpus/extract/page_blocks.h"
#include "corpus/io/charset.h"
#include "corpus/language/identify.h"
#include "corpus/repair/repair.h"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

bool Run(std::string_view bytes) {
  const std::string html = corpus::Utf8OfPage(bytes, "");
  corpus::PageBlocks page;
  const bool ok = corpus::ReadPage(html, &page).empty();
  const std::string text = corpus::MainText(page) + corpus::AllText(page);
  TESSERA_CHECK(FindInvalidUtf8(text) == kNoInvalidUtf8, "page", "no UTF-8");
  const std::string repaired = corpus::RepairText(html, {});
  TESSERA_CHECK(FindInvalidUtf8(repaired) == kNoInvalidUtf8, "repair", "no UTF-8");
  TESSERA_CHECK(corpus::IdentifyLanguage(repaired).score <= 1, "language", "more than sure");
  return ok;
}

std::vector<std::string> Seeds() {
  return {
      "<html><head><title>t</title><meta charset=utf-8></head><body><nav>n</nav><article><h1>h"
      "</h1><p>one &amp; two<br>three<pre>a\n b</pre><ul><li>x</ul></article></body></html>",
      "<meta charset=gb2312><p>\xC4\xE3\xBA\xC3", "\xEF\xBB\xBF<table><td>a<td>b",
      "doesnâ€™t &eacute; ＡＢＣ \x1B[1mb"};
}

const FuzzTargetRegistration registration({.name = "web_page",
                                           .run = Run,
                                           .seeds = Seeds,
                                           .words = {"<!--", "-->", "<![CDATA[", "</p>", "<svg>",
                                                     "class=\"sidebar\"", "&#x", "Ã", "â€"}});

}  // namespace
}  // namespace tessera::fuzz
