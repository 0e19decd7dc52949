// SPDX-License-Identifier: Apache-2.0
// Pages of the sources that guides link to.
#ifndef TESSERA_DOCS_SITE_SOURCES_H_
#define TESSERA_DOCS_SITE_SOURCES_H_

#include <map>
#include <string>
#include <vector>

#include "docs/site/links.h"
#include "docs/site/page.h"

namespace tessera::site {

class Sources {
 public:
  // `root` is the repository's folder; `headers` have a reference page.
  Sources(std::string root, std::map<std::string, std::string> headers);

  // The page or picture of the site that stands for a path of the repository ("core/tensor.h",
  // "ops/norm"); "" where there is no such file, or none that a page can show.
  std::string PathOf(const std::string& path);

  // The pages of all paths that were asked for, and of what is in their folders.
  std::vector<Page> Pages();
  const Files& pictures() const { return pictures_; }

 private:
  bool Exists(const std::string& path) const;
  Page FilePage(const std::string& path, const std::string& text);
  Page FolderPage(const std::string& path);

  std::string root_;
  std::map<std::string, std::string> headers_;
  Files pictures_;
  std::map<std::string, bool> asked_;  // a path of the repository: whether its page is made
};

}  // namespace tessera::site

#endif  // TESSERA_DOCS_SITE_SOURCES_H_
