// SPDX-License-Identifier: Apache-2.0
// UTF-8, the byte and character tokenizers, decoding piece by piece, and kinds of tokenizers.
#include "data/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/char_tokenizer.h"
#include "data/tokenizer/streaming_decoder.h"
#include "data/tokenizer/tokenizer_kind.h"

namespace tessera::data {
namespace {

TEST(Utf8Test, FindsTheFirstBadByte) {
  EXPECT_EQ(FindInvalidUtf8(""), kNoInvalidUtf8);
  EXPECT_EQ(FindInvalidUtf8("plain ascii, longer than eight bytes"), kNoInvalidUtf8);
  EXPECT_EQ(FindInvalidUtf8("\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80\xF4\x8F\xBF\xBF"),
            kNoInvalidUtf8);
  EXPECT_EQ(FindInvalidUtf8("0123456789\xFFxyz"), 10u);
  EXPECT_EQ(FindInvalidUtf8("ab\xC0\xAF"), 2u);        // overlong
  EXPECT_EQ(FindInvalidUtf8("ab\xE0\x80\x80"), 2u);    // overlong
  EXPECT_EQ(FindInvalidUtf8("a\xED\xA0\x80"), 1u);     // surrogate
  EXPECT_EQ(FindInvalidUtf8("\xF4\x90\x80\x80"), 0u);  // beyond U+10FFFF
  EXPECT_EQ(FindInvalidUtf8("\xF0\x8F\xBF\xBF"), 0u);  // overlong
  EXPECT_EQ(FindInvalidUtf8("abc\xE4\xB8"), 3u);       // cut
  EXPECT_EQ(FindInvalidUtf8("\x80"), 0u);
  EXPECT_EQ(ReplaceInvalidUtf8("a\xFF"
                               "b\xE4\xB8"),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
}

// What bytes.decode("utf-8", "replace") of Python 3.13 gives, with ? for U+FFFD.
TEST(Utf8Test, ReplacesEachCutCharacterOnce) {
  const std::pair<std::string, std::string> cases[] = {
      {"\xE4\xBD"
       "a",
       "?a"},
      {"\xF0\x9F\x98 x", "? x"},
      {"\xF0\x9F\x98", "?"},
      {"\xF0\x9F\xF0\x9F\x98\x80", "?\xF0\x9F\x98\x80"},
      {"\xBD\xBD", "??"},
      {"\xE4\xE4\xBD\xA0", "?\xE4\xBD\xA0"},
      {"\xC3", "?"},
      {"\xC3\xC3\xA9", "?\xC3\xA9"},
      {"\xC0\xAF", "??"},            // overlong
      {"\xE0\x80\x80", "???"},       // overlong
      {"\xED\xA0\x80", "???"},       // surrogate
      {"\xF4\x90\x80\x80", "????"},  // beyond U+10FFFF
      {"\xF0\x8F\xBF\xBF", "????"},  // overlong
      {"\xF5\x80\xFF", "???"},       // no character begins so
      {"\xF1\x80\x80\x41", "?A"},    //
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "????A"},
  };
  for (const auto& [bytes, shown] : cases) {
    std::string expected;
    for (const char c : shown) {
      c == '?' ? AppendUtf8(kReplacementCharacter, &expected) : expected.push_back(c);
    }
    EXPECT_EQ(ReplaceInvalidUtf8(bytes), expected);
  }
}

TEST(Utf8Test, EveryCodePointComesBack) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    std::string text;
    AppendUtf8(c, &text);
    const Utf8Char decoded = DecodeUtf8(text, 0);
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    ASSERT_EQ(decoded.valid, !surrogate) << static_cast<uint32_t>(c);
    if (surrogate) continue;
    ASSERT_EQ(decoded.code_point, c);
    ASSERT_EQ(static_cast<size_t>(decoded.length), text.size());
    // Every proper beginning of it can be completed, itself not.
    for (size_t n = 1; n < text.size(); ++n) {
      ASSERT_EQ(IncompleteUtf8Suffix("x" + text.substr(0, n)), n);
    }
    ASSERT_EQ(IncompleteUtf8Suffix(text), 0u);
  }
  EXPECT_EQ(IncompleteUtf8Suffix("\xE0\x80"), 0u);  // can never become a character
  EXPECT_EQ(IncompleteUtf8Suffix("\xFF"), 0u);
  EXPECT_EQ(IncompleteUtf8Suffix(""), 0u);
}

