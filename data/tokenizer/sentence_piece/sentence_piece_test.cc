// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/sentence_piece/sentence_piece.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "data/tokenizer/sequence_pair.h"
#include "data/tokenizer/streaming_decoder.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kData = "data/tokenizer/testdata/sentence_piece/";

std::unique_ptr<Tokenizer> LoadData(const std::string& name) {
  auto tokenizer = LoadTokenizer(kData + name);
  if (!tokenizer.ok()) ADD_FAILURE() << Message(tokenizer.status());
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

std::string Streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  StreamingDecoder decoder(tokenizer, {.skip_special = true});
  std::string text;
  for (const int32_t id : ids) text += decoder.Push(id);
  return text + decoder.Finish();
}

// What transformers makes of the same texts; see make_sentence_piece_goldens.py.
class GoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTest, IdsRowsAndTextAreThoseOfTheOriginal) {
  const auto tokenizer = LoadData(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  const auto goldens = ReadJsonFile(kData + GetParam() + "/goldens.json");
  ASSERT_TRUE(goldens.ok()) << Message(goldens.status());
  ASSERT_GT(goldens->size(), 80u);
  for (const json& golden : *goldens) {
    const std::string text = golden["text"];
    SCOPED_TRACE(golden["text"].dump());
    const std::vector<int32_t> ids = tokenizer->Encode(text);
    EXPECT_EQ(json(ids), golden["ids"]);
    const auto row = EncodePair(*tokenizer, text);
    ASSERT_TRUE(row.ok()) << Message(row.status());
    EXPECT_EQ(json(row->ids), golden["row"]);
    EXPECT_EQ(ReplaceInvalidUtf8(tokenizer->Decode(ids)), golden["decoded"]);
    const std::string skipped = tokenizer->Decode(ids, {.skip_special = true});
    EXPECT_EQ(skipped, golden["skipped"]);
    for (const int32_t id : ids) EXPECT_LT(id, tokenizer->vocab_size());
    // Blanks around special tokens that are left out depend on the family (streaming_decoder.h).
    bool plain = true;
    for (const int32_t id : ids) plain &= !tokenizer->IsSpecial(id);
    if (plain) {
      EXPECT_EQ(ReplaceInvalidUtf8(Streamed(*tokenizer, ids)), skipped);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTest,
                         testing::Values("t5", "t5_legacy", "albert", "llama", "llama_legacy",
                                         "xlm_roberta", "glm", "chatglm", "chatglm_later"));

TEST(SentencePieceTest, SpecialIdsAreNamed) {
  const auto t5 = LoadData("t5");
  const auto size = static_cast<int32_t>(t5->vocab_size());
  EXPECT_EQ(t5->pad_id(), 0);
  EXPECT_EQ(t5->eos_id(), 1);
  EXPECT_EQ(t5->FindSpecial("<extra_id_0>"), size - 1);
  EXPECT_EQ(t5->FindSpecial("<extra_id_99>"), size - 100);
  EXPECT_EQ(t5->FindSpecial("<extra_id_100>"), std::nullopt);
  EXPECT_EQ(t5->FindSpecial("[gMASK]"), std::nullopt);
  // Parts of a text are no sentinels when special tokens are not looked for.
  for (const int32_t id : t5->Encode("a <extra_id_0>", {.parse_special = false})) {
    EXPECT_LT(id, size - 100);
  }

  const auto glm = LoadData("glm");
  const auto added = ReadJsonFile(kData + "glm/added_tokens.json");
  ASSERT_TRUE(added.ok());
  EXPECT_EQ(glm->mask_id(), (*added)["[MASK]"].get<int32_t>());
  EXPECT_EQ(glm->FindSpecial("[gMASK]"), (*added)["[gMASK]"].get<int32_t>());
  EXPECT_EQ(glm->FindSpecial("[sMASK]"), (*added)["[sMASK]"].get<int32_t>());
  EXPECT_EQ(glm->FindSpecial("<|startofpiece|>"), (*added)["<|startofpiece|>"].get<int32_t>());
  EXPECT_EQ(glm->FindSpecial("<|endofpiece|>"), (*added)["<|endofpiece|>"].get<int32_t>());
  EXPECT_EQ(glm->pad_id(), glm->eos_id());
  EXPECT_EQ(glm->Encode("a[gMASK]").back(), *glm->FindSpecial("[gMASK]"));

  const auto chat = LoadData("chatglm");
  const auto later = LoadData("chatglm_later");
  EXPECT_EQ(*chat->FindSpecial("[gMASK]") - 20000, *later->FindSpecial("[gMASK]"));
  EXPECT_EQ(chat->bos_id(), chat->FindSpecial("<sop>"));
  EXPECT_EQ(chat->eos_id(), chat->FindSpecial("<eop>"));
  EXPECT_EQ(chat->vocab_size() - 20000, later->vocab_size());
  EXPECT_EQ(chat->TokenBytes(5), "");  // an image
  EXPECT_EQ(chat->Decode(std::vector<int32_t>{5}), "");
}

TEST(SentencePieceTest, PairsOfTexts) {
  const auto chat = LoadData("chatglm_later");
  const auto row = EncodePair(*chat, "hello", "world");
  ASSERT_TRUE(row.ok()) << Message(row.status());
  std::vector<int32_t> expected = chat->Encode("hello");
  expected.push_back(*chat->FindSpecial("[gMASK]"));
  expected.push_back(*chat->FindSpecial("<sop>"));
  for (const int32_t id : chat->Encode("world")) expected.push_back(id);
  expected.push_back(*chat->FindSpecial("<eop>"));
  EXPECT_EQ(row->ids, expected);

  const auto t5 = LoadData("t5");
  const auto cut = EncodePair(*t5, "hello world, hello again", std::nullopt, {.max_length = 3});
  ASSERT_TRUE(cut.ok());
  ASSERT_EQ(cut->ids.size(), 3u);
  EXPECT_EQ(cut->ids.back(), 1);
  EXPECT_FALSE(EncodePair(*LoadData("glm"), "a", "b").ok());
}

TEST(SentencePieceTest, AnyBytesAreEncoded) {
  const std::string bytes("\xFF\xC3\x28 a\0b \xE4\xBD\x00", 11);
  for (const char* name : {"t5", "albert", "llama", "glm", "chatglm", "xlm_roberta"}) {
    const auto tokenizer = LoadData(name);
    const std::vector<int32_t> ids = tokenizer->Encode(bytes);
    EXPECT_FALSE(ids.empty()) << name;
    tokenizer->Decode(ids);
    tokenizer->Decode(std::vector<int32_t>{-1, 1 << 30});
    EXPECT_EQ(tokenizer->TokenBytes(-1), "");
  }
}

TEST(SentencePieceTest, WhatIsSavedLoadsAgain) {
  for (const char* name : {"t5", "albert", "llama", "glm", "chatglm"}) {
    const auto tokenizer = LoadData(name);
    const std::string folder = testing::TempDir() + "/saved_" + name;
    fs::create_directories(folder);
    ASSERT_TRUE(tokenizer->Save(folder).ok());
    const auto again = LoadTokenizer(folder);
    ASSERT_TRUE(again.ok()) << Message(again.status());
    EXPECT_EQ((*again)->Fingerprint(), tokenizer->Fingerprint()) << name;
    EXPECT_EQ((*again)->Encode("hello [gMASK] 你好"), tokenizer->Encode("hello [gMASK] 你好"));
  }
  EXPECT_NE(LoadData("t5")->Fingerprint(), LoadData("t5_legacy")->Fingerprint());
}

// What is written for transformers, which reads no models: the same ids from tokenizer.json alone.
class TokenizerJsonTest : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerJsonTest, GivesTheIdsOfTheModel) {
  const auto model = LoadData(GetParam());
  const std::string folder = testing::TempDir() + "/json_" + GetParam();
  fs::remove_all(folder);
  fs::create_directories(folder);
  ASSERT_TRUE(model->Save(folder).ok());
  // With the model beside it, it is known to be the model's own.
  const auto both = LoadTokenizer(folder);
  ASSERT_TRUE(both.ok()) << Message(both.status());
  EXPECT_EQ((*both)->Fingerprint(), model->Fingerprint());
  for (const SentencePieceFile& file : kSentencePieceFiles) fs::remove(JoinPath(folder, file.name));
  const auto alone = LoadTokenizer(folder);
  ASSERT_TRUE(alone.ok()) << Message(alone.status());
  EXPECT_EQ((*alone)->eos_id(), model->eos_id());
  EXPECT_EQ((*alone)->pad_id(), model->pad_id());
  EXPECT_EQ((*alone)->mask_id(), model->mask_id());
  const auto goldens = ReadJsonFile(kData + GetParam() + "/goldens.json");
  for (const json& golden : *goldens) {
    const std::string text = golden["text"];
    SCOPED_TRACE(golden["text"].dump());
    EXPECT_EQ(json((*alone)->Encode(text)), golden["ids"]);
    if (text.ends_with("</s>")) continue;  // T5 drops the second one
    EXPECT_EQ(json(EncodePair(**alone, text)->ids), golden["row"]);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TokenizerJsonTest,
                         testing::Values("t5", "t5_legacy", "albert", "llama", "llama_legacy",
                                         "xlm_roberta"));

// Somebody else's tokenizer.json beside a model is the truth.
TEST(SentencePieceTest, AnotherTokenizerJsonIsRead) {
  const std::string folder = testing::TempDir() + "/changed_json";
  fs::remove_all(folder);
  fs::create_directories(folder);
  ASSERT_TRUE(LoadData("t5")->Save(folder).ok());
  json root = *ReadJsonFile(folder + "/tokenizer.json");
  const auto next = static_cast<int64_t>(root["model"]["vocab"].size());
  root["added_tokens"].push_back({{"id", next}, {"content", "<new>"}, {"special", true}});
  ASSERT_TRUE(WriteFileAtomically(folder + "/tokenizer.json", root.dump()).ok());
  const auto tokenizer = LoadTokenizer(folder);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  EXPECT_EQ((*tokenizer)->FindSpecial("<new>"), next);
  const std::string copy = folder + "/copy";
  fs::create_directories(copy);
  ASSERT_TRUE((*tokenizer)->Save(copy).ok());
  EXPECT_EQ(*ReadFile(copy + "/tokenizer.json"), root.dump());
  EXPECT_TRUE(PathExists(copy + "/spiece.model"));
}

// What transformers keeps beside the vocabulary, and what it has by default in a family's class.
TEST(SentencePieceTest, TheConfigurationKeepsWhatItHadAndNamesWhatTheClassHas) {
  const std::string folder = testing::TempDir() + "/config";
  const std::string copy = folder + "/copy";
  fs::remove_all(folder);
  fs::create_directories(copy);
  fs::copy_file(kData + "t5/spiece.model", folder + "/spiece.model");
  const json templates = {{{"name", "default"}, {"template", "{{ a }}"}},
                          {{"name", "tools"}, {"template", "{{ b }}"}}};
  const json before = {
      {"tokenizer_class", "T5Tokenizer"}, {"model_max_length", 512}, {"pad_token", "</s>"},
      {"chat_template", templates},       {"legacy", false},         {"extra_ids", 3}};
  ASSERT_TRUE(WriteFileAtomically(folder + "/tokenizer_config.json", before.dump()).ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/chat_template.jinja", "{{ a }}").ok());
  const auto tokenizer = LoadTokenizer(folder);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  ASSERT_TRUE((*tokenizer)->Save(copy).ok());
  json after = *ReadJsonFile(copy + "/tokenizer_config.json");
  EXPECT_EQ(after["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(after["eos_token"], "</s>");
  EXPECT_EQ(after["model_input_names"], json({"input_ids", "attention_mask"}));
  for (const auto& [key, value] : before.items()) {
    if (key == "tokenizer_class") continue;
    EXPECT_EQ(after[key], value) << key;
  }
  EXPECT_EQ(*ReadFile(copy + "/chat_template.jinja"), "{{ a }}");
}

TEST(SentencePieceTest, ExtraSpecialTokensOfEitherVersion) {
  const std::string folder = testing::TempDir() + "/extra_tokens";
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::copy_file(kData + "llama/tokenizer.model", folder + "/tokenizer.model");
  for (const char* config :
       {R"({"additional_special_tokens": ["<a>"]})", R"({"extra_special_tokens": ["<a>"]})",
        R"({"extra_special_tokens": {"image_token": {"content": "<a>"}}})",
        R"({"extra_special_tokens": ["<a>"], "tokenizer_class": "TokenizersBackend"})"}) {
    ASSERT_TRUE(WriteFileAtomically(folder + "/tokenizer_config.json", config).ok());
    const auto tokenizer = LoadTokenizer(folder);
    ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
    EXPECT_EQ((*tokenizer)->FindSpecial("<a>"), (*tokenizer)->vocab_size() - 1) << config;
  }
}

class BadFolderTest : public testing::Test {
 protected:
  BadFolderTest() : folder_(testing::TempDir() + "/bad_sentence_piece") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    model_ = *ReadFile(kData + "t5/spiece.model");
  }
  std::string Failure(const std::string& model, const std::string& config = "{}",
                      const std::string& added = "{}") {
    EXPECT_TRUE(WriteFileAtomically(folder_ + "/spiece.model", model).ok());
    EXPECT_TRUE(WriteFileAtomically(folder_ + "/tokenizer_config.json", config).ok());
    EXPECT_TRUE(WriteFileAtomically(folder_ + "/added_tokens.json", added).ok());
    const auto loaded = LoadTokenizer(folder_);
    const std::string message = loaded.ok() ? "" : Message(loaded.status());
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  }
  std::string folder_;
  std::string model_;
};

TEST_F(BadFolderTest, DamagedModelsAreRefused) {
  EXPECT_EQ(Failure(model_), "");
  EXPECT_NE(Failure("").find("spiece.model: the file is empty"), std::string::npos);
  EXPECT_NE(Failure("{\"model\": 1}").find("not a SentencePiece model"), std::string::npos);
  int refused = 0;
  for (size_t length = 1; length < model_.size(); length += 37) {
    refused += !Failure(model_.substr(0, length)).empty();
  }
  EXPECT_GT(refused, 30);
  // Any byte changed: refused or usable, never a crash.
  for (size_t i = 0; i < model_.size(); i += 5) {
    std::string changed = model_;
    changed[i] = static_cast<char>(changed[i] ^ 0xA5);
    if (!Failure(changed).empty()) continue;
    const auto loaded = LoadTokenizer(folder_);
    ASSERT_TRUE(loaded.ok());
    (*loaded)->Decode((*loaded)->Encode("hello world, 深度 a\xFF"));
  }
}

TEST_F(BadFolderTest, ConfigurationsThatDoNotFitAreNamed) {
  const auto expect = [&](const std::string& config, const std::string& part) {
    const std::string message = Failure(model_, config);
    EXPECT_NE(message.find(part), std::string::npos) << config << " gave: " << message;
  };
  expect("[]", "not a JSON object");
  expect(R"({"tokenizer_class": "CamembertTokenizer"})", "CamembertTokenizer");
  expect(R"({"tokenizer_class": "ChatGLMTokenizer"})", "ChatGLMTokenizer with spiece.model");
  expect(R"({"legacy": 1})", "'legacy' must be true or false, not 1");
  expect(R"({"extra_ids": -1})", "extra_ids");
  expect(R"({"eos_token": 3})", "eos_token");
  expect(R"({"extra_ids": 5, "additional_special_tokens": ["<extra_id_0>"]})", "lists 1");
  expect(R"({"added_tokens_decoder": {"x": {"content": "a"}}})", "added token");
  expect(R"({"added_tokens_decoder": {"5": {"content": "a", "single_word": 1}}})", "single_word");
  expect(R"({"added_tokens_decoder": {"99999999": {"content": "a"}}})", "99999999");
  EXPECT_NE(Failure(model_, "{}", R"({"a": -1})").find("added_tokens.json"), std::string::npos);
}

}  // namespace
}  // namespace tessera::data
