// SPDX-License-Identifier: Apache-2.0
// tokenizer.json files of every supported kind.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "data/tokenizer/sequence_pair.h"
#include "data/tokenizer/streaming_decoder.h"
#include "data/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kData = "data/tokenizer/testdata/tokenizer_json/";

// What the tokenizers library makes of the same texts; see make_tokenizer_json_goldens.py.
class TokenizerJsonTest : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerJsonTest, IdsRowsAndTextAreThoseOfTheLibrary) {
  const auto loaded = LoadTokenizer(kData + GetParam());
  ASSERT_TRUE(loaded.ok()) << Message(loaded.status());
  const Tokenizer& tokenizer = **loaded;
  const auto goldens = ReadJsonFile(kData + GetParam() + "/goldens.json");
  ASSERT_TRUE(goldens.ok()) << Message(goldens.status());
  ASSERT_GT(goldens->size(), 50u);
  for (const json& golden : *goldens) {
    SCOPED_TRACE(golden["text"].dump());
    const std::string text = golden["text"];
    const std::vector<int32_t> ids = tokenizer.Encode(text);
    EXPECT_EQ(json(ids), golden["ids"]);
    const auto row = EncodePair(tokenizer, text);
    ASSERT_TRUE(row.ok()) << Message(row.status());
    EXPECT_EQ(json(row->ids), golden["row"]);
    const auto pair = EncodePair(tokenizer, text, "hello");
    EXPECT_EQ(json(pair->ids), golden["pair"]);
    EXPECT_EQ(json(pair->token_type_ids), golden["types"]);
    EXPECT_EQ(ReplaceInvalidUtf8(tokenizer.Decode(ids)), golden["decoded"]);
    const std::string skipped = tokenizer.Decode(ids, {.skip_special = true});
    EXPECT_EQ(ReplaceInvalidUtf8(skipped), golden["skipped"]);
    // Words that end in a suffix get their blank from the word behind; see pipeline_tokenizer.h.
    if (std::string(GetParam()) == "variant_1") continue;
    StreamingDecoder decoder(tokenizer, {.skip_special = true});
    std::string streamed;
    for (const int32_t id : ids) streamed += decoder.Push(id);
    streamed += decoder.Finish();
    EXPECT_EQ(ReplaceInvalidUtf8(streamed), golden["skipped"]);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, TokenizerJsonTest,
                         testing::Values("t5", "albert", "llama", "bert", "bert_cased", "gpt",
                                         "variant_0", "variant_1", "variant_2", "variant_3"));

class TokenizerJsonFileTest : public testing::Test {
 protected:
  TokenizerJsonFileTest() : folder_(testing::TempDir() + "/tokenizer_json") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    good_ = *ReadJsonFile(kData + "albert/tokenizer.json");
  }
  std::string Failure(const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(folder_ + "/tokenizer.json", text).ok());
    const auto loaded = LoadTokenizer(folder_);
    const std::string message = loaded.ok() ? "" : Message(loaded.status());
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  }
  // With the value at a place of the good file replaced.
  std::string Changed(const std::string& pointer, const json& value) {
    json bad = good_;
    bad[json::json_pointer(pointer)] = value;
    return Failure(bad.dump());
  }
  std::string folder_;
  json good_;
};

// Nine steps that each write a character ten times.
TEST_F(TokenizerJsonFileTest, NormalizersDoNotGrowATextWithoutEnd) {
  json chain = json::array();
  for (int i = 0; i < 9; ++i) {
    chain.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaaaa"}});
  }
  json growing = good_;
  growing["normalizer"] = {{"type", "Sequence"}, {"normalizers", chain}};
  ASSERT_TRUE(WriteFileAtomically(folder_ + "/tokenizer.json", growing.dump()).ok());
  const auto loaded = LoadTokenizer(folder_);
  ASSERT_TRUE(loaded.ok()) << Message(loaded.status());
  EXPECT_GT((*loaded)->Encode("b").size(), 0u);
  EXPECT_THROW((*loaded)->Encode("aaaaaaaaaa"), Error);
}

