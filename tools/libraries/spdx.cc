// SPDX-License-Identifier: Apache-2.0
#include "tools/libraries/spdx.h"

#include <charconv>
#include <cstdio>
#include <ctime>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "base/checksum.h"
#include "nlohmann/json.hpp"
#include "tools/libraries/version_report.h"

namespace tessera::tools {
namespace {

using nlohmann::ordered_json;

constexpr char kNoAssertion[] = "NOASSERTION";
constexpr char kDocument[] = "SPDXRef-DOCUMENT";
constexpr char kTessera[] = "SPDXRef-Package-Tessera";
// The year 9999 ends here; SPDX's form has four digits of it.
constexpr int64_t kLatest = 253'402'300'799;

std::string_view OrNoAssertion(std::string_view text) { return text.empty() ? kNoAssertion : text; }

// "2023-11-14T22:13:20Z".
std::string Utc(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts = {};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// Names have letters, digits, dots and dashes alone.
std::string IdOf(std::string_view name) {
  std::string id = "SPDXRef-Library-";
  for (const char c : name) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.') {
      id += c;
    } else if (id.back() != '-') {
      id += '-';
    }
  }
  while (id.back() == '-') id.pop_back();
  return id;
}

ordered_json Package(std::string_view id, std::string_view name, std::string_view version,
                     std::string_view licence) {
  ordered_json package = {{"SPDXID", id}, {"name", name}};
  if (!version.empty()) package["versionInfo"] = version;
  package["downloadLocation"] = kNoAssertion;
  package["filesAnalyzed"] = false;
  package["licenseConcluded"] = OrNoAssertion(licence);
  package["licenseDeclared"] = OrNoAssertion(licence);
  package["copyrightText"] = kNoAssertion;
  return package;
}

ordered_json TesseraPackage(const std::string& version) {
  ordered_json package = Package(kTessera, "tessera", version, "Apache-2.0");
  package["copyrightText"] = "Copyright The Tessera Authors";
  package["primaryPackagePurpose"] = "APPLICATION";
  return package;
}

ordered_json LibraryPackage(const ListedLibrary& listed) {
  const bool known = listed.library != nullptr;
  ordered_json package = Package(IdOf(listed.name), listed.name, listed.version,
                                 known ? listed.library->licence : std::string_view());
  package["primaryPackagePurpose"] = "LIBRARY";
  if (known) package["homepage"] = listed.library->home;
  package["sourceInfo"] =
      Concat(KindName(listed), listed.files.empty() ? "" : ": ", absl::StrJoin(listed.files, ", "));
  return package;
}

ordered_json Relationship(std::string_view element, std::string_view type,
                          std::string_view related) {
  return {{"spdxElementId", element}, {"relationshipType", type}, {"relatedSpdxElement", related}};
}

ordered_json RelationshipOf(const ListedLibrary& listed) {
  const std::string id = IdOf(listed.name);
  const bool optional = listed.library != nullptr && listed.library->kind == Library::Kind::kLoaded;
  return optional ? Relationship(id, "OPTIONAL_DEPENDENCY_OF", kTessera)
                  : Relationship(kTessera, "DEPENDS_ON", id);
}

// Of the licences that are named and not SPDX's own.
ordered_json ExtractedLicences(const std::vector<ListedLibrary>& libraries) {
  ordered_json licences = ordered_json::array();
  for (const OwnLicence& licence : OwnLicences()) {
    for (const ListedLibrary& listed : libraries) {
      if (listed.library == nullptr || listed.library->licence != licence.id) continue;
      licences.push_back(
          {{"licenseId", licence.id}, {"name", licence.name}, {"extractedText", licence.text}});
      break;
    }
  }
  return licences;
}

}  // namespace

ordered_json SpdxDocument(const std::string& version, int64_t created,
                          const std::vector<ListedLibrary>& libraries) {
  ordered_json packages = ordered_json::array({TesseraPackage(version)});
  ordered_json relationships =
      ordered_json::array({Relationship(kDocument, "DESCRIBES", kTessera)});
  for (const ListedLibrary& listed : libraries) {
    packages.push_back(LibraryPackage(listed));
    relationships.push_back(RelationshipOf(listed));
  }
  const std::string name = "tessera-" + version;
  const std::string time = Utc(created);
  // A namespace belongs to one content alone.
  const std::string content = time + packages.dump();
  char checksum[16];
  std::snprintf(checksum, sizeof(checksum), "%08x", Crc32c(content.data(), content.size()));
  return {{"spdxVersion", "SPDX-2.3"},
          {"dataLicense", "CC0-1.0"},
          {"SPDXID", kDocument},
          {"name", name},
          {"documentNamespace", Concat("https://spdx.org/spdxdocs/", name, "-", checksum)},
          {"creationInfo", {{"created", time}, {"creators", {"Tool: " + name}}}},
          {"packages", packages},
          {"relationships", relationships},
          {"hasExtractedLicensingInfos", ExtractedLicences(libraries)}};
}

StatusOr<int64_t> CreationTime(const char* source_date_epoch, int64_t now) {
  if (source_date_epoch == nullptr) return now;
  const std::string_view text = source_date_epoch;
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0 ||
      seconds > kLatest) {
    return InvalidArgument("SOURCE_DATE_EPOCH: '", text, "' is no time in seconds since 1970");
  }
  return seconds;
}

}  // namespace tessera::tools
