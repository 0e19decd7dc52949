// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz_target.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace tessera::fuzz {
namespace {

std::vector<FuzzTarget>& Targets() {
  static auto* const targets = new std::vector<FuzzTarget>;
  return *targets;
}

}  // namespace

FuzzTargetRegistration::FuzzTargetRegistration(FuzzTarget target) {
  std::vector<FuzzTarget>& targets = Targets();
  const auto at =
      std::upper_bound(targets.begin(), targets.end(), target,
                       [](const FuzzTarget& a, const FuzzTarget& b) { return a.name < b.name; });
  targets.insert(at, std::move(target));
}

const std::vector<FuzzTarget>& FuzzTargets() { return Targets(); }

const FuzzTarget* FindFuzzTarget(std::string_view name) {
  for (const FuzzTarget& target : Targets()) {
    if (target.name == name) return &target;
  }
  return nullptr;
}

uint64_t Choices::Below(uint64_t n) {
  // SplitMix64 (Steele, Lea and Flood, 2014).
  state_ += 0x9E3779B97F4A7C15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return (z ^ (z >> 31)) % n;
}

int64_t Choices::Number() {
  constexpr int64_t kBorders[] = {-1,    127,   128,       255,       256,
                                  65535, 65536, INT32_MAX, INT64_MIN, INT64_MAX};
  return OneIn(4) ? kBorders[Below(std::size(kBorders))] : static_cast<int64_t>(Below(10));
}

FuzzFolder::FuzzFolder() {
  // In memory where that is to be had: files are written for every input.
  const char* const given = std::getenv("TMPDIR");
  const std::string base = given != nullptr ? given : IsDirectory("/dev/shm") ? "/dev/shm" : "/tmp";
  path_ = base + "/fuzz-XXXXXX";
  TESSERA_CHECK(mkdtemp(path_.data()) != nullptr, "FuzzFolder", base, ": no folder can be made");
}

FuzzFolder::~FuzzFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string FuzzFolder::Path(std::string_view name) const { return JoinPath(path_, name); }

void FuzzFolder::Write(std::string_view name, std::string_view content) const {
  std::ofstream file(Path(name), std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  TESSERA_CHECK(file.good(), "FuzzFolder", Path(name), ": cannot be written");
}

void FuzzFolder::Clear() const {
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    std::filesystem::remove_all(entry.path());
  }
}

void FuzzFolder::WriteAll(std::string_view bytes, std::initializer_list<const char*> names) const {
  bool has_part = true;
  for (const char* name : names) {
    if (!has_part) {
      std::filesystem::remove(Path(name));
      continue;
    }
    const size_t end = bytes.find(kFileEnd);
    has_part = end != std::string_view::npos;
    Write(name, bytes.substr(0, end));
    bytes.remove_prefix(has_part ? end + kFileEnd.size() : bytes.size());
  }
}

std::string Joined(std::initializer_list<std::string> parts) {
  std::string out;
  for (const std::string& part : parts) {
    if (&part != parts.begin()) out += kFileEnd;
    out += part;
  }
  return out;
}

std::string FileOf(const std::string& path) {
  StatusOr<std::string> content = ReadFile(path);
  TESSERA_CHECK(content.ok(), "FileOf", Message(content.status()));
  return *std::move(content);
}

}  // namespace tessera::fuzz