TEST_F(TokenizerJsonFileTest, WhatIsNotSupportedIsNamedWithItsPlace) {
  EXPECT_EQ(Failure(good_.dump()), "");
  const auto expect = [&](const std::string& pointer, const json& value,
                          std::vector<std::string> parts) {
    const std::string message = Changed(pointer, value);
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << pointer << " gave: " << message;
    }
  };
  expect("/normalizer/normalizers/2", {{"type", "Other"}},
         {"tokenizer.json: normalizer.normalizers[2]: type Other is not supported"});
  expect("/normalizer", 7, {"normalizer: 7 is not supported"});
  expect("/normalizer/normalizers/6/pattern", {{"Regex", "(a"}}, {"normalizers[6].pattern"});
  expect("/normalizer/normalizers/5/precompiled_charsmap", "AAAA", {"not a character map"});
  expect("/normalizer/normalizers/5/precompiled_charsmap", "?", {"not a character map"});
  expect("/pre_tokenizer", {{"type", "UnicodeScripts"}}, {"pre_tokenizer: type UnicodeScripts"});
  expect("/pre_tokenizer", {{"type", "CharDelimiterSplit"}, {"delimiter", "ab"}},
         {"pre_tokenizer.delimiter: not one character"});
  expect("/pre_tokenizer/prepend_scheme", "last", {"pre_tokenizer.prepend_scheme", "last"});
  expect("/decoder", {{"type", "CTC"}}, {"decoder: type CTC"});
  expect("/post_processor", {{"type", "Other"}}, {"post_processor: type Other"});
  expect("/post_processor/single", json::array(), {"post_processor.single", "once"});
  expect("/post_processor/single/0", {{"SpecialToken", {{"id", "[XXX]"}, {"type_id", 0}}}},
         {"post_processor.single[0]", "no special token"});
  expect("/model/type", "Other", {"model: type Other"});
  expect("/model/type", "WordLevel", {"model.vocab", "not a JSON object"});
  expect("/model/vocab/3", {"x"}, {"model.vocab[3]"});
  expect("/model/vocab/3/1", "x", {"model.vocab[3]"});
  expect("/model/unk_id", 100000, {"model.unk_id"});
  expect("/model", nullptr, {"model: not an object"});
  expect("/added_tokens/0/single_word", 1, {"added_tokens[0].single_word"});
  expect("/added_tokens/0/id", 1 << 30, {"added_tokens[0]"});
  expect("/added_tokens", 3, {"added_tokens: not an array"});
}

