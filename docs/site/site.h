// SPDX-License-Identifier: Apache-2.0
// The site: guides, commands, reference and the sources that they link to, as files that need no
// server.
//
//   const Files files = SiteOf({.guides = guides, .manual = manual, .root = "."});
//   for (const std::string& fault : DeadLinks(files)) ...
//
// A guide keeps its path (docs/cli.md: docs/cli.html). A link to a guide leads to its page; one to
// a picture takes the picture along; one to a source or a folder of this repository leads to a page
// that shows it (source/core/tensor.h.html). A link to what does not exist stays as it is, and
// DeadLinks finds it. The same inputs give the same bytes.
#ifndef TESSERA_DOCS_SITE_SITE_H_
#define TESSERA_DOCS_SITE_SITE_H_

#include <map>
#include <string>

#include "docs/site/links.h"

namespace tessera::site {

struct SiteInputs {
  std::map<std::string, std::string> guides;     // "docs/cli.md": the HTML that it renders to
  std::map<std::string, std::string> reference;  // Doxygen's files (ReferenceOf); may be empty
  std::string manual;                            // `tessera manual`; may be empty
  // The repository: sources and pictures that guides link to, and in docs/site the frame
  // (page.html), site.css, site.js and navigation.txt, which says how the navigation is made.
  std::string root;
};

// Throws std::runtime_error for a file of docs/site that is missing, or a line of navigation.txt
// that names no page.
Files SiteOf(const SiteInputs& inputs);

}  // namespace tessera::site

#endif  // TESSERA_DOCS_SITE_SITE_H_
