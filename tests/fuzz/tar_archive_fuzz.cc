// SPDX-License-Identifier: Apache-2.0
// base/tar_archive.h
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/tar_archive.h"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

// The bytes of all files below a folder, summed.
int64_t SumBelow(const std::string& folder) {
  int64_t sum = 0;
  const std::vector<std::string> names = ListDirectory(folder).value();
  for (const std::string& name : names) {
    const std::string path = JoinPath(folder, name);
    if (IsDirectory(path)) {
      sum += SumBelow(path);
      continue;
    }
    const std::string content = ReadFile(path).value();
    for (const char byte : content) sum += static_cast<unsigned char>(byte);
  }
  return sum;
}

bool Run(std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  const auto folder = MountTar(MountedFile::OfBytes(bytes.data(), size, nullptr), "input");
  if (!folder.ok()) return false;
  TESSERA_CHECK(SumBelow(folder->path()) >= 0, "tar", "bytes are not negative");
  return true;
}

std::string Entry(const std::string& name, const std::string& data, char type,
                  const std::string& magic) {
  std::string block(512, '\0');
  block.replace(0, name.size(), name);
  char size[32];
  snprintf(size, sizeof(size), "%011zo", data.size());
  block.replace(124, 11, size);
  block.replace(148, 8, "        ");
  block[156] = type;
  block.replace(257, magic.size(), magic);
  unsigned sum = 0;
  for (const char byte : block) sum += static_cast<unsigned char>(byte);
  char checksum[16];
  snprintf(checksum, sizeof(checksum), "%06o", sum);
  block.replace(148, 7, std::string(checksum, 7));
  return block + data + std::string((512 - data.size() % 512) % 512, '\0');
}

std::vector<std::string> Seeds() {
  const std::string posix("ustar\00000", 8);
  const std::string gnu("ustar  \0", 8);
  const std::string end(1024, '\0');
  return {Entry("./", "", '5', posix) + Entry("./a/b", "text", '0', posix) + end,
          Entry("././@LongLink", std::string(120, 'n') + '\0', 'L', gnu) +
              Entry("n", "text", '0', gnu) + end,
          Entry("x", "12 path=a/b\n10 size=3\n", 'x', posix) + Entry("n", "abc", '0', posix) + end};
}

const FuzzTargetRegistration registration({.name = "tar_archive",
                                           .run = Run,
                                           .seeds = Seeds,
                                           .words = {"ustar", "././@LongLink", "path=", "size=",
                                                     "GNU.sparse.major=1", "77777777777"}});

}  // namespace
}  // namespace tessera::fuzz
