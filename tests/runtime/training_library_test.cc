// libtessera_training as a file: what it shows and needs, how large it is, and a program in C that
// is built with it as a user's is.
#include <cstdio>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "core/file.h"
#include "gtest/gtest.h"
#include "tests/runtime/model_folders.h"

namespace tessera {
namespace {

constexpr char kShared[] = "runtime/libtessera_training.so";
constexpr char kArchive[] = "runtime/libtessera_training.a";
constexpr int64_t kMostBytes = 6'000'000;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

struct Ran {
  int status = -1;
  std::string output;  // standard output and error
};

Ran Execute(const std::string& command) {
  Ran ran;
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return ran;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) ran.output.append(buffer, n);
  ran.status = pclose(pipe);
  return ran;
}

std::set<std::string> LastWords(const std::string& command) {
  std::set<std::string> words;
  std::istringstream lines(Execute(command).output);
  for (std::string line; std::getline(lines, line);) {
    const std::string word = line.substr(line.rfind(' ') + 1);
    if (word.starts_with("tsr_")) words.insert(word.substr(0, word.find('@')));
  }
  return words;
}

std::set<std::string> Declared() {
  const std::regex function("\\b(tsr_[a-z_]+)\\(");
  std::set<std::string> names;
  for (const char* header : {"runtime/tessera.h", "runtime/tessera_training.h"}) {
    const std::string code = std::regex_replace(*ReadFile(header), std::regex("/\\*[^]*?\\*/"), "");
    for (std::sregex_iterator it(code.begin(), code.end(), function), end; it != end; ++it) {
      names.insert((*it)[1]);
    }
  }
  return names;
}

TEST(TrainingLibraryTest, ShowsWhatBothHeadersDeclare) {
  EXPECT_EQ(LastWords(std::string("nm -D --defined-only ") + kShared), Declared());
  EXPECT_EQ(LastWords(std::string("nm -g --defined-only ") + kArchive), Declared());
}

TEST(TrainingLibraryTest, NeedsTheCLibraryAloneAndIsSmall) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer adds its own library";
  const std::string needed =
      Execute(std::string("readelf -d ") + kShared + " | grep NEEDED").output;
  const std::regex entry("\\[([^\\]]*)\\]");
  for (std::sregex_iterator it(needed.begin(), needed.end(), entry), end; it != end; ++it) {
    const std::string name = (*it)[1];
    EXPECT_TRUE(name == "libc.so.6" || name == "libm.so.6" || name == "ld-linux-x86-64.so.2")
        << name;
  }
  const std::string stripped = testing::TempDir() + "/stripped.so";
  ASSERT_EQ(Execute(std::string("strip -o ") + stripped + " " + kShared).status, 0);
  EXPECT_LE(static_cast<int64_t>(std::filesystem::file_size(stripped)), kMostBytes);
}

TEST(TrainingLibraryTest, AProgramInCFineTunesAModel) {
  if (kSanitized) GTEST_SKIP() << "the compiler would need the sanitizer's flags";
  const std::string program = testing::TempDir() + "/fine_tune";
  const std::string written = testing::TempDir() + "/fine_tuned";
  const std::string here = std::filesystem::current_path().string();
  for (const std::string& library : {here + "/" + kShared + " -Wl,-rpath," + here + "/runtime",
                                     here + "/" + kArchive + " -lm -pthread"}) {
    const Ran compiled = Execute("cc -std=c99 -pedantic -Wall -Wextra -Werror -Iruntime -o " +
                                 program + " examples/embed/fine_tune.c " + library);
    ASSERT_EQ(compiled.status, 0) << compiled.output;
    const Ran ran = Execute(program + " " + SmallModelFolder("gpt2") + " " + written);
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_NE(ran.output.find("step 10: loss "), std::string::npos) << ran.output;
    EXPECT_NE(ran.output.find("written to " + written), std::string::npos) << ran.output;
  }
}

}  // namespace
}  // namespace tessera
