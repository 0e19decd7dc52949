// SPDX-License-Identifier: Apache-2.0
#include "tools/libraries/version_report.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_join.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace tessera::tools {
namespace {

using Row = std::array<std::string, 5>;

// Columns of equal width, each row behind two blanks.
std::string Table(const std::vector<Row>& rows) {
  std::array<size_t, 5> widths = {};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += "  " + row[i] + std::string(widths[i] - row[i].size(), ' ');
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string OrUnknown(std::string_view text) { return std::string(text.empty() ? "?" : text); }

nlohmann::ordered_json OrNull(std::string_view text) {
  if (text.empty()) return nullptr;
  return text;
}

}  // namespace

std::string_view KindName(const ListedLibrary& listed) {
  switch (listed.library == nullptr ? Library::Kind::kShared : listed.library->kind) {
    case Library::Kind::kShared:
      return "shared";
    case Library::Kind::kSources:
      return "built in";
    case Library::Kind::kLoaded:
      return "loaded when needed";
  }
  return "";
}

std::string VersionText(const BuildFacts& facts, const std::vector<ListedLibrary>& libraries) {
  std::vector<Row> rows;
  for (const ListedLibrary& listed : libraries) {
    rows.push_back({listed.name, OrUnknown(listed.version),
                    OrUnknown(listed.library == nullptr ? "" : listed.library->licence),
                    std::string(KindName(listed)), absl::StrJoin(listed.files, " ")});
  }
  return Concat("tessera ", facts.version, "\ncompiler: ", facts.compiler, "\nbuild: ", facts.build,
                "\nbuilt for: ", facts.built_for, "\ninstruction set: ", facts.instruction_set,
                " (the machine has ", facts.best_set, ")\nlibraries:\n", Table(rows));
}

nlohmann::ordered_json VersionJson(const BuildFacts& facts,
                                   const std::vector<ListedLibrary>& libraries) {
  nlohmann::ordered_json json = {{"version", facts.version},
                                 {"compiler", facts.compiler},
                                 {"build", facts.build},
                                 {"built_for", facts.built_for},
                                 {"instruction_set", facts.instruction_set},
                                 {"best_instruction_set", facts.best_set},
                                 {"libraries", nlohmann::ordered_json::array()}};
  for (const ListedLibrary& listed : libraries) {
    const Library none = {};
    const Library& library = listed.library == nullptr ? none : *listed.library;
    json["libraries"].push_back({{"name", listed.name},
                                 {"version", OrNull(listed.version)},
                                 {"licence", OrNull(library.licence)},
                                 {"kind", KindName(listed)},
                                 {"home", OrNull(library.home)},
                                 {"use", OrNull(library.use)},
                                 {"files", listed.files}});
  }
  return json;
}

}  // namespace tessera::tools
