// SPDX-License-Identifier: Apache-2.0
// The navigation, which every page of the site shows.
#ifndef TESSERA_DOCS_SITE_NAVIGATION_H_
#define TESSERA_DOCS_SITE_NAVIGATION_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "docs/site/page.h"

namespace tessera::site {

struct Entry {
  std::string path;  // of the page
  std::string label;
  std::vector<std::string> children;  // of a folder: its pages, shown while one of them is
};

struct Group {
  std::string name;
  std::vector<Entry> entries;
};

class Navigation {
 public:
  // `text` has lines "[Group]", "docs/cli.md", "README.md Overview" (with a label in place of the
  // page's title), "docs/models/ Model families" (a folder) and "# comment". `pages` are all pages
  // by their paths. Guides that no line names are the group "More". Throws std::runtime_error for a
  // line that names none.
  Navigation(std::string_view text, const std::map<std::string, Page>& pages);

  // A list of each folder's pages, where none is made: docs/models/index.html.
  std::vector<Page> FolderPages() const;

  // As `page` shows it.
  std::string Html(const Page& page) const;

 private:
  std::vector<Group> groups_;
  std::map<std::string, std::string> titles_;  // by the path of the page
};

}  // namespace tessera::site

#endif  // TESSERA_DOCS_SITE_NAVIGATION_H_
