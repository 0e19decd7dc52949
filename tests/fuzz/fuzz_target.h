// SPDX-License-Identifier: Apache-2.0
// What reads bytes from outside, as a fuzzer calls it. One file per reader, which registers itself:
//
//   // png_fuzz.cc
//   bool Run(std::string_view bytes) { return data::DecodeImage(bytes, "input").ok(); }
//   std::vector<std::string> Seeds() { return {FileOf("data/image/testdata/a.png")}; }
//   const FuzzTargetRegistration registration({.name = "png", .run = Run, .seeds = Seeds});
//
// Of a format that changed bytes seldom fit, a target makes inputs by its grammar, too (`make`):
// mostly valid ones, with what a writer of such files would not do.
//
// Any bytes must end in a status (or in an Error where the reader's header promises one) in little
// time and memory. `tools/fuzz` looks for bytes that do not; what it found, made small, is kept in
// findings/<name>/, and findings_test runs every target over its seeds and its findings.
#ifndef TESSERA_TESTS_FUZZ_FUZZ_TARGET_H_
#define TESSERA_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::fuzz {

struct FuzzTarget {
  std::string name;
  // Whether the bytes could be read.
  bool (*run)(std::string_view bytes);
  // Inputs that can be: where the fuzzer begins.
  std::vector<std::string> (*seeds)();
  // Words that it puts into inputs beside what it finds by itself.
  std::vector<std::string> words = {};
  // An input that the seed decides, most often one that can be read. nullptr: none are made.
  std::string (*make)(uint64_t seed) = nullptr;
};

// Choices that a seed decides, for `make`.
class Choices {
 public:
  explicit Choices(uint64_t seed) : state_(seed) {}
  // In [0, n).
  uint64_t Below(uint64_t n);
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  const char* Of(std::span<const char* const> all) { return all[Below(all.size())]; }
  const char* Of(std::initializer_list<const char*> all) {
    return Of(std::span<const char* const>(all.begin(), all.size()));
  }
  // Sizes and numbers: small ones, and those at the borders of types.
  int64_t Number();

 private:
  uint64_t state_;
};

struct FuzzTargetRegistration {
  explicit FuzzTargetRegistration(FuzzTarget target);
};

// All that the program has, by name.
const std::vector<FuzzTarget>& FuzzTargets();
// nullptr: there is none of this name.
const FuzzTarget* FindFuzzTarget(std::string_view name);

// A folder of this process's own, for readers of files; it is removed at the end of the process.
class FuzzFolder {
 public:
  FuzzFolder();
  ~FuzzFolder();
  FuzzFolder(const FuzzFolder&) = delete;
  FuzzFolder& operator=(const FuzzFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(std::string_view name) const;
  void Write(std::string_view name, std::string_view content) const;
  void Clear() const;

  // Several files from one input, which is cut at lines of kFileEnd: the first part is the first
  // file. A file without a part is not there.
  void WriteAll(std::string_view bytes, std::initializer_list<const char*> names) const;

 private:
  std::string path_;
};
inline constexpr std::string_view kFileEnd = "\n%%%\n";

// The parts of an input that WriteAll cuts apart again.
std::string Joined(std::initializer_list<std::string> parts);

// A file of the repository; throws Error where it cannot be read.
std::string FileOf(const std::string& path);

}  // namespace tessera::fuzz

#endif  // TESSERA_TESTS_FUZZ_FUZZ_TARGET_H_
