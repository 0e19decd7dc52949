// SPDX-License-Identifier: Apache-2.0
// What the program needs to start, what it needs when it is started as a rank, and what it says of
// both.
#include <regex>
#include <set>

#include "nlohmann/json.hpp"
#include "tests/cli/cli_runs.h"
#include "tests/process/shell.h"

namespace tessera {
namespace {

class LibrariesTest : public CliRuns {
 protected:
  // libmpi.so.40 is found first where it is no library.
  Surroundings WithoutMpi() const {
    Write("libmpi.so.40", "");
    return {.environment = {{"LD_LIBRARY_PATH", root_}}};
  }
  Arguments Train() const {
    const std::string data = Write("data.txt", std::string(2000, 'a'));
    return {"train",        "gpt-tiny", "--tokenizer", "byte",      "--data",
            data,           "--out",    Path("run"),   "--seq-len", "8",
            "--batch-size", "1",        "--max-steps", "1"};
  }
};

// Shared libraries, those of libraries included.
std::string LibrariesOf(const std::string& program) {
  const ShellRun ran = RunShell("ldd " + program);
  EXPECT_EQ(ran.code, 0) << ran.output;
  return ran.output;
}

TEST_F(LibrariesTest, StartsWithoutMpi) {
  const std::string libraries = LibrariesOf(kProgram);
  EXPECT_NE(libraries.find("libc.so"), std::string::npos);
  for (const char* other : {"libmpi", "libopen-pal", "libopen-rte", "libcuda", "not found"}) {
    EXPECT_EQ(libraries.find(other), std::string::npos) << libraries;
  }
}

TEST_F(LibrariesTest, OneProcessNeedsNoMpi) {
  const Outcome outcome = Run(Train(), WithoutMpi());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(Path("run") + "/model/model.safetensors"));
}

TEST_F(LibrariesTest, ARankNamesTheLibraryThatIsMissing) {
  Surroundings around = WithoutMpi();
  around.environment.insert(around.environment.end(), {{"OMPI_COMM_WORLD_SIZE", "2"},
                                                       {"OMPI_COMM_WORLD_RANK", "1"},
                                                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                                       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  ExpectError(Train(), 2,
              "error: rank 1 of 2: Open MPI's library cannot be loaded (" + Path("libmpi.so.40") +
                  ": file too short); Debian's package libopenmpi3 has it",
              around);
}

std::set<std::string> FilesIn(const std::string& text, const std::regex& pattern) {
  std::set<std::string> files;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    files.insert(it->str(1));
  }
  return files;
}

// readelf and ldd read the program's file, so they do not repeat what the process says of itself.
TEST_F(LibrariesTest, EverySharedLibraryIsListedWithVersionAndLicence) {
  const ShellRun needed = RunShell(std::string("readelf -d ") + kProgram);
  ASSERT_EQ(needed.code, 0) << needed.output;
  std::set<std::string> files = FilesIn(needed.output, std::regex(R"(\(NEEDED\).*\[(.*)\])"));
  ASSERT_GT(files.size(), 5u) << needed.output;
  files.merge(FilesIn(LibrariesOf(kProgram), std::regex(R"((lib[^ /]*\.so[^ ]*) => )")));
  const std::string text = Output({"--version", "--verbose"});
  const auto json = nlohmann::json::parse(Output({"--version", "--json"}));
  std::set<std::string> listed;
  for (const auto& library : json["libraries"]) {
    listed.insert(library["files"].begin(), library["files"].end());
    EXPECT_NE(text.find("\n  " + library["name"].get<std::string>() + "  "), std::string::npos);
    // A sanitizer's is in no package.
    if (library["name"].get<std::string>().ends_with("san")) continue;
    EXPECT_TRUE(library["version"].is_string()) << library;
    EXPECT_TRUE(library["licence"].is_string()) << library;
  }
  for (const std::string& file : files) {
    EXPECT_TRUE(listed.contains(file)) << file;
    EXPECT_NE(text.find(file), std::string::npos) << file;
  }
}

TEST_F(LibrariesTest, TheBillOfMaterialsHasTheSameLibraries) {
  const Surroundings at = {.environment = {{"SOURCE_DATE_EPOCH", "1700000000"}}};
  const std::string text = Output({"--version", "--sbom"}, at);
  EXPECT_EQ(Output({"--version", "--sbom"}, at), text);
  const auto bill = nlohmann::json::parse(text);
  EXPECT_EQ(bill["creationInfo"]["created"], "2023-11-14T22:13:20Z");
  std::set<std::string> names;
  for (const auto& package : bill["packages"]) names.insert(package["name"]);
  std::set<std::string> expected = {"tessera"};
  const auto json = nlohmann::json::parse(Output({"--version", "--json"}));
  for (const auto& library : json["libraries"]) expected.insert(library["name"]);
  EXPECT_EQ(names, expected);
  ExpectError({"--version", "--sbom"}, 2, "SOURCE_DATE_EPOCH: 'today' is no time in seconds",
              {.environment = {{"SOURCE_DATE_EPOCH", "today"}}});
  ExpectError({"--verbose"}, 2, "--version");
}

}  // namespace
}  // namespace tessera
