// SPDX-License-Identifier: Apache-2.0
// The inference closure, //runtime:inference: what it is built from, what a program of it alone is
// linked with, and that such a program computes what one with everything else in it does.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/inference/inference_report.h"
#include "tests/process/shell.h"

namespace tessera {
namespace {

const std::string kProgram = "tests/inference/inference_program";

// What a shell command prints.
std::string OutputOf(const std::string& command) {
  const ShellRun ran = RunShell(command);
  EXPECT_EQ(ran.code, 0) << command << "\n" << ran.output;
  return ran.output;
}

TEST(InferenceTest, ComputesWhatTheWholeBuildDoes) {
  const std::string folder = testing::TempDir() + "/inference_";
  for (const char* name : {"alone", "whole"}) std::filesystem::remove_all(folder + name);
  const StatusOr<std::string> whole = InferenceReport(folder + "whole");
  ASSERT_TRUE(whole.ok()) << Message(whole.status());
  EXPECT_EQ(OutputOf(kProgram + " " + folder + "alone"), *whole);
  std::set<std::string> reported;
  for (const std::string& line : Lines(*whole)) reported.insert(line.substr(0, line.find(' ')));
  EXPECT_EQ(reported, (std::set<std::string>{"bert", "generated", "glm", "gpt2", "t5", "vit"}));
}

// Everything that is compiled for it.
TEST(InferenceTest, IsBuiltFromTheFloorsBelow) {
  const StatusOr<std::string> list = ReadFile("tests/inference/inference_dependencies.txt");
  ASSERT_TRUE(list.ok()) << Message(list.status());
  const std::regex allowed(
      "//runtime:inference"
      "|//(base|core|autograd|ops|nn|models)(/[a-z0-9_/]+)?:[a-z0-9_]+"
      "|//data/(tokenizer:tokenizer|image:image|chat:format)"
      "|//third_party(/json)?:json"
      "|//third_party/oniguruma:[a-z_]+"
      "|@system_cuda//:[a-z]+");
  const std::vector<std::string> targets = Lines(*list);
  EXPECT_GT(targets.size(), 20u);
  for (const std::string& target : targets) {
    EXPECT_TRUE(std::regex_match(target, allowed)) << target;
  }
}

// Abseil is for programs; what others embed has none of it, the library that trains included.
TEST(InferenceTest, TheTrainingLibraryHasNoAbseil) {
  const StatusOr<std::string> list = ReadFile("tests/inference/training_dependencies.txt");
  ASSERT_TRUE(list.ok()) << Message(list.status());
  EXPECT_NE(list->find("//train:engine\n"), std::string::npos);
  EXPECT_EQ(list->find("//third_party:absl\n"), std::string::npos);
}

// Shared libraries, those of libraries included. The last line is what sanitizers bring.
TEST(InferenceTest, IsLinkedWithLittle) {
  const std::regex allowed(
      "linux-vdso|ld-linux-(x86-64|aarch64)|libc|libm|libstdc\\+\\+|libgcc_s"
      "|libasan|libubsan|libtsan|libdl|librt|libpthread");
  std::set<std::string> libraries;
  for (const std::string& line : Lines(OutputOf("ldd " + kProgram))) {
    const size_t begin = line.find_first_not_of("\t ");
    const std::string path = line.substr(begin, line.find(' ', begin) - begin);
    const std::string name = std::filesystem::path(path).filename().string();
    libraries.insert(name.substr(0, name.find(".so")));
  }
  EXPECT_TRUE(libraries.contains("libc"));
  for (const std::string& library : libraries) {
    EXPECT_TRUE(std::regex_match(library, allowed)) << library;
  }
}

// Nor does it hold a static copy, or a part of ours that stands higher.
TEST(InferenceTest, HoldsNoCodeOfOthers) {
  const std::string symbols = OutputOf("nm -C " + kProgram);
  EXPECT_NE(symbols.find(" tessera::models::Generate("), std::string::npos);
  for (const char* other :
       {"tessera::optim::", "tessera::dist::", "tessera::train::", "tessera::tools::", " MPI_",
        " ompi_", "sentencepiece::", "google::protobuf::", " jpeg_", " png_", " gzread", " inflate",
        "CLI::", "testing::"}) {
    const size_t at = symbols.find(other);
    EXPECT_EQ(at, std::string::npos) << symbols.substr(at, symbols.find('\n', at) - at);
  }
}

}  // namespace
}  // namespace tessera
