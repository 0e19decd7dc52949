// SPDX-License-Identifier: Apache-2.0
// What is unpacked is what src/tables/ says.
#include <strings.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "gtest/gtest.h"

#define register  // C++ has none

namespace {

// What src/unicode.c declares for these files.
using OnigCodePoint = unsigned int;
struct PoolPropertyNameCtype {
  short name;
  short ctype;
};
enum {
  EGCB_CR = 1,
  EGCB_LF,
  EGCB_Control,
  EGCB_Extend,
  EGCB_Prepend,
  EGCB_Regional_Indicator,
  EGCB_SpacingMark,
  EGCB_ZWJ,
  EGCB_L,
  EGCB_LV,
  EGCB_LVT,
  EGCB_T,
  EGCB_V,
};
enum {
  WB_ALetter = 1,
  WB_CR,
  WB_Double_Quote,
  WB_Extend,
  WB_ExtendNumLet,
  WB_Format,
  WB_Hebrew_Letter,
  WB_Katakana,
  WB_LF,
  WB_MidLetter,
  WB_MidNum,
  WB_MidNumLet,
  WB_Newline,
  WB_Numeric,
  WB_Regional_Indicator,
  WB_Single_Quote,
  WB_WSegSpace,
  WB_ZWJ,
};
struct Range {
  OnigCodePoint start;
  OnigCodePoint end;
  int type;
};
using EGCB_RANGE_TYPE = Range;
using WB_RANGE_TYPE = Range;

namespace original {
#include "third_party/oniguruma/src/tables/unicode_egcb_data.c"
#include "third_party/oniguruma/src/tables/unicode_property_data.c"
#include "third_party/oniguruma/src/tables/unicode_wb_data.c"

constexpr int kProperties = CODE_RANGES_NUM;
const std::string names(reinterpret_cast<const char*>(&unicode_prop_name_pool_contents),
                        sizeof(unicode_prop_name_pool_contents));
const Range* const egcb = EGCB_RANGES;
const Range* const wb = WB_RANGES;
}  // namespace original

namespace unpacked {
#include "third_party/oniguruma/unicode_egcb_data.c"
#include "third_party/oniguruma/unicode_property_data.c"
#include "third_party/oniguruma/unicode_wb_data.c"

const OnigCodePoint* RangesOf(int property) { return CodeRanges[property]; }
const Range* Egcb() { return EGCB_RANGES; }
const Range* Wb() { return WB_RANGES; }
}  // namespace unpacked

#undef CodeRanges

TEST(UnpackTest, Properties) {
  static_assert(CODE_RANGES_NUM == original::kProperties);
  for (int i = 0; i < original::kProperties; ++i) {
    const OnigCodePoint* const was = original::CodeRanges[i];
    const OnigCodePoint* const is = unpacked::RangesOf(i);
    ASSERT_EQ(is[0], was[0]) << i;
    EXPECT_EQ(std::memcmp(is, was, (1 + 2 * was[0]) * sizeof(*was)), 0) << i;
  }
}

TEST(UnpackTest, Names) {
  int count = 0;
  for (size_t at = 0; at < original::names.size();) {
    std::string name = original::names.c_str() + at;
    at += name.size() + 1;
    const auto* const was = original::unicode_lookup_property_name(name.data(), name.size());
    name[0] = static_cast<char>(name[0] - 'a' + 'A');
    const auto* const is = unpacked::unicode_lookup_property_name(name.data(), name.size());
    ASSERT_NE(is, nullptr) << name;
    EXPECT_EQ(is->ctype, was->ctype) << name;
    ++count;
  }
  EXPECT_EQ(count, TOTAL_KEYWORDS);
  for (const std::string name : {"", "alph", "alphaa", "zz"}) {
    EXPECT_EQ(unpacked::unicode_lookup_property_name(name.data(), name.size()), nullptr) << name;
  }
}

void ExpectSame(const Range* was, int was_count, const Range* is, int is_count) {
  ASSERT_EQ(is_count, was_count);
  for (int i = 0; i < was_count; ++i) {
    EXPECT_EQ(is[i].start, was[i].start) << i;
    EXPECT_EQ(is[i].end, was[i].end) << i;
    EXPECT_EQ(is[i].type, was[i].type) << i;
  }
}

TEST(UnpackTest, BordersOfCharactersAndWords) {
  ExpectSame(original::egcb, original::EGCB_RANGE_NUM, unpacked::Egcb(), unpacked::EGCB_RANGE_NUM);
  ExpectSame(original::wb, original::WB_RANGE_NUM, unpacked::Wb(), unpacked::WB_RANGE_NUM);
}

}  // namespace
