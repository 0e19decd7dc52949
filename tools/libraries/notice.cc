// SPDX-License-Identifier: Apache-2.0
#include "tools/libraries/notice.h"

#include <algorithm>
#include <vector>

#include "tools/libraries/library_table.h"

namespace tessera::tools {
namespace {

std::string HowItIsHad(const Library& library) {
  std::string text(library.use);
  if (library.kind == Library::Kind::kLoaded) text += " (loaded when needed)";
  if (library.with_cuda) text += " (--config=cuda)";
  return text;
}

std::string List() {
  size_t name_width = 0, licence_width = 0;
  for (const Library& library : LibraryTable()) {
    name_width = std::max(name_width, library.name.size());
    licence_width = std::max(licence_width, library.licence.size());
  }
  std::string text;
  for (const Library& library : LibraryTable()) {
    text += Concat("  ", library.name, std::string(name_width + 2 - library.name.size(), ' '),
                   library.licence, std::string(licence_width + 2 - library.licence.size(), ' '),
                   HowItIsHad(library), "\n");
  }
  return text;
}

}  // namespace

StatusOr<std::string> WithLibraryList(std::string_view notice) {
  const size_t begin = notice.find("\n  ");
  if (begin == std::string_view::npos) return NotFound("NOTICE has no list of libraries");
  size_t end = begin + 1;
  while (notice.substr(end).starts_with("  ")) {
    end = std::min(notice.find('\n', end), notice.size() - 1) + 1;
  }
  return Concat(notice.substr(0, begin + 1), List(), notice.substr(end));
}

}  // namespace tessera::tools
