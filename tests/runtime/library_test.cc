// The library as a file: what it shows, what it needs, how large it is; and programs that are built
// and run with it as a user's are, by the C and C++ compilers and by Python alone.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/safetensors.h"
#include "data/tokenizer/utf8.h"
#include "gtest/gtest.h"
#include "tests/inference/small_models.h"
#include "tests/runtime/model_folders.h"

namespace tessera {
namespace {

constexpr char kShared[] = "runtime/libtessera.so";
constexpr char kArchive[] = "runtime/libtessera.a";
constexpr char kRecorded[] = "tests/runtime/abi_0.6.0.txt";
constexpr int64_t kMostBytes = 3'000'000;
// Debian 12 has it.
constexpr int kGlibcMinor = 36;

bool IsInstrumented() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return std::getenv("TESSERA_UBSAN") != nullptr;
#endif
}

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

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::set<std::string> ExportedSymbols(const std::string& nm) {
  std::set<std::string> names;
  for (const std::string& line : Lines(Execute(nm).output)) {
    const std::string name = line.substr(line.rfind(' ') + 1);
    // The version's own name stands among the symbols.
    if (name != "TESSERA_1") names.insert(name.substr(0, name.find('@')));
  }
  return names;
}

// Functions that tessera.h declares.
std::set<std::string> DeclaredFunctions() {
  const std::string header = *ReadFile("runtime/tessera.h");
  const std::regex function("\\b(tsr_[a-z_]+)\\(");
  const std::string code = std::regex_replace(header, std::regex("/\\*[^]*?\\*/"), "");
  std::set<std::string> names;
  for (std::sregex_iterator it(code.begin(), code.end(), function), end; it != end; ++it) {
    names.insert((*it)[1]);
  }
  return names;
}

TEST(LibraryTest, ShowsWhatTheHeaderDeclaresAndNothingElse) {
  const std::set<std::string> declared = DeclaredFunctions();
  EXPECT_GT(declared.size(), 20u);
  EXPECT_EQ(ExportedSymbols(std::string("nm -D -g --defined-only ") + kShared), declared);
  EXPECT_EQ(ExportedSymbols(std::string("nm -g --defined-only ") + kArchive + " | grep ' '"),
            declared);
}

TEST(LibraryTest, NeedsTheCLibraryAlone) {
  if (IsInstrumented()) GTEST_SKIP() << "a sanitizer adds its own library";
  std::set<std::string> needed;
  const std::regex entry(".*\\(NEEDED\\).*\\[(.*)\\]");
  for (const std::string& line : Lines(Execute(std::string("readelf -d ") + kShared).output)) {
    std::smatch match;
    if (std::regex_match(line, match, entry)) needed.insert(match[1]);
  }
  EXPECT_TRUE(needed.count("libc.so.6"));
  for (const std::string& name : needed) {
    EXPECT_TRUE(name == "libc.so.6" || name == "libm.so.6" || name == "ld-linux-x86-64.so.2")
        << name;
  }
  const std::regex version("GLIBC_2\\.([0-9]+)");
  int newest = 0;
  const std::string symbols = Execute(std::string("objdump -T ") + kShared).output;
  for (std::sregex_iterator it(symbols.begin(), symbols.end(), version), end; it != end; ++it) {
    newest = std::max(newest, std::stoi((*it)[1]));
  }
  EXPECT_GT(newest, 0);
  EXPECT_LE(newest, kGlibcMinor);
}

TEST(LibraryTest, IsSmall) {
  if (IsInstrumented()) GTEST_SKIP() << "a sanitizer makes it larger";
  const std::string stripped = testing::TempDir() + "/stripped.so";
  ASSERT_EQ(Execute(std::string("strip -o ") + stripped + " " + kShared).status, 0);
  const auto size = static_cast<int64_t>(std::filesystem::file_size(stripped));
  RecordProperty("bytes", std::to_string(size));
  EXPECT_LE(size, kMostBytes) << size;
  EXPECT_GT(size, 100 << 10);
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
  const Ran ran = Execute("tools/tessera forward --model " + SmallModelFolder(type) + " --inputs " +
                          inputs + " --outputs " + outputs);
  ASSERT_EQ(ran.status, 0) << ran.output;
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
    for (const char* file : {kArchive, "runtime/tessera.h", "runtime/tessera.hpp"}) {
      std::filesystem::copy(std::filesystem::canonical(file), folder_);
    }
    std::filesystem::copy(std::filesystem::canonical(kShared), folder_ + "/libtessera.so.0");
    std::filesystem::create_symlink("libtessera.so.0", folder_ + "/libtessera.so");
    if (IsInstrumented()) GTEST_SKIP() << "hosts are built without the sanitizer";
  }

