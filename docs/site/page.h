// SPDX-License-Identifier: Apache-2.0
// A page of the site before its frame (header, navigation) is put around it.
#ifndef TESSERA_DOCS_SITE_PAGE_H_
#define TESSERA_DOCS_SITE_PAGE_H_

#include <string>
#include <utility>
#include <vector>

namespace tessera::site {

// A part of a page that the search finds by itself.
struct Section {
  std::string anchor;   // "": the page's beginning
  std::string heading;  // plain text; "": the page's title alone
  std::string text;     // plain text
  int level = 1;        // of its heading: 1 to 6; the navigation shows those of level 2
};

struct Page {
  std::string path;   // from the site's folder: "docs/cli.html"
  std::string title;  // plain text
  std::string body;   // HTML within <main>
  std::vector<Section> sections;

  Page() = default;
  Page(std::string its_path, std::string its_title)
      : path(std::move(its_path)), title(std::move(its_title)) {}
};

}  // namespace tessera::site

#endif  // TESSERA_DOCS_SITE_PAGE_H_
