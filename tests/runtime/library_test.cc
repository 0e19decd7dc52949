// SPDX-License-Identifier: Apache-2.0
// The library as a file: what it shows, what it needs, how large it is; and programs that are built
// and run with it as a user's are, by the C and C++ compilers and by Python alone.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/utf8.h"
#include "core/safetensors.h"
#include "gtest/gtest.h"
#include "tests/inference/small_models.h"
#include "tests/process/shell.h"
#include "tests/runtime/library_file.h"
#include "tests/runtime/model_folders.h"

namespace tessera {
namespace {

constexpr char kShared[] = "runtime/libtessera.so";
constexpr char kArchive[] = "runtime/libtessera.a";
constexpr char kHeader[] = "runtime/tessera.h";
// What each version of tessera.h had; the newest is the last.
const std::string kRecorded[] = {"tests/runtime/abi_0.6.0.txt", "tests/runtime/abi_0.7.0.txt",
                                 "tests/runtime/abi_0.8.0.txt"};
// The budget.
constexpr int64_t kMostBytes = 4'000'000;
// Debian 12 has it.
constexpr int kGlibcMinor = 36;

const std::set<std::string> kTheCLibrary = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2",
                                            "ld-linux-aarch64.so.1"};

TEST(LibraryTest, ShowsWhatTheHeaderDeclaresAndNothingElse) {
  const std::set<std::string> declared = DeclaredFunctions({kHeader});
  EXPECT_GT(declared.size(), 20u);
  EXPECT_EQ(SharedSymbols(kShared), declared);
  EXPECT_EQ(ArchiveSymbols(kArchive), declared);
}

TEST(LibraryTest, NeedsTheCLibraryAlone) {
  if (IsInstrumented()) GTEST_SKIP() << "a sanitizer adds its own library";
  EXPECT_TRUE(NeededLibraries(kShared).contains("libc.so.6"));
  for (const std::string& name : NeededLibraries(kShared)) {
    EXPECT_TRUE(kTheCLibrary.contains(name)) << name;
  }
  EXPECT_GT(NewestGlibcMinor(kShared), 0);
  EXPECT_LE(NewestGlibcMinor(kShared), kGlibcMinor);
}

TEST(LibraryTest, IsSmall) {
  if (IsInstrumented()) GTEST_SKIP() << "a sanitizer makes it larger";
  EXPECT_LE(StrippedBytes(kShared), kMostBytes);
  EXPECT_GT(StrippedBytes(kShared), 100 << 10);
}

class EveryFamily : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, EveryFamily, testing::ValuesIn(kSmallModels),
                         [](const auto& family) { return std::string(family.param); });

TEST_P(EveryFamily, ForwardHasTheBitsOfTheCommand) {
  const std::string type = GetParam();
  const NamedTensors in(SmallInputs(type));
  std::vector<NamedTensorView> views;
  for (size_t i = 0; i < in.kept.size(); ++i) {
    views.push_back({in.names[i],
                     {.dtype = in.kept[i].dtype(),
                      .shape = in.shapes[i],
                      .data = static_cast<const std::byte*>(in.kept[i].raw_data()),
                      .nbytes = in.kept[i].nbytes()}});
  }
  const std::string inputs = testing::TempDir() + "/" + type + "_in.safetensors";
  const std::string outputs = testing::TempDir() + "/" + type + "_out.safetensors";
  ASSERT_TRUE(WriteSafetensors(inputs, views).ok());
  const ShellRun ran = RunShell("tools/tessera forward --model " + SmallModelFolder(type) +
                                " --inputs " + inputs + " --outputs " + outputs);
  ASSERT_EQ(ran.code, 0) << ran.output;
  const auto file = SafetensorsFile::Open(outputs);
  ASSERT_TRUE(file.ok()) << file.status();

  const ModelHandle model = LoadHandle(SmallModelFolder(type));
  const ContextHandle context = ContextOf(model);
  tsr_named_tensor* out = nullptr;
  size_t count = 0;
  ASSERT_EQ(CodeOf(tsr_forward(context.get(), in.tensors.data(), in.tensors.size(), &out, &count)),
            TSR_OK);
  const TensorsHandle owner(out);
  EXPECT_EQ(count, file->entries().size());
  for (size_t i = 0; i < count; ++i) {
    const auto view = file->Get(out[i].name);
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ(view->shape, std::vector<int64_t>(out[i].shape, out[i].shape + out[i].rank));
    ASSERT_EQ(static_cast<size_t>(view->nbytes), out[i].bytes);
    EXPECT_EQ(std::memcmp(view->data, out[i].data, out[i].bytes), 0) << out[i].name;
  }
}

class Programs : public testing::Test {
 protected:
  void SetUp() override {
    // Where a loader and a linker look for it.
    folder_ = testing::TempDir() + "/library";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    for (const char* file : {kArchive, kHeader, "runtime/tessera.hpp"}) {
      std::filesystem::copy(std::filesystem::canonical(file), folder_);
    }
    std::filesystem::copy(std::filesystem::canonical(kShared), folder_ + "/libtessera.so.0");
    std::filesystem::create_symlink("libtessera.so.0", folder_ + "/libtessera.so");
    if (IsInstrumented()) GTEST_SKIP() << "hosts are built without the sanitizer";
  }

  std::string Compile(const std::string& compiler, const std::string& source,
                      const std::string& libraries) {
    const std::string program = folder_ + "/" + std::filesystem::path(source).stem().string();
    const ShellRun ran = RunShell(compiler + " -Wall -Wextra -Werror -I" + folder_ + " " + source +
                                  " -o " + program + " " + libraries);
    EXPECT_EQ(ran.code, 0) << ran.output;
    return program;
  }
  std::string Shared() const { return "-L" + folder_ + " -ltessera -Wl,-rpath," + folder_; }
  std::string Static() const { return folder_ + "/libtessera.a -lm -pthread"; }

