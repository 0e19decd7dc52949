// SPDX-License-Identifier: Apache-2.0
#include "corpus/language/identify.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera::corpus {
namespace {

std::string CodeOf(std::string_view text) { return std::string(IdentifyLanguage(text).code); }

TEST(IdentifyTest, KnowsLanguagesAndScripts) {
  EXPECT_EQ(CodeOf("Two men are standing at the stove preparing food."), "en");
  EXPECT_EQ(CodeOf("Zwei Männer stehen am Herd und bereiten Essen zu."), "de");
  EXPECT_EQ(CodeOf("The committee will publish its annual report next week."), "en");
  EXPECT_EQ(CodeOf("Der Ausschuss veröffentlicht seinen Bericht nächste Woche."), "de");
  EXPECT_EQ(CodeOf("我们今天去公园散步，然后用 Python 写代码。"), "zh");
  EXPECT_EQ(CodeOf("これは日本語の文章です。"), "ja");
  EXPECT_EQ(CodeOf("이것은 한국어 문장입니다."), "ko");
  EXPECT_EQ(CodeOf("Это предложение на русском языке."), "ru");
  EXPECT_EQ(CodeOf("12345 --- !!!"), "und");
  EXPECT_EQ(CodeOf(""), "und");
}

TEST(IdentifyTest, ScoresSayHowSureThatIs) {
  EXPECT_GT(IdentifyLanguage("Two men are standing at the stove preparing food.").score, 0.99);
  const Language mixed = IdentifyLanguage("我们今天去公园散步 walking there");
  EXPECT_EQ(mixed.code, "zh");
  EXPECT_LT(mixed.score, 0.8);
}

TEST(IdentifyTest, OtherLanguagesOfLatinLettersAreNotKnown) {
  for (const char* text :
       {"Le comité publiera son rapport annuel la semaine prochaine, après avoir entendu tous les "
        "témoins qui ont été appelés à comparaître devant lui.",
        "Ukončení schůze výboru proběhlo podle očekávání a všichni zúčastnění odjeli domů, aby "
        "připravili další jednání.",
        "Toplantının ardından yapılan açıklamada yeni yönetmeliğin önümüzdeki hafta yürürlüğe "
        "gireceği bildirildi."}) {
    EXPECT_EQ(CodeOf(text), "und") << text;
  }
}

}  // namespace
}  // namespace tessera::corpus
