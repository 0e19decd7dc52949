// SPDX-License-Identifier: Apache-2.0
// WordPiece, and rows of one or two texts, against what bert_tokenizer.py recorded from
// transformers' BertTokenizerFast.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/json_text.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/sequence_pair.h"
#include "data/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

class WordPieceTest : public testing::TestWithParam<const char*> {
 protected:
  std::string Folder() const {
    return std::string("data/tokenizer/testdata/word_piece/") + GetParam();
  }
  std::unique_ptr<Tokenizer> Load() const {
    auto tokenizer = LoadTokenizer(Folder());
    EXPECT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
    return *std::move(tokenizer);
  }
  nlohmann::json Goldens() const { return *ReadJsonFile(Folder() + "/goldens.json"); }
};

TEST_P(WordPieceTest, IdsAndTexts) {
  const auto tokenizer = Load();
  const nlohmann::json goldens = Goldens();
  ASSERT_GT(goldens["cases"].size(), 15u);
  for (const nlohmann::json& item : goldens["cases"]) {
    const auto text = item["text"].get<std::string>();
    const auto ids = item["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer->Encode(text), ids) << text;
    EXPECT_EQ(tokenizer->Decode(ids), item["decoded"].get<std::string>()) << text;
    EXPECT_EQ(tokenizer->Decode(ids, {.skip_special = true}), item["shown"].get<std::string>());
  }
}

TEST_P(WordPieceTest, Rows) {
  const auto tokenizer = Load();
  const nlohmann::json goldens = Goldens();
  ASSERT_GE(goldens["rows"].size(), 10u);
  for (const nlohmann::json& item : goldens["rows"]) {
    const auto first = item["first"].get<std::string>();
    std::optional<std::string_view> second;
    if (item["second"].is_string()) second = item["second"].get_ref<const std::string&>();
    const auto row =
        EncodePair(*tokenizer, first, second, {.max_length = item["max_length"].get<int64_t>()});
    ASSERT_TRUE(row.ok()) << Message(row.status());
    EXPECT_EQ(row->ids, item["ids"].get<std::vector<int32_t>>()) << item.dump();
    EXPECT_EQ(row->token_type_ids, item["types"].get<std::vector<int32_t>>()) << item.dump();
  }
}

TEST_P(WordPieceTest, SavedAndLoadedAgain) {
  const auto tokenizer = Load();
  const std::string folder = testing::TempDir() + "/word_piece_" + GetParam();
  fs::remove_all(folder);
  fs::create_directories(folder);
  ASSERT_TRUE(tokenizer->Save(folder).ok());
  const auto again = LoadTokenizer(folder);
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ((*again)->Fingerprint(), tokenizer->Fingerprint());
  EXPECT_EQ((*again)->vocab_size(), tokenizer->vocab_size());
  const nlohmann::json goldens = Goldens();
  for (const nlohmann::json& item : goldens["cases"]) {
    const auto text = item["text"].get<std::string>();
    EXPECT_EQ((*again)->Encode(text), tokenizer->Encode(text));
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, WordPieceTest, testing::Values("uncased", "cased", "plain"));

std::string Written(const std::string& name, const std::string& vocab, const std::string& config) {
  const std::string folder = testing::TempDir() + "/word_piece_" + name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::ofstream(folder + "/vocab.txt") << vocab;
  if (!config.empty()) std::ofstream(folder + "/tokenizer_config.json") << config;
  return folder;
}
constexpr const char* kSpecials = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";

TEST(WordPieceFilesTest, WithoutAConfigurationTextIsLowered) {
  const auto tokenizer =
      LoadTokenizer(Written("bare", std::string(kSpecials) + "ab\r\n##c\nab", ""));
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  EXPECT_EQ((*tokenizer)->vocab_size(), 8);
  EXPECT_EQ((*tokenizer)->Encode("ABC \xFFzz ab"), (std::vector<int32_t>{7, 6, 1, 7}));
  EXPECT_EQ((*tokenizer)->cls_id(), 2);
  EXPECT_EQ((*tokenizer)->mask_id(), 4);
}

TEST(WordPieceFilesTest, WhatIsWrongIsNamed) {
  const std::string vocab = std::string(kSpecials) + "a\n";
  const auto failure = [&](const std::string& text, const std::string& config) {
    const auto tokenizer = LoadTokenizer(Written("bad", text, config));
    EXPECT_FALSE(tokenizer.ok());
    return Message(tokenizer.status());
  };
  const auto config = [](const std::string& more) {
    return R"({"tokenizer_class": "BertTokenizer", )" + more + "}";
  };
  EXPECT_NE(failure("a\nb\n", "").find("unk_token [UNK] is not in the vocabulary"),
            std::string::npos);
  EXPECT_NE(failure("", "").find("is empty"), std::string::npos);
  EXPECT_NE(failure("a\n\xFF\n", "").find("invalid UTF-8 at byte 2"), std::string::npos);
  EXPECT_NE(failure(vocab, config(R"("do_lower_case": 1)")).find("do_lower_case"),
            std::string::npos);
  EXPECT_NE(failure(vocab, config(R"("do_basic_tokenize": false)")).find("do_basic_tokenize"),
            std::string::npos);
  EXPECT_NE(failure(vocab, config(R"("added_tokens_decoder": {"x": {}})")).find("added token"),
            std::string::npos);
  EXPECT_NE(failure(vocab, config(R"("added_tokens_decoder": {"99999999": {"content": "q"}})"))
                .find("id"),
            std::string::npos);
  EXPECT_NE(failure(vocab, "{").find("tokenizer_config.json"), std::string::npos);
}

TEST(SequencePairTest, WhatCannotBeBuiltIsRefused) {
  const ByteTokenizer bytes;
  EXPECT_FALSE(EncodePair(bytes, "a").ok());
  const auto tokenizer = LoadTokenizer("data/tokenizer/testdata/word_piece/uncased");
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_TRUE(EncodePair(**tokenizer, "a", "b", {.max_length = 3}).ok());
  const auto row = EncodePair(**tokenizer, "a", "b", {.max_length = 2});
  ASSERT_FALSE(row.ok());
  EXPECT_NE(Message(row.status()).find("no room for the 3 special tokens"), std::string::npos);
}

TEST(SequencePairTest, RobertasTemplate) {
  const std::string folder = testing::TempDir() + "/roberta";
  fs::create_directories(folder);
  std::ofstream(folder + "/vocab.json")
      << R"({"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "b": 5, "Ġ": 6, "<mask>": 7})";
  std::ofstream(folder + "/merges.txt") << "#version: 0.2\n";
  std::ofstream(folder + "/tokenizer_config.json") << R"({"tokenizer_class": "RobertaTokenizer"})";
  const auto tokenizer = LoadTokenizer(folder);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  const auto row = EncodePair(**tokenizer, "a <mask>", "ba");
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->ids, (std::vector<int32_t>{0, 4, 7, 2, 2, 5, 4, 2}));
  EXPECT_EQ(row->token_type_ids, std::vector<int32_t>(8, 0));
  // What it saves says so too.
  const std::string saved = testing::TempDir() + "/roberta_saved";
  fs::remove_all(saved);
  fs::create_directories(saved);
  ASSERT_TRUE((*tokenizer)->Save(saved).ok());
  const nlohmann::json json = *ReadJsonFile(saved + "/tokenizer.json");
  EXPECT_EQ(json["post_processor"]["type"], "RobertaProcessing");
  const auto again = LoadTokenizer(saved);
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(EncodePair(**again, "a <mask>", "ba")->ids, row->ids);
}

}  // namespace
}  // namespace tessera::data
