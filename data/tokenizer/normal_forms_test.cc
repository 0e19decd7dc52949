// SPDX-License-Identifier: Apache-2.0
// Unicode's normal forms, and the character maps of SentencePiece models.
#include "base/normal_forms.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/precompiled_map.h"

namespace tessera::data {
namespace {

// A map of one character: "a" (0x61) becomes "b".
std::string SmallMap() {
  std::vector<uint32_t> units(512, 0);
  // The root's children lie at offset 256; below "a" hangs a value at offset 0 ^ its place.
  units[0] = 256u << 10;
  units[256 ^ 0x61] = (256u << 10) | (1u << 8) | 0x61;
  units[256 ^ 0x61 ^ 256] = 0x80000000u;
  const auto bytes = static_cast<uint32_t>(units.size() * 4);
  std::string map(reinterpret_cast<const char*>(&bytes), 4);
  map.append(reinterpret_cast<const char*>(units.data()), bytes);
  return map + std::string("b\0", 2);
}

TEST(PrecompiledMapTest, FindsAndRefuses) {
  PrecompiledMap map;
  std::string_view to;
  ASSERT_TRUE(map.Parse(SmallMap()));
  EXPECT_EQ(map.LongestPrefix("abc", &to), 1u);
  EXPECT_EQ(to, "b");
  EXPECT_EQ(map.LongestPrefix("bc", &to), 0u);
  EXPECT_EQ(map.LongestPrefix(std::string_view("\0", 1), &to), 0u);
  std::string outside = SmallMap();
  outside[4 + 256 * 4 + 1] = '\x7F';  // an offset behind the end
  outside[4 + 256 * 4 + 2] = '\x7F';
  EXPECT_FALSE(PrecompiledMap().Parse(outside));
  std::string unended = SmallMap();
  unended.back() = 'x';
  EXPECT_FALSE(PrecompiledMap().Parse(unended));
  EXPECT_FALSE(PrecompiledMap().Parse(""));
  EXPECT_FALSE(PrecompiledMap().Parse(SmallMap().substr(0, 900)));
}

// Cases of the Unicode standard's annex 15 and of its conformance tests.
TEST(NormalFormsTest, KnownCases) {
  EXPECT_EQ(Normalize("Å", NormalForm::kNfd), "A\u030A");
  EXPECT_EQ(Normalize("\u212B", NormalForm::kNfc), "\u00C5");
  EXPECT_EQ(Normalize("\u1E9B\u0323", NormalForm::kNfc), "\u1E9B\u0323");
  EXPECT_EQ(Normalize("\u1E9B\u0323", NormalForm::kNfd), "\u017F\u0323\u0307");
  EXPECT_EQ(Normalize("\u1E9B\u0323", NormalForm::kNfkc), "\u1E69");
  EXPECT_EQ(Normalize("\u1E9B\u0323", NormalForm::kNfkd), "s\u0323\u0307");
  EXPECT_EQ(Normalize("ﬁ①", NormalForm::kNfkc), "fi1");
  EXPECT_EQ(Normalize("ﬁ①", NormalForm::kNfc), "ﬁ①");
  EXPECT_EQ(Normalize("각", NormalForm::kNfd), "\u1100\u1161\u11A8");
  EXPECT_EQ(Normalize("\u1100\u1161\u11A8", NormalForm::kNfc), "각");
  EXPECT_EQ(Normalize("a\u0315\u0300\u05AE\u0300b", NormalForm::kNfc), "\u00E0\u05AE\u0300\u0315b");
  EXPECT_EQ(Normalize("\u0344", NormalForm::kNfc), "\u0308\u0301");  // never composed
  EXPECT_EQ(Normalize("\xFF"
                      "e\u0301",
                      NormalForm::kNfc),
            "\xFF\u00E9");
  EXPECT_EQ(Normalize("e\xFF"
                      "\u0301",
                      NormalForm::kNfc),
            "e\xFF"
            "\u0301");
  EXPECT_TRUE(IsMark(0x301));
  EXPECT_TRUE(IsMark(0x903));  // a spacing one
  EXPECT_FALSE(IsMark('a'));
  EXPECT_EQ(CombiningClass(0x301), 230);
  EXPECT_EQ(CombiningClass('a'), 0);
}

}  // namespace
}  // namespace tessera::data
