// SPDX-License-Identifier: Apache-2.0
// The program that tools/fuzz runs: libFuzzer over one of the targets.
//
//   fuzz --list                          the targets' names
//   fuzz --target=NAME --write-seeds=DIR its seeds, and its words as NAME.dict, into a folder
//   fuzz --target=NAME [libFuzzer's own arguments]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using tessera::Concat;
using tessera::JoinPath;
using tessera::fuzz::FuzzTarget;

const FuzzTarget* g_target = nullptr;

// The value of an argument, which libFuzzer then does not see; empty: it is not there.
std::string TakeArgument(std::string_view name, int* argc, char** argv) {
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(name)) continue;
    const std::string value(argument.substr(name.size()));
    for (int j = i; j + 1 < *argc; ++j) argv[j] = argv[j + 1];
    argv[--*argc] = nullptr;
    return value.empty() ? "yes" : value;
  }
  return "";
}

void Put(const std::string& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
}

// As libFuzzer's dictionaries have it.
std::string Escaped(std::string_view word) {
  std::string out;
  for (const char c : word) {
    char text[8];
    std::snprintf(text, sizeof(text), "\\x%02X", static_cast<unsigned char>(c));
    out += text;
  }
  return out;
}

void WriteSeeds(const FuzzTarget& target, const std::string& folder) {
  int number = 0;
  for (const std::string& seed : target.seeds()) {
    Put(JoinPath(folder, Concat("seed-", number++)), seed);
  }
  std::string words;
  for (const std::string& word : target.words) words += Concat("\"", Escaped(word), "\"\n");
  Put(Concat(folder, ".dict"), words);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (!TakeArgument("--list", argc, *argv).empty()) {
    for (const FuzzTarget& target : tessera::fuzz::FuzzTargets()) std::cout << target.name << "\n";
    std::exit(0);
  }
  const std::string name = TakeArgument("--target=", argc, *argv);
  g_target = tessera::fuzz::FindFuzzTarget(name);
  if (g_target == nullptr) {
    std::cerr << "error: no target '" << name << "'; --list names them\n";
    std::exit(2);
  }
  const std::string folder = TakeArgument("--write-seeds=", argc, *argv);
  if (!folder.empty()) {
    WriteSeeds(*g_target, folder);
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  g_target->run(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}

// libFuzzer's own changes, and now and then an input that the target makes.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  constexpr unsigned kOneIn = 8;
  if (g_target->make == nullptr || seed % kOneIn != 0) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  const std::string made = g_target->make(seed / kOneIn);
  if (made.empty() || made.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::copy(made.begin(), made.end(), data);
  return made.size();
}