TEST(ByteTokenizerTest, AnyBytes) {
  auto tokenizer = LoadTokenizer("byte");
  ASSERT_TRUE(tokenizer.ok());
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  const std::vector<int32_t> ids = (*tokenizer)->Encode(all);
  for (int b = 0; b < 256; ++b) EXPECT_EQ(ids[b], b);
  EXPECT_EQ((*tokenizer)->Decode(ids), all);
  EXPECT_EQ((*tokenizer)->vocab_size(), 257);
  EXPECT_EQ((*tokenizer)->eos_id(), 256);
  EXPECT_EQ((*tokenizer)->Encode("<|endoftext|>").size(), kEndOfText.size());
  const std::vector<int32_t> ended = {65, 256};
  EXPECT_EQ((*tokenizer)->Decode(ended), "A<|endoftext|>");
  EXPECT_EQ((*tokenizer)->Decode(ended, {.skip_special = true}), "A");
}

TEST(CharTokenizerTest, IdsAndUnknownCharacters) {
  const auto made = CharTokenizer::Train(
      "b\xC3\xA9"
      "a\xE4\xB8\xAD"
      "aa\n");
  ASSERT_TRUE(made.ok());
  const CharTokenizer& tokenizer = **made;
  EXPECT_EQ(tokenizer.vocab_size(), 7);
  EXPECT_EQ(tokenizer.Encode("\nab\xC3\xA9\xE4\xB8\xAD"), (std::vector<int32_t>{2, 3, 4, 5, 6}));
  EXPECT_EQ(tokenizer.Encode("az\xFF\xE4\xB8\xADz"), (std::vector<int32_t>{3, 0, 0, 6, 0}));
  EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{3, 0, 6, 99, -1}), "a\xEF\xBF\xBD\xE4\xB8\xAD");
  EXPECT_EQ(tokenizer.eos_id(), 1);
  EXPECT_THROW(CharTokenizer({U'b', U'a'}), Error);
}

TEST(CharTokenizerTest, TrainingNamesTheBadByte) {
  const auto made = CharTokenizer::Train("good \xC3\xA9 \xE4\xB8 bad", "input.txt");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(Message(made.status()), "input.txt: invalid UTF-8 at byte 8");
}

TEST(TokenizerFilesTest, ByteAndCharFoldersLoad) {
  const std::string folder = ::testing::TempDir() + "/own_tokenizers";
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(ByteTokenizer().Save(folder).ok());
  auto loaded = LoadTokenizer(folder);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->vocab_size(), 257);

  using std::string_literals::operator""s;
  const std::string known = "quote\" back\\slash \n\t\0 \x7F \xE4\xB8\xAD \xF0\x9F\x98\x80"s;
  const std::string text = known + " \xEF\xBF\xBD";
  const auto made = CharTokenizer::Train(known);
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_TRUE((*made)->Save(folder).ok());
  loaded = LoadTokenizer(folder);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->Encode(text), (*made)->Encode(text));
  EXPECT_EQ((*loaded)->Fingerprint(), (*made)->Fingerprint());
  EXPECT_NE((*loaded)->Fingerprint(), ByteTokenizer().Fingerprint());

  for (const char* bad : {"[]", "{\"characters\": 1}", "{\"characters\": [1]}",
                          "{\"characters\": [\"\"]}", "{\"characters\": [\"ab\"]}",
                          "{\"characters\": [\"b\", \"a\"]}", "{\"characters\": [\"a\", \"a\"]}"}) {
    ASSERT_TRUE(WriteFileAtomically(folder + "/char_vocab.json", bad).ok());
    const auto failed = LoadTokenizer(folder);
    ASSERT_FALSE(failed.ok()) << bad;
    EXPECT_NE(Message(failed.status()).find("char_vocab.json"), std::string::npos);
  }
  EXPECT_FALSE(LoadTokenizer("char").ok());
}

