// SPDX-License-Identifier: Apache-2.0
// libtessera_training as a file: what it shows and needs, how large it is, and a program in C that
// is built with it as a user's is.
#include <filesystem>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "tests/process/shell.h"
#include "tests/runtime/library_file.h"
#include "tests/runtime/model_folders.h"

namespace tessera {
namespace {

constexpr char kShared[] = "runtime/libtessera_training.so";
constexpr char kArchive[] = "runtime/libtessera_training.a";
constexpr int64_t kMostBytes = 6'000'000;

const std::set<std::string> kTheCLibrary = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2",
                                            "ld-linux-aarch64.so.1"};

TEST(TrainingLibraryTest, ShowsWhatBothHeadersDeclare) {
  const std::set<std::string> declared =
      DeclaredFunctions({"runtime/tessera.h", "runtime/tessera_training.h"});
  EXPECT_EQ(SharedSymbols(kShared), declared);
  EXPECT_EQ(ArchiveSymbols(kArchive), declared);
}

TEST(TrainingLibraryTest, NeedsTheCLibraryAloneAndIsSmall) {
  if (IsInstrumented()) GTEST_SKIP() << "a sanitizer adds its own library";
  EXPECT_TRUE(NeededLibraries(kShared).contains("libc.so.6"));
  for (const std::string& name : NeededLibraries(kShared)) {
    EXPECT_TRUE(kTheCLibrary.contains(name)) << name;
  }
  EXPECT_LE(StrippedBytes(kShared), kMostBytes);
}

TEST(TrainingLibraryTest, AProgramInCFineTunesAModel) {
  if (IsInstrumented()) GTEST_SKIP() << "the compiler would need the sanitizer's flags";
  const std::string program = testing::TempDir() + "/fine_tune";
  const std::string written = testing::TempDir() + "/fine_tuned";
  const std::string here = std::filesystem::current_path().string();
  for (const std::string& library : {here + "/" + kShared + " -Wl,-rpath," + here + "/runtime",
                                     here + "/" + kArchive + " -lm -pthread"}) {
    const ShellRun compiled = RunShell("cc -std=c99 -pedantic -Wall -Wextra -Werror -Iruntime -o " +
                                       program + " examples/embed/fine_tune.c " + library);
    ASSERT_EQ(compiled.code, 0) << compiled.output;
    const ShellRun ran = RunShell(program + " " + SmallModelFolder("gpt2") + " " + written);
    EXPECT_EQ(ran.code, 0) << ran.output;
    EXPECT_NE(ran.output.find("step 10: loss "), std::string::npos) << ran.output;
    EXPECT_NE(ran.output.find("written to " + written), std::string::npos) << ran.output;
  }
}

}  // namespace
}  // namespace tessera
