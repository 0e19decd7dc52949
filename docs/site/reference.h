// SPDX-License-Identifier: Apache-2.0
// Reference pages of the headers: what Doxygen makes with docs/site/Doxyfile, within the site's
// frame.
#ifndef TESSERA_DOCS_SITE_REFERENCE_H_
#define TESSERA_DOCS_SITE_REFERENCE_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "docs/site/page.h"

namespace tessera::site {

struct Reference {
  std::vector<Page> pages;                     // api/index.html, then Doxygen's
  std::map<std::string, std::string> headers;  // "nn/linear.h": its page, "api/linear_8h.html"
};

// `files` are Doxygen's by their names: pages that begin with "<!--title ...-->", which
// docs/site/doxygen_header.html sees to, and tags.xml, in which the search finds the names. Its
// lists of all members, which the search replaces, and what its own frame needs are left out.
Reference ReferenceOf(const std::map<std::string, std::string>& files);

}  // namespace tessera::site

#endif  // TESSERA_DOCS_SITE_REFERENCE_H_
