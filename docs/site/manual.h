// SPDX-License-Identifier: Apache-2.0
// The manual page of all commands (`tessera manual`), made a page for each command and a list of
// them.
#ifndef TESSERA_DOCS_SITE_MANUAL_H_
#define TESSERA_DOCS_SITE_MANUAL_H_

#include <string>
#include <string_view>
#include <vector>

#include "docs/site/page.h"

namespace tessera::site {

struct Manual {
  std::string version;  // "tessera 0.8.0"
  std::vector<Page>
      pages;  // commands/index.html, then commands/train.html, ... in the manual's order
};

// Reads the macros that tools/manual.cc writes: .TH, .SH, .SS, .TP, .B, .PP, .nf and .fi; any other
// throws std::runtime_error, which names it. Every option has an anchor, "--lr", and is found by
// the search.
Manual ManualOf(std::string_view man_page);

}  // namespace tessera::site

#endif  // TESSERA_DOCS_SITE_MANUAL_H_