TEST(StreamingDecoderTest, NeverHalfACharacter) {
  std::random_device device;
  const uint64_t seed = device();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const ByteTokenizer tokenizer;
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = 0; i < 30; ++i) {
      char32_t c = random() % (round % 2 ? 0x110000 : 0x800);
      if (c >= 0xD800 && c < 0xE000) c = U'!';
      AppendUtf8(c, &text);
    }
    StreamingDecoder decoder(tokenizer);
    std::string joined;
    for (const int32_t id : tokenizer.Encode(text)) {
      const std::string part = decoder.Push(id);
      EXPECT_EQ(FindInvalidUtf8(part), kNoInvalidUtf8);
      joined += part;
    }
    EXPECT_EQ(decoder.Finish(), "");
    EXPECT_EQ(joined, text);
    // Any bytes come through whole, and soon.
    std::string noise;
    for (int i = 0; i < 30; ++i) noise += static_cast<char>(random() & 0xFF);
    joined.clear();
    for (size_t i = 0; i < noise.size(); ++i) {
      joined += decoder.Push(static_cast<uint8_t>(noise[i]));
      EXPECT_GE(joined.size() + 3, i + 1);
    }
    EXPECT_EQ(joined + decoder.Finish(), noise);
  }
}

TEST(StreamingDecoderTest, SpecialTokens) {
  const ByteTokenizer tokenizer;
  StreamingDecoder quiet(tokenizer, {.skip_special = true});
  EXPECT_EQ(quiet.Push('a'), "a");
  EXPECT_EQ(quiet.Push(ByteTokenizer::kEosId), "");
  EXPECT_EQ(quiet.PushShown(ByteTokenizer::kEosId), kEndOfText);
  EXPECT_EQ(quiet.Push(0xE4), "");
  EXPECT_EQ(quiet.Finish(), "\xE4");
}

// A kind of this program alone.
const TokenizerRegistration bytes_of_nobody({
    .files = "nobody.model",
    .claim =
        [](const TokenizerFolder& folder) {
          return folder.Has("nobody.model") ? Claim::kModel : Claim::kNone;
        },
    .load = [](const std::string&) -> StatusOr<std::unique_ptr<Tokenizer>> {
      return std::make_unique<ByteTokenizer>();
    },
});

class TokenizerKindTest : public testing::Test {
 protected:
  TokenizerKindTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void Put(const std::string& name, const std::string& content) {
    ASSERT_TRUE(WriteFileAtomically(JoinPath(folder_, name), content).ok());
  }
  const std::string folder_ = testing::TempDir() + "/kinds";
};

TEST_F(TokenizerKindTest, WhatIsRegisteredIsRead) {
  Put("vocab.json", "{}");
  EXPECT_NE(Message(LoadTokenizer(folder_).status()).find("merges.txt"), std::string::npos);
  Put("nobody.model", "");
  const auto loaded = LoadTokenizer(folder_);
  ASSERT_TRUE(loaded.ok()) << Message(loaded.status());
  EXPECT_EQ((*loaded)->vocab_size(), 257);
}

TEST_F(TokenizerKindTest, NoTokenizerListsWhatIsLinkedIn) {
  EXPECT_EQ(Message(LoadTokenizer(folder_).status()),
            folder_ +
                ": no tokenizer here; known are a SentencePiece model; char_vocab.json + "
                "tokenizer_config.json of "
                "TesseraCharTokenizer; nobody.model; tokenizer.json; tokenizer_config.json of "
                "TesseraByteTokenizer; vocab.json + merges.txt or encoder.json + vocab.bpe; "
                "vocab.txt");
}

// Whatever lies beside a SentencePiece model but a tokenizer.json.
TEST_F(TokenizerKindTest, AModelIsReadBeforeOtherFiles) {
  Put("vocab.json", "{}");
  Put("vocab.txt", "a");
  Put("spiece.model", "");
  EXPECT_EQ(Message(LoadTokenizer(folder_).status()),
            JoinPath(folder_, "spiece.model") + ": the file is empty");
  Put("tokenizer.json", "{}");
  EXPECT_NE(Message(LoadTokenizer(folder_).status()).find("tokenizer.json: model"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::data