  std::string Compile(const std::string& compiler, const std::string& source,
                      const std::string& libraries) {
    const std::string program = folder_ + "/" + std::filesystem::path(source).stem().string();
    const Ran ran = Execute(compiler + " -Wall -Wextra -Werror -I" + folder_ + " " + source +
                            " -o " + program + " " + libraries);
    EXPECT_EQ(ran.status, 0) << ran.output;
    return program;
  }
  std::string Shared() const { return "-L" + folder_ + " -ltessera -Wl,-rpath," + folder_; }
  std::string Static() const { return folder_ + "/libtessera.a -lm -pthread"; }

  std::string folder_;
};

constexpr char kC[] = "cc -std=c99 -pedantic";

TEST_F(Programs, StructsAreThoseOfRecordedVersions) {
  const std::string program = Compile(kC, "tests/runtime/struct_sizes.c", "");
  const std::string recorded = *ReadFile(kRecorded);
  // Structs grow at their end: what a version had stays where it was.
  std::string expected = Execute(program).output;
  for (const std::string& name : DeclaredFunctions()) expected += name + "\n";
  EXPECT_EQ(recorded, expected) << "a new version of tessera.h records a file of its own";
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
      const Ran ran = Execute(program + " " + model + " Hello");
      EXPECT_EQ(ran.status, 0);
      EXPECT_EQ(ran.output, expected);
    }
    EXPECT_EQ(Execute(program + " /no/such").output,
              "error: /no/such: no such folder or archive\n");
  }
  // The command's bits, and Python's by ctypes.
  const Ran command =
      Execute("tools/tessera generate --max-new-tokens 20 --temperature 0 --prompt Hello --model " +
              SmallModelFolder("gpt2"));
  EXPECT_EQ(command.output, data::ReplaceInvalidUtf8(expected));
  const Ran python = Execute("TESSERA_LIBRARY=" + folder_ + "/libtessera.so.0 python3 " +
                             "examples/embed/generate.py " + SmallModelFolder("gpt2") + " Hello");
  EXPECT_EQ(python.status, 0) << python.output;
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
    const Ran ran = Execute(program + " " + SmallModelFolder("vit") + " " + picture);
    EXPECT_EQ(ran.status, 0);
    EXPECT_TRUE(std::regex_match(ran.output, std::regex("(cat|dog|fish)\n"))) << ran.output;
  }
}

TEST_F(Programs, CComparesSentences) {
  const std::string program = Compile(kC, "examples/embed/similar.c", Shared());
  const Ran same = Execute(program + " " + SmallModelFolder("bert") + " 'ab c' 'ab c'");
  EXPECT_EQ(same.status, 0);
  EXPECT_EQ(same.output, "1.0000\n");
  const Ran other = Execute(program + " " + SmallModelFolder("bert") + " 'ab c' 'xyz w'");
  EXPECT_LT(std::stod(other.output), 1.0);
}

TEST_F(Programs, CppGeneratesOnManyThreads) {
  const Ran c = Execute(Compile(kC, "examples/embed/generate.c", Shared()) + " " +
                        SmallModelFolder("gpt2") + " Hello");
  for (const std::string& libraries : {Shared(), Static()}) {
    const std::string program =
        Compile("c++ -std=c++17 -pedantic", "examples/embed/generate.cpp", libraries + " -pthread");
    const Ran ran = Execute(program + " " + SmallModelFolder("gpt2") + " Hello Hello Hello");
    EXPECT_EQ(ran.output, c.output + c.output + c.output);
    EXPECT_EQ(Execute(program + " /no/such x").output,
              "error: /no/such: no such folder or archive\n");
  }
}

}  // namespace
}  // namespace tessera
