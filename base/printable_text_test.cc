// SPDX-License-Identifier: Apache-2.0
#include "base/printable_text.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(PrintableTextTest, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(PrintableText("plain \u00e4\u4e2d\U0001f600\n\tend"),
            "plain \u00e4\u4e2d\U0001f600\n\tend");
  EXPECT_EQ(PrintableText(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(PrintableText("\x1b[2J\r\x7f"), "\\x1b[2J\\x0d\\x7f");
  EXPECT_EQ(PrintableText("\xc2\x9b"
                          "31m"),
            "\\xc2\\x9b31m");  // a control character of two bytes
  for (const char* broken : {"\xff", "\xc0\x80", "\xe4\xb8", "\xed\xa0\x80", "\xf5\x80\x80\x80"}) {
    for (const char c : PrintableText(broken)) EXPECT_LT(static_cast<unsigned char>(c), 0x80);
  }
}

TEST(PrintableTextTest, LinesAreOneAndNotTooLong) {
  EXPECT_EQ(PrintableLine("a\nb", 100), "a\\x0ab");
  EXPECT_EQ(PrintableLine(std::string(10, 'x') + std::string(10, 'y'), 10),
            "xxxxx ... (10 bytes) ... yyyyy");
  std::string wide;
  for (int i = 0; i < 100; ++i) wide += "\u4e2d";
  const std::string cut = PrintableLine(wide, 50);
  EXPECT_EQ(PrintableText(cut), cut);  // no character is cut in two
  EXPECT_LT(cut.size(), 90u);
}

}  // namespace
}  // namespace tessera
