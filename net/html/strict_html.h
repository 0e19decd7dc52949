// SPDX-License-Identifier: Apache-2.0
// A strict reader of HTML for tests: stricter than a browser, which forgives.
//
//   const auto elements = ParseStrictly(page);
//   ASSERT_TRUE(elements.ok()) << Message(elements.status());
//
// Every element but void ones (meta, link, input) is closed, in order; attributes are quoted
// and not repeated; "<" and "&" begin tags and the five entities only; ids are unique. The content
// of <style> and <script> is text.
#ifndef TESSERA_NET_HTML_STRICT_HTML_H_
#define TESSERA_NET_HTML_STRICT_HTML_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera::net {

struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;  // as they stand, entities and all
  std::string text;                               // directly within, likewise
};

// The elements in the order in which they begin.
StatusOr<std::vector<Element>> ParseStrictly(std::string_view html);

// Those with the name, and with the class where one is given.
std::vector<Element> Find(const std::vector<Element>& elements, std::string_view name,
                          std::string_view css_class = "");

}  // namespace tessera::net

#endif  // TESSERA_NET_HTML_STRICT_HTML_H_
