// SPDX-License-Identifier: Apache-2.0
// Programs that were built with the last release's headers run with this library: what the headers
// declare now is compared, by abidiff, with the description of that release
// (docs/compatibility.md).
#include <filesystem>
#include <regex>
#include <string>

#include "base/file.h"
#include "gtest/gtest.h"
#include "tests/process/shell.h"

namespace tessera {
namespace {

constexpr char kRelease[] = "tests/runtime/tessera_0.8.0.abi";

class InterfaceTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/interface";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    for (const char* header : {"tessera.h", "tessera_training.h"}) {
      std::filesystem::copy(std::filesystem::canonical(std::string("runtime/") + header), folder_);
    }
  }

  void Replace(const std::string& header, const std::string& what, const std::string& by) {
    const std::string path = folder_ + "/" + header;
    std::string text = *ReadFile(path);
    const size_t at = text.find(what);
    ASSERT_NE(at, std::string::npos) << what;
    std::filesystem::remove(path);  // it is read-only
    ASSERT_TRUE(WriteFileAtomically(path, text.replace(at, what.size(), by)).ok());
  }

  // What abidiff says of the headers in the folder. --leaf-changes-only: each change once.
  std::string Report() {
    const std::string stub = folder_ + "/stub";
    const ShellRun built = RunShell("python3 tests/runtime/interface_stub.py " + folder_ +
                                    "/tessera_training.h " + folder_ + " " + stub + ".c && cc -w " +
                                    "-g -fPIC -shared " + stub + ".c -o " + stub + ".so");
    EXPECT_EQ(built.code, 0) << built.output;
    const ShellRun ran =
        RunShell(std::string("abidiff --no-architecture --no-added-syms --leaf-changes-only ") +
                 kRelease + " " + stub + ".so");
    EXPECT_EQ(ran.code & 3, 0) << "abidiff (package abigail-tools) did not run: " << ran.output;
    return ran.output;
  }

  std::string folder_;
};

// Structs may grow at their end, and functions may be added.
bool IsCompatible(const std::string& report) {
  static const std::regex change(
      R"(\[[CD]\]|data member (changes|deletion)|size hasn't changed|entity changed)");
  return !std::regex_search(report, change);
}

TEST_F(InterfaceTest, IsThatOfTheLastRelease) {
  const std::string report = Report();
  EXPECT_TRUE(IsCompatible(report)) << report;
}

TEST_F(InterfaceTest, MayGrow) {
  Replace("tessera.h", "} tsr_memory_info;", "  uint64_t more;\n} tsr_memory_info;");
  Replace("tessera.h", "const char* tsr_version(void);",
          "const char* tsr_version(void);\nint tsr_more(void);");
  const std::string report = Report();
  EXPECT_NE(report.find("tsr_memory_info"), std::string::npos) << report;
  EXPECT_TRUE(IsCompatible(report)) << report;
}

TEST_F(InterfaceTest, LosesNoFunction) {
  Replace("tessera.h", "const char* tsr_version(void);", "");
  EXPECT_FALSE(IsCompatible(Report()));
}

TEST_F(InterfaceTest, ChangesNoParameter) {
  Replace("tessera_training.h", "double learning_rate);", "float learning_rate);");
  EXPECT_FALSE(IsCompatible(Report()));
}

TEST_F(InterfaceTest, ChangesNoMember) {
  Replace("tessera.h", "uint64_t bytes;", "int64_t bytes;");
  EXPECT_FALSE(IsCompatible(Report()));
}

TEST_F(InterfaceTest, GrowsAtTheEndAlone) {
  Replace("tessera.h", "uint64_t bytes;", "uint64_t before;\n  uint64_t bytes;");
  EXPECT_FALSE(IsCompatible(Report()));
}

TEST_F(InterfaceTest, LosesNoMember) {
  Replace("tessera_training.h", "const char* adapter;", "");
  EXPECT_FALSE(IsCompatible(Report()));
}

}  // namespace
}  // namespace tessera
