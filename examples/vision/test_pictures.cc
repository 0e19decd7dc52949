// SPDX-License-Identifier: Apache-2.0
#include "examples/vision/test_pictures.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>

#include <tessera/base/error.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

void WriteBigEndian(std::ofstream& file, std::initializer_list<uint32_t> words) {
  for (const uint32_t word : words) {
    for (int shift = 24; shift >= 0; shift -= 8) file.put(static_cast<char>(word >> shift));
  }
}

}  // namespace

std::string WritePictures(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const char* part : {"train", "t10k"}) {
    const uint32_t count = part[1] == 'r' ? 64 : 16;
    std::ofstream images(Concat(folder, "/", part, "-images-idx3-ubyte"), std::ios::binary);
    std::ofstream labels(Concat(folder, "/", part, "-labels-idx1-ubyte"), std::ios::binary);
    WriteBigEndian(images, {0x803, count, 28, 28});
    WriteBigEndian(labels, {0x801, count});
    for (uint32_t n = 0; n < count; ++n) {
      labels.put(static_cast<char>(n % 2));
      for (uint32_t i = 0; i < 28 * 28; ++i) {
        const bool bright = (i >= 14 * 28) == (n % 2 == 1);
        images.put(static_cast<char>((bright ? 150 : 50) + (i * 31 + n * 17) % 40));
      }
    }
  }
  return folder;
}

}  // namespace tessera
