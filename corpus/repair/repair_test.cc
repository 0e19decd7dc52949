// SPDX-License-Identifier: Apache-2.0
#include "corpus/repair/repair.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace tessera::corpus {
namespace {

std::string Repaired(std::string_view text) { return RepairText(text, {}); }

// What ftfy 6.3 (uncurl_quotes=False) makes of them, but where the header says otherwise.
TEST(RepairTest, KnownCases) {
  for (const auto& [broken, mended] : std::initializer_list<std::pair<const char*, const char*>>{
           {"plain\ttext\n", "plain\ttext\n"},
           {"The Mona Lisa doesnâ€™t have eyebrows.", "The Mona Lisa doesn’t have eyebrows."},
           {"schÃ¶n, cafÃ©", "schön, café"},
           {"l&#39;&eacute;t&eacute; &lt;3 &#x1F600; &unknown; &", "l'été <3 😀 &unknown; &"},
           {"<b>&amp;</b>", "<b>&amp;</b>"},
           {"doesnÃ¢â‚¬â„¢t", "doesn’t"},  // twice
           {"ðŸ˜€ ok", "😀 ok"},
           {"ä¸\u00ADæ–‡", "中文"},
           {"Â°C, Â£5", "°C, £5"},
           {"\xC2\x93quoted\xC2\x94\xC2\x85", "“quoted”…"},
           {"ﬁne ﬂow", "fine flow"},
           {"ＬＯＵＤ　１２３！", "LOUD 123!"},
           {"中文，ＡＢＣ！", "中文，ABC！"},
           {"ﾊﾝｶｸ", "ハンカク"},
           {"a\r\nb\rc\xE2\x80\xA8"
            "d",
            "a\nb\nc\nd"},
           {"\xEF\xBB\xBF"
            "a\x01\x7F\x1B[1;31mred\x1B[0m",
            "ared"},
           {"e\xCC\x81", "é"}}) {
    EXPECT_EQ(Repaired(broken), mended) << broken;
  }
}

// Texts that are right, with the characters that mistakes are made of.
TEST(RepairTest, LeavesWhatIsMeant) {
  for (const char* text :
       {"Il a dit « café »…", "“naïve café”", "È vero… perché“", "SÃO PAULO", "Ångström Ä",
        "Zażółć gęślą jaźń", "Привет, мир", "日本語のテキスト", "¿Qué? ¡Olé!", "crème brûlée—très",
        "Übergröße – ß", "déjà”", "20 °C ± 1", "ÄÖÜäöüß"}) {
    EXPECT_EQ(Repaired(text), text);
  }
}

TEST(RepairTest, EveryTwoByteLetterIsReadBack) {
  int wrong = 0;
  for (char32_t c = 0xC0; c < 0x180; ++c) {
    std::string good = "x", bad = "x";
    AppendUtf8(c, &good);
    for (size_t i = 1; i < good.size(); ++i) {
      AppendUtf8(static_cast<uint8_t>(good[i]), &bad);
    }
    wrong += Repaired(bad + "y") != RepairText(good + "y", {});
  }
  // Read as latin-1 these are two characters that texts may mean.
  EXPECT_LE(wrong, 40);
}

TEST(RepairTest, NormalForms) {
  EXPECT_EQ(RepairText("①é", {.form = NormalForm::kNfkc}), "1é");
  EXPECT_EQ(RepairText("e\xCC\x81", {.form = std::nullopt}), "e\xCC\x81");
}

}  // namespace
}  // namespace tessera::corpus
