// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "nlohmann/json.hpp"
#include "tools/libraries/library_table.h"
#include "tools/libraries/loaded_libraries.h"
#include "tools/libraries/notice.h"
#include "tools/libraries/spdx.h"
#include "tools/libraries/version_report.h"

namespace tessera::tools {
namespace {

const ListedLibrary* Find(const std::vector<ListedLibrary>& listed, std::string_view name) {
  const auto found = std::find_if(listed.begin(), listed.end(), [&](const ListedLibrary& library) {
    return library.name == name;
  });
  return found == listed.end() ? nullptr : &*found;
}

TEST(LibraryTableTest, HasWhatThirdPartyHas) {
  const auto build = ReadFile("third_party/BUILD.bazel");
  ASSERT_TRUE(build.ok());
  std::set<std::string> targets = {"oniguruma"};  // a folder of its own
  const std::regex name(R"re([( ]name = "([a-z0-9_]+)")re");
  for (std::sregex_iterator it(build->begin(), build->end(), name), end; it != end; ++it) {
    targets.insert(it->str(1));
  }
  // Of the tests, and settings.
  for (const char* other : {"gtest", "benchmark", "with_cuda", "with_cuda_emulation"}) {
    EXPECT_EQ(targets.erase(other), 1u) << other;
  }
  ASSERT_TRUE(targets.contains("zlib"));
  std::set<std::string> listed;
  for (const Library& library : LibraryTable()) {
    if (!library.target.empty()) listed.emplace(library.target);
  }
  EXPECT_EQ(listed, targets);
}

TEST(LibraryTableTest, SaysOfEachWhatItIs) {
  const std::regex licence(R"([A-Za-z0-9.-]+( (AND|OR|WITH) [A-Za-z0-9.-]+)*)");
  std::string before;
  for (const Library& library : LibraryTable()) {
    std::string lower(library.name);
    std::transform(lower.begin(), lower.end(), lower.begin(), ::tolower);
    EXPECT_LT(before, lower);
    before = lower;
    EXPECT_TRUE(std::regex_match(std::string(library.licence), licence)) << library.licence;
    EXPECT_TRUE(library.home.starts_with("http")) << library.name;
    EXPECT_FALSE(library.use.empty()) << library.name;
    // Those of libxml2 say it when they are loaded.
    if (!library.with_cuda && library.name != "ICU" && library.name != "liblzma") {
      EXPECT_TRUE(std::regex_search(library.version, std::regex(R"(^[0-9]+\.[0-9])")))
          << library.name << " '" << library.version << "'";
    }
    if (library.licence.starts_with("LicenseRef-")) {
      EXPECT_TRUE(std::any_of(OwnLicences().begin(), OwnLicences().end(),
                              [&](const OwnLicence& own) { return own.id == library.licence; }))
          << library.licence;
    }
  }
}

TEST(LoadedLibrariesTest, EveryFileHasOneLibrary) {
  const std::vector<std::string> files = LoadedFiles();
  ASSERT_NE(std::find(files.begin(), files.end(), "libc.so.6"), files.end());
  std::multiset<std::string> listed;
  for (const ListedLibrary& library : ListLibraries()) {
    listed.insert(library.files.begin(), library.files.end());
  }
  EXPECT_EQ(listed, std::multiset<std::string>(files.begin(), files.end()));
}

TEST(LoadedLibrariesTest, AskTheLoadedLibraryForItsVersion) {
  const std::vector<ListedLibrary> listed = ListLibraries();
  const ListedLibrary* const libc = Find(listed, "glibc");
  ASSERT_NE(libc, nullptr);
  EXPECT_TRUE(std::regex_match(libc->version, std::regex(R"(\d+\.\d+)"))) << libc->version;
  EXPECT_EQ(VersionInFileName("libicuuc.so.72.1"), "72.1");
  EXPECT_EQ(VersionInFileName("libtsan.so"), "");
}

TEST(LoadedLibrariesTest, AFileThatTheTableLacksIsListed) {
  const std::vector<ListedLibrary> listed =
      ListLibraries({"libc.so.6", "libjemalloc.so.2", "libz.so.1"});
  const ListedLibrary* const unknown = Find(listed, "libjemalloc");
  ASSERT_NE(unknown, nullptr);
  EXPECT_EQ(unknown->library, nullptr);
  EXPECT_EQ(unknown->files, std::vector<std::string>{"libjemalloc.so.2"});
  EXPECT_EQ(Find(listed, "zlib")->files, std::vector<std::string>{"libz.so.1"});
  // What only libxml2 brings is not there.
  EXPECT_EQ(Find(listed, "ICU"), nullptr);
}

const BuildFacts kFacts = {.version = "1.2.3",
                           .compiler = "g++ 12",
                           .build = "optimised",
                           .built_for = "CPU",
                           .instruction_set = "avx2",
                           .best_set = "avx512"};

TEST(VersionReportTest, TextAndJsonHaveTheSame) {
  const std::vector<ListedLibrary> listed = ListLibraries({"libjemalloc.so.2", "libz.so.1"});
  const std::string text = VersionText(kFacts, listed);
  const nlohmann::ordered_json json = VersionJson(kFacts, listed);
  EXPECT_TRUE(text.starts_with("tessera 1.2.3\ncompiler: g++ 12\n")) << text;
  ASSERT_EQ(json["libraries"].size(), listed.size());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6 + static_cast<int>(listed.size()));
  for (const auto& library : json["libraries"]) {
    EXPECT_NE(text.find("\n  " + library["name"].get<std::string>() + " "), std::string::npos);
  }
  EXPECT_TRUE(json["libraries"].back()["licence"].is_null());
  EXPECT_EQ(json["libraries"].back()["files"][0], "libjemalloc.so.2");
}

TEST(SpdxTest, HasWhatTheFormAsksFor) {
  const std::vector<ListedLibrary> listed = ListLibraries({"liblzma.so.5", "libjemalloc.so.2"});
  const auto document = SpdxDocument("1.2.3", 1'700'000'000, listed);
  EXPECT_EQ(document.dump(), SpdxDocument("1.2.3", 1'700'000'000, listed).dump());
  EXPECT_NE(document["documentNamespace"],
            SpdxDocument("1.2.3", 1'700'000'001, listed)["documentNamespace"]);
  EXPECT_EQ(document["creationInfo"]["created"], "2023-11-14T22:13:20Z");
  std::set<std::string> ids;
  for (const auto& package : document["packages"]) {
    const std::string id = package["SPDXID"];
    EXPECT_TRUE(std::regex_match(id, std::regex("SPDXRef-[A-Za-z0-9.-]+"))) << id;
    EXPECT_TRUE(ids.insert(id).second) << id;
    for (const char* key : {"name", "downloadLocation", "licenseConcluded", "licenseDeclared",
                            "copyrightText", "filesAnalyzed"}) {
      EXPECT_TRUE(package.contains(key)) << id << " " << key;
    }
  }
  EXPECT_EQ(ids.size(), listed.size() + 1);
  std::set<std::string> related;
  for (const auto& relationship : document["relationships"]) {
    const std::string type = relationship["relationshipType"];
    const bool optional = type == "OPTIONAL_DEPENDENCY_OF";
    EXPECT_TRUE(optional || type == "DEPENDS_ON" || type == "DESCRIBES") << type;
    related.insert(relationship[optional ? "spdxElementId" : "relatedSpdxElement"]);
  }
  EXPECT_EQ(related, ids);
  ASSERT_EQ(document["hasExtractedLicensingInfos"].size(), 1u);
  EXPECT_EQ(document["hasExtractedLicensingInfos"][0]["licenseId"],
            "LicenseRef-liblzma-public-domain");
}

TEST(SpdxTest, IsCreatedWhenSourceDateEpochSays) {
  EXPECT_EQ(*CreationTime(nullptr, 5), 5);
  EXPECT_EQ(*CreationTime("1700000000", 5), 1'700'000'000);
  for (const char* wrong : {"", "today", "-1", "1.5", "999999999999999"}) {
    EXPECT_EQ(Message(CreationTime(wrong, 5).status()),
              Concat("SOURCE_DATE_EPOCH: '", wrong, "' is no time in seconds since 1970"));
  }
}

TEST(NoticeTest, ListsTheTable) {
  const auto notice = ReadFile("NOTICE");
  ASSERT_TRUE(notice.ok());
  const auto text = WithLibraryList(*notice);
  ASSERT_TRUE(text.ok()) << Message(text.status());
  EXPECT_TRUE(*text == *notice)
      << "NOTICE is out of date: bazel run //tools/libraries:write_notice";
  EXPECT_EQ(Message(WithLibraryList("Tessera\n").status()), "NOTICE has no list of libraries");
}

}  // namespace
}  // namespace tessera::tools
