// SPDX-License-Identifier: Apache-2.0
// Fails when an operation has no gradient check or no CPU kernel, when a layer has no gradient
// check, and when docs/operations.md names what its header does not have. It reads the sources of
// ops/ and nn/ where they lie, so that a new folder is seen without being listed here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/ops/cpp_source.h"

namespace tessera::coverage {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

// Operations without a gradient check, and why.
const std::map<std::string, std::string>& ExemptOperations() {
  static const std::map<std::string, std::string> exempt = {
      {"ArgMax", "its result is an index: no gradient"},
      {"ArgMin", "its result is an index: no gradient"},
      {"ArgSort", "its result is indices: no gradient"},
      {"BlendPlanes", "what AvgPool2d and Interpolate are made of, which are checked"},
      {"Compare", "its result is bool: no gradient"},
      {"ConvForward", "off the tape, for Conv2d, which is checked"},
      {"AlignedProduct", "off the tape, for Linear, which is checked"},
      {"ConvInputGrad", "off the tape, for Conv2d, which is checked"},
      {"ConvWeightGrad", "off the tape, for Conv2d, which is checked"},
      {"Dequantize", "of integers: no gradient"},
      {"Detach", "cuts the gradient, which is its purpose"},
      {"ForProduct", "Cast, where autocast asks for it; Cast is checked"},
      {"ForSum", "Cast, where autocast asks for it; Cast is checked"},
      {"GeluOfProduct", "off the tape, for LinearGelu, which is checked"},
      {"LinearWeightGradient", "off the tape, for Linear, which is checked"},
      {"MaskedFill", "Where of a constant; Where is checked"},
      {"Multinomial", "draws indices: no gradient"},
      {"OneHot", "a function of indices: no gradient"},
      {"Product", "off the tape, for Matmul, which is checked"},
      {"ProductTimesGeluGrad", "off the tape, for LinearOfGelu, which is checked"},
      {"QuantizedEmbedding", "of integers: no gradient"},
      {"QuantizedLinear",
       "rounds its input, so that differences say nothing; its test has the dense product's "
       "gradient"},
      {"Rand", "a function of a key: no gradient"},
      {"RandInt", "a function of a key: no gradient"},
      {"Randn", "a function of a key: no gradient"},
      {"SumOfLeaves", "off the tape, of gradients and sums that are checked"},
      {"ToDevice", "copies; ops/cast/cast_test.cc holds that the tape goes on behind it"},
      {"Transposed", "off the tape, for Matmul, which is checked"},
      {"TreeProduct", "off the tape, for Linear, which is checked"},
      {"UnfoldedForward", "off the tape, for Conv2d on the GPU, which is checked"},
      {"UnfoldedInputGrad", "off the tape, for Conv2d on the GPU, which is checked"},
      {"UnfoldedWeightGrad", "off the tape, for Conv2d on the GPU, which is checked"},
  };
  return exempt;
}

// Kernels that the CPU need not have, and why.
const std::map<std::string, std::string>& ExemptKernels() {
  static const std::map<std::string, std::string> exempt = {
      {"fold_kernel", "the CPU's convolution gathers what it multiplies"},
      {"fused_matmul_kernel", "the operation takes the steps one by one where there is none"},
      {"unfold_kernel", "the CPU's convolution gathers what it multiplies"},
  };
  return exempt;
}

// Layers without a gradient check, and why.
const std::map<std::string, std::string>& ExemptLayers() {
  static const std::map<std::string, std::string> exempt = {
      {"Norm", "what LayerNorm and RmsNorm, which are checked, have in common"},
  };
  return exempt;
}

// What compares gradients with something independent: finite differences, except CheckCollective,
// which holds linear maps to their adjoint, given by hand, on several ranks.
const Names kHarnesses = {"CheckOp", "GradCheck", "CheckGradients", "CheckCollective"};

// The folder that holds the repository: runfiles are links into it.
fs::path SourceRoot() {
  const fs::path here = fs::path(std::getenv("TEST_SRCDIR")) / std::getenv("TEST_WORKSPACE") /
                        "tests/ops/coverage_test.cc";
  return fs::canonical(here).parent_path().parent_path().parent_path();
}

std::string ReadText(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string ReadSource(const fs::path& path) { return WithoutCommentsAndStrings(ReadText(path)); }

std::vector<fs::path> FilesIn(const fs::path& folder, const std::string& ending) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().ends_with(ending)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The folders of operations. ops/testing is the harness.
std::vector<fs::path> OperationFolders() {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(SourceRoot() / "ops")) {
    if (!entry.is_directory() || entry.path().filename() == "testing") continue;
    if (!FilesIn(entry.path(), ".h").empty()) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

// Functions of a header that give a tensor, several, or a struct that holds some.
Names OperationsOf(const std::string& header) {
  static const std::regex kFunction(
      R"(^(?:inline )?(Tensor|Tensors|std::vector<Tensor>|[A-Z]\w*) (\w+)\()");
  static const std::regex kResult(R"(^struct (\w+) \{[^;]*\bTensor \w+;)");
  Names results = {"Tensor", "Tensors", "std::vector<Tensor>"};
  Names operations;
  std::smatch match;
  for (const std::string& chunk : TopLevelChunks(header)) {
    if (std::regex_search(chunk, match, kResult)) results.insert(match[1]);
    if (std::regex_search(chunk, match, kFunction) && results.count(match[1]) > 0) {
      operations.insert(match[2]);
    }
  }
  return operations;
}

// The name of the function or suite that a chunk of a test file defines.
std::string SuiteOf(const std::string& chunk) {
  static const std::regex kSuite(R"(^(?:TEST_P|TEST_F|TEST)\((\w+),)");
  std::smatch match;
  return std::regex_search(chunk, match, kSuite) ? match[1].str() : "";
}
std::string FunctionOf(const std::string& chunk) {
  static const std::regex kName(R"(^[\w:<>&*, ]+? (\w+)\()");
  std::smatch match;
  return std::regex_search(chunk, match, kName) ? match[1].str() : "";
}

// `harnesses` and the functions of this file that call one.
Names WithLocalHarnesses(const std::vector<std::string>& chunks, Names harnesses) {
  for (const std::string& chunk : chunks) {
    const std::string name = FunctionOf(chunk);
    if (name.empty() || !SuiteOf(chunk).empty()) continue;
    for (const std::string& harness : Names(harnesses)) {
      if (harness != name && !ArgumentsOfCalls(chunk, harness).empty()) harnesses.insert(name);
    }
  }
  return harnesses;
}

// What one call of a harness exercises: the words of its arguments, but for the reference, and of
// the local variables among them.
Names Exercised(const std::string& arguments, const std::string& chunk) {
  if (arguments.find(".check_gradient = false") != std::string::npos) return {};
  Names words = Identifiers(WithoutField(arguments, "reference"));
  for (const std::string& word : Names(words)) {
    words.merge(Identifiers(InitialiserOf(chunk, word)));
  }
  return words;
}

// The words that stand where a test file checks gradients.
Names GradientChecked(const fs::path& test) {
  const std::vector<std::string> chunks = TopLevelChunks(ReadSource(test));
  const Names harnesses = WithLocalHarnesses(chunks, kHarnesses);
  Names words;
  Names checking_suites;
  for (const std::string& chunk : chunks) {
    for (const std::string& harness : harnesses) {
      for (const std::string& arguments : ArgumentsOfCalls(chunk, harness)) {
        words.merge(Exercised(arguments, chunk));
        checking_suites.insert(SuiteOf(chunk));
      }
    }
  }
  // The parameters of a suite that checks.
  for (const std::string& chunk : chunks) {
    for (const std::string& arguments : ArgumentsOfCalls(chunk, "INSTANTIATE_TEST_SUITE_P")) {
      const Names used = Identifiers(arguments);
      const auto checks = [&](const std::string& s) { return !s.empty() && used.count(s) > 0; };
      if (std::any_of(checking_suites.begin(), checking_suites.end(), checks)) {
        words.insert(used.begin(), used.end());
      }
    }
  }
  return words;
}

bool IsInterface(const fs::path& header) {
  static const std::regex kInternal(R"((_kernel|_rows|_tile|_simd|_cpu|_float64)\.h$)");
  return !std::regex_search(header.filename().string(), kInternal);
}

TEST(CoverageTest, EveryOperationHasAGradientCheck) {
  Names found;
  for (const fs::path& folder : OperationFolders()) {
    Names checked;
    for (const fs::path& test : FilesIn(folder, "_test.cc")) checked.merge(GradientChecked(test));
    for (const fs::path& header : FilesIn(folder, ".h")) {
      if (!IsInterface(header)) continue;
      for (const std::string& operation : OperationsOf(ReadSource(header))) {
        found.insert(operation);
        if (ExemptOperations().count(operation) > 0) continue;
        EXPECT_TRUE(checked.count(operation) > 0)
            << "ops/" << folder.filename().string() << ": " << operation
            << " stands in no CheckOp of a *_test.cc there";
      }
    }
  }
  EXPECT_GT(found.size(), 55u) << "operations are no longer found";
  for (const auto& [name, why] : ExemptOperations()) {
    EXPECT_EQ(found.count(name), 1u) << name << " is exempt (" << why << ") but does not exist";
  }
}

TEST(CoverageTest, EveryOperationIsInOpsAll) {
  const std::string build = ReadText(SourceRoot() / "ops/BUILD.bazel");
  for (const fs::path& folder : OperationFolders()) {
    const std::string label = "\"//ops/" + folder.filename().string() + "\"";
    EXPECT_NE(build.find(label), std::string::npos) << label << " is missing in //ops:all";
  }
}

TEST(CoverageTest, EveryKernelTableHasACpuKernel) {
  static const std::regex kTable(R"(KernelTable<\w+> (\w+)\{)");
  std::vector<fs::path> folders = OperationFolders();
  folders.push_back(SourceRoot() / "core");
  int tables = 0;
  for (const fs::path& folder : folders) {
    Names registered;
    for (const fs::path& source : FilesIn(folder, ".cc")) {
      for (const std::string& arguments :
           ArgumentsOfCalls(ReadSource(source), "TESSERA_REGISTER_KERNEL")) {
        if (arguments.find("DeviceType::kCpu") == std::string::npos) continue;
        registered.insert(arguments.substr(0, arguments.find(',')));
      }
    }
    for (const fs::path& header : FilesIn(folder, ".h")) {
      const std::string text = ReadSource(header);
      for (std::sregex_iterator it(text.begin(), text.end(), kTable), end; it != end; ++it) {
        ++tables;
        if (ExemptKernels().count((*it)[1]) > 0) continue;
        EXPECT_TRUE(registered.count((*it)[1]) > 0)
            << header.string() << ": " << (*it)[1] << " has no CPU kernel";
      }
    }
  }
  EXPECT_GT(tables, 20) << "kernel tables are no longer found";
}

// Layers by name, with the words of their class.
std::map<std::string, Names> Layers() {
  static const std::regex kLayer(
      R"(^class (\w+)(?: final)? : public (?:Module|Norm|AttentionLayer)\b)");
  std::map<std::string, Names> layers;
  for (const fs::path& header : FilesIn(SourceRoot() / "nn", ".h")) {
    for (const std::string& chunk : TopLevelChunks(ReadSource(header))) {
      std::smatch match;
      if (!std::regex_search(chunk, match, kLayer)) continue;
      const Names words = Identifiers(chunk);
      if (words.count("Forward") > 0) layers[match[1]] = words;
    }
  }
  return layers;
}

TEST(CoverageTest, EveryLayerHasAGradientCheck) {
  const std::map<std::string, Names> layers = Layers();
  EXPECT_GT(layers.size(), 8u) << "layers are no longer found";
  Names checked;
  for (const fs::path& test : FilesIn(SourceRoot() / "nn", "_test.cc")) {
    const std::vector<std::string> chunks = TopLevelChunks(ReadSource(test));
    const Names harnesses = WithLocalHarnesses(chunks, kHarnesses);
    for (const std::string& chunk : chunks) {
      if (SuiteOf(chunk).empty()) continue;
      const Names words = Identifiers(chunk);
      const auto used = [&](const std::string& name) { return words.count(name) > 0; };
      if (std::any_of(harnesses.begin(), harnesses.end(), used)) {
        checked.insert(words.begin(), words.end());
      }
    }
  }
  // A layer that is part of a checked one is checked with it.
  for (size_t depth = 0; depth < layers.size(); ++depth) {
    for (const auto& [name, parts] : layers) {
      if (checked.count(name) > 0) checked.insert(parts.begin(), parts.end());
    }
  }
  for (const auto& [name, words] : layers) {
    if (ExemptLayers().count(name) > 0) continue;
    EXPECT_TRUE(checked.count(name) > 0)
        << "nn: " << name << " is in no test that checks gradients";
  }
}

// The cells of a row of a Markdown table; none: another line.
std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream row(line);
  for (std::string cell; line.starts_with("|") && std::getline(row, cell, '|');) {
    cells.push_back(cell);
  }
  if (!cells.empty()) cells.erase(cells.begin());
  return cells;
}

std::vector<std::string> Matches(const std::string& text, const std::regex& what) {
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), what), end; it != end; ++it) {
    found.push_back((*it)[1]);
  }
  return found;
}

