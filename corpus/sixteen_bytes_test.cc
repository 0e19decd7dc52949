// SPDX-License-Identifier: Apache-2.0
#include "corpus/sixteen_bytes.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera::corpus {
namespace {

// Every byte value in every place, among bytes of both ends.
TEST(SixteenBytesTest, EveryByteInEveryPlace) {
  for (const char other : {'\0', '\xFF', 'a'}) {
    for (int value = 0; value < 256; ++value) {
      for (size_t place = 0; place < 16; ++place) {
        std::string text(17, other);
        text[place + 1] = static_cast<char>(value);
        const SixteenBytes bytes = LoadSixteen(text.data() + 1);
        uint32_t equal = 0, letters = 0, below = 0;
        for (size_t i = 0; i < 16; ++i) {
          const auto byte = static_cast<uint8_t>(text[i + 1]);
          equal |= static_cast<uint32_t>(byte == 'a') << i;
          letters |= static_cast<uint32_t>(byte >= 'A' && byte <= 'Z') << i;
          below |= static_cast<uint32_t>(byte < 0x80) << i;
        }
        ASSERT_EQ(BitsOf(bytes == uint8_t{'a'}), equal) << value << " " << place;
        ASSERT_EQ(BitsOf(Between(bytes, 'A', 'Z')), letters) << value << " " << place;
        ASSERT_EQ(BitsOf(bytes < uint8_t{0x80}), below) << value << " " << place;
        ASSERT_EQ(BitsOf(~(bytes == uint8_t{'a'})), equal ^ 0xFFFF) << value << " " << place;
        std::string copy(18, 'x');
        StoreSixteen(copy.data() + 1, bytes);
        ASSERT_EQ(copy, "x" + text.substr(1) + "x");
      }
    }
  }
}

}  // namespace
}  // namespace tessera::corpus