  std::string folder_;
};

constexpr char kC[] = "cc -std=c99 -pedantic";

// Structs with the sizes and places of members, and functions, of lines such as "tsr_token 40 32"
// and "tsr_forward".
struct Interface {
  std::map<std::pair<std::string, int>, int> structs;  // the size by name and place
  std::map<std::string, int> sizes;
  std::set<std::string> functions;
};
Interface InterfaceOf(const std::string& lines) {
  Interface found;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    int size = 0, place = 0;
    words >> name;
    if (words >> size >> place) {
      found.structs[{name, place}] = found.sizes[name] = size;
    } else {
      found.functions.insert(name);
    }
  }
  return found;
}

// Structs grow at their end, and functions stay.
TEST_F(Programs, StructsAreThoseOfRecordedVersions) {
  const std::string program = Compile(kC, "tests/runtime/struct_sizes.c", "");
  Interface now = InterfaceOf(RunShell(program).output);
  now.functions = DeclaredFunctions({kHeader});
  Interface recorded;
  for (const std::string& path : kRecorded) {
    SCOPED_TRACE(path);
    recorded = InterfaceOf(*ReadFile(path));
    EXPECT_GT(recorded.structs.size(), 10u);
    for (const auto& [member, size] : recorded.structs) {
      EXPECT_EQ(now.structs.count(member), 1u) << member.first << " " << member.second;
      EXPECT_GE(now.structs[member], size) << member.first;
    }
    for (const std::string& name : recorded.functions) {
      EXPECT_TRUE(now.functions.contains(name)) << name;
    }
  }
  EXPECT_EQ(recorded.sizes, now.sizes) << "a new version of tessera.h records a file of its own";
  EXPECT_EQ(recorded.functions, now.functions);
}

TEST_F(Programs, CGeneratesText) {
  const std::string expected = [&] {
    const ModelHandle model = LoadHandle(SmallModelFolder("gpt2"));
    tsr_generate_options options = {};
    options.size = sizeof(options);
    options.max_new_tokens = 20;
    options.sampling = TSR_SAMPLING_OFF;
    Generated generated;
    EXPECT_EQ(CodeOf(tsr_generate_text(ContextOf(model).get(), "Hello", 5, &options, Collect,
                                       &generated)),
              TSR_OK);
    return "Hello" + generated.text + "\n";
  }();
  for (const std::string& libraries : {Shared(), Static()}) {
    const std::string program = Compile(kC, "examples/embed/generate.c", libraries);
    for (const std::string& model : {SmallModelFolder("gpt2"), SmallModelArchive("gpt2")}) {
      const ShellRun ran = RunShell(program + " " + model + " Hello");
      EXPECT_EQ(ran.code, 0);
      EXPECT_EQ(ran.output, expected);
    }
    EXPECT_EQ(RunShell(program + " /no/such").output,
              "error: /no/such: no such folder or archive\n");
  }
  // The command's bits, and Python's by ctypes.
  const ShellRun command = RunShell(
      "tools/tessera generate --max-new-tokens 20 --temperature 0 --prompt Hello --model " +
      SmallModelFolder("gpt2"));
  EXPECT_EQ(command.output, ReplaceInvalidUtf8(expected));
  const ShellRun python =
      RunShell("TESSERA_LIBRARY=" + folder_ + "/libtessera.so.0 python3 " +
               "examples/embed/generate.py " + SmallModelFolder("gpt2") + " Hello");
  EXPECT_EQ(python.code, 0) << python.output;
  EXPECT_EQ(python.output, expected);
}

TEST_F(Programs, CClassifiesAPicture) {
  const std::string picture = folder_ + "/picture.ppm";
  {
    std::ofstream file(picture, std::ios::binary);
    file << "P6\n10 12\n255\n";
    for (int i = 0; i < 10 * 12 * 3; ++i) file.put(static_cast<char>(i % 251));
  }
  for (const std::string& libraries : {Shared(), Static()}) {
    const std::string program = Compile(kC, "examples/embed/classify.c", libraries);
    const ShellRun ran = RunShell(program + " " + SmallModelFolder("vit") + " " + picture);
    EXPECT_EQ(ran.code, 0);
    EXPECT_TRUE(std::regex_match(ran.output, std::regex("(cat|dog|fish)\n"))) << ran.output;
  }
}

TEST_F(Programs, CComparesSentences) {
  const std::string program = Compile(kC, "examples/embed/similar.c", Shared());
  const ShellRun same = RunShell(program + " " + SmallModelFolder("bert") + " 'ab c' 'ab c'");
  EXPECT_EQ(same.code, 0);
  EXPECT_EQ(same.output, "1.0000\n");
  const ShellRun other = RunShell(program + " " + SmallModelFolder("bert") + " 'ab c' 'xyz w'");
  EXPECT_LT(std::stod(other.output), 1.0);
}

TEST_F(Programs, CppGeneratesOnManyThreads) {
  const ShellRun c = RunShell(Compile(kC, "examples/embed/generate.c", Shared()) + " " +
                              SmallModelFolder("gpt2") + " Hello");
  for (const std::string& libraries : {Shared(), Static()}) {
    const std::string program =
        Compile("c++ -std=c++17 -pedantic", "examples/embed/generate.cpp", libraries + " -pthread");
    const ShellRun ran = RunShell(program + " " + SmallModelFolder("gpt2") + " Hello Hello Hello");
    EXPECT_EQ(ran.output, c.output + c.output + c.output);
    EXPECT_EQ(RunShell(program + " /no/such x").output,
              "error: /no/such: no such folder or archive\n");
  }
}

}  // namespace
}  // namespace tessera