// Names of this project in a cell of code: functions, types and constants.
Names NamesIn(const std::string& cell) {
  static const std::regex kCode("`([^`]+)`");
  static const std::regex kString("\"[^\"]*\"");
  static const std::regex kName(R"(\b(k?[A-Z]\w*|[a-z]\w+(?=\()))");
  static const Names kOthers = {"T", "Block", "HUGE_VAL"};
  Names names;
  for (const std::string& code : Matches(cell, kCode)) {
    for (const std::string& name : Matches(std::regex_replace(code, kString, ""), kName)) {
      if (kOthers.count(name) == 0) names.insert(name);
    }
  }
  return names;
}

TEST(CoverageTest, EveryNameOfTheTablesOfOperationsIsInItsHeader) {
  static const std::regex kHeader(R"(`([a-z_/0-9]+\.h)`)");
  std::stringstream page(ReadText(SourceRoot() / "docs/operations.md"));
  std::string headers;  // those of the row, or of the last one that named any
  Names words;
  int found = 0;
  for (std::string line; std::getline(page, line);) {
    const std::vector<std::string> cells = Cells(line);
    if (cells.size() < 3) continue;
    const std::vector<std::string> named = Matches(cells[2], kHeader);
    if (!named.empty()) words.clear();
    for (const std::string& header : named) {
      headers = cells[2];
      words.merge(Identifiers(ReadSource(SourceRoot() / header)));
    }
    for (const std::string& name : NamesIn(cells[1])) {
      ++found;
      EXPECT_EQ(words.count(name), 1u)
          << "docs/operations.md: " << name << " is not in " << headers;
    }
  }
  EXPECT_GT(found, 150) << "names are no longer found";
}

}  // namespace
}  // namespace tessera::coverage