// What the tokenizers library makes of parts that no file of testdata has.
TEST_F(TokenizerJsonFileTest, OtherParts) {
  using Ids = std::vector<int32_t>;
  struct Case {
    std::string text;
    Ids ids;
    std::string decoded;
  };
  const auto check = [&](const json& file, const std::vector<Case>& cases) {
    ASSERT_EQ(Failure(file.dump()), "");
    const auto tokenizer = LoadTokenizer(folder_);
    for (const Case& c : cases) {
      EXPECT_EQ((*tokenizer)->Encode(c.text), c.ids) << c.text;
      EXPECT_EQ((*tokenizer)->Decode(c.ids), c.decoded) << c.text;
    }
  };
  const auto words = [](const json& vocab) {
    return json{{"type", "WordLevel"}, {"vocab", vocab}, {"unk_token", "<unk>"}};
  };
  check({{"normalizer", {{"type", "Nmt"}}},
         {"pre_tokenizer", {{"type", "CharDelimiterSplit"}, {"delimiter", "_"}}},
         {"model", words({{"<unk>", 0}, {"a b", 1}, {"c", 2}, {" d", 3}, {"cd", 4}})}},
        {{"a b_c", {1, 2}, "a b c"},
         {"a\tb__c_x", {1, 2, 0}, "a b c <unk>"},
         {"c\x01"
          "d",
          {4},
          "cd"},
         {"\u200Bd_a\u2581b", {3, 1}, " d a b"},
         {"\uFEFFd\x7F_c\u009F", {3, 2}, " d c"},
         {"_", {}, ""},
         {"\u0085c", {0}, "<unk>"}});
  check({{"normalizer", {{"type", "ByteLevel"}}},
         {"model", words({{"<unk>", 0}, {"aĠÃ©", 1}, {"a", 2}})}},
        {{"a é", {1}, "aĠÃ©"}, {"a", {2}, "a"}, {"a b", {0}, "<unk>"}});
  check({{"normalizer", {{"type", "BertNormalizer"}, {"clean_text", false}}},
         {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
         {"model",
          {{"type", "WordPiece"},
           {"vocab",
            {{"[UNK]", 0},
             {"a", 1},
             {"\x01"
              "b",
              2},
             {"b", 3},
             {"中", 4},
             {"e", 5},
             {"a\uFFFD", 6}}}}}},
        {{"A\x01"
          "b",
          {0},
          "[UNK]"},
         {"\x01"
          "B a",
          {2, 1},
          "\x01"
          "b a"},
         {"a\tb", {1, 3}, "a b"},
         {"中a É", {4, 1, 5}, "中 a e"},
         {"a\uFFFD", {6}, "a\uFFFD"},
         {"a\u200Bb", {0}, "[UNK]"},
         {"\u00A0b", {3}, "b"}});
}

TEST_F(TokenizerJsonFileTest, NamesOfSpecialTokens) {
  ASSERT_TRUE(WriteFileAtomically(folder_ + "/tokenizer_config.json",
                                  R"({"cls_token": "[CLS]", "mask_token": {"content": "[MASK]"}})")
                  .ok());
  ASSERT_EQ(Failure(good_.dump()), "");
  const auto tokenizer = LoadTokenizer(folder_);
  EXPECT_EQ((*tokenizer)->mask_id(), (*tokenizer)->FindSpecial("[MASK]"));
  EXPECT_TRUE((*tokenizer)->cls_id().has_value());
  EXPECT_EQ((*tokenizer)->pad_id(), std::nullopt);
  const std::string copy = folder_ + "/copy";
  fs::create_directories(copy);
  ASSERT_TRUE((*tokenizer)->Save(copy).ok());
  const auto again = LoadTokenizer(copy);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->Fingerprint(), (*tokenizer)->Fingerprint());
  EXPECT_EQ((*again)->mask_id(), (*tokenizer)->mask_id());
  ASSERT_TRUE(
      WriteFileAtomically(folder_ + "/tokenizer_config.json", R"({"eos_token": "<nowhere>"})")
          .ok());
  const auto added = LoadTokenizer(folder_);
  ASSERT_TRUE(added.ok()) << Message(added.status());
  EXPECT_EQ((*added)->eos_id(), (*tokenizer)->vocab_size());  // as transformers adds it
}

TEST_F(TokenizerJsonFileTest, HostileFilesAreRefusedOrUsable) {
  for (const char* name : {"albert", "llama", "bert", "gpt", "variant_1"}) {
    const std::string text = *ReadFile(kData + name + "/tokenizer.json");
    for (size_t i = 1; i < text.size(); i += text.size() / 40) {
      EXPECT_NE(Failure(text.substr(0, i)), "");
    }
    // Every value of the upper levels replaced by others.
    const json root = json::parse(text, nullptr, false);
    for (const auto& [part, content] : root.items()) {
      if (!content.is_object()) continue;
      for (const auto& [key, value] : content.items()) {
        for (const json& other : {json(), json(-1), json(1e300), json("x"), json::array({1, "a"}),
                                  json::object({{"type", 3}}), json(true)}) {
          json bad = root;
          bad[part][key] = other;
          if (!Failure(bad.dump()).empty()) continue;
          const auto tokenizer = LoadTokenizer(folder_);
          (*tokenizer)->Decode((*tokenizer)->Encode("hello \xFF Wörld 12 [MASK]</s>"));
        }
      }
    }
  }
  EXPECT_NE(Failure(std::string(100000, '[')).find("deeper"), std::string::npos);
}

}  // namespace
}  // namespace tessera::data
