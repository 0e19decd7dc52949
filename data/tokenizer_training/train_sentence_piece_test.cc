// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer_training/train_sentence_piece.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

class TrainSentencePieceTest : public testing::Test {
 protected:
  TrainSentencePieceTest()
      : root_(testing::TempDir() + "/" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    std::ofstream text(root_ + "/text.txt", std::ios::binary);
    // The numbers from 0 on in words make a small language.
    const char* const kWords[] = {"Zero", "one", "two",   "three", "four",
                                  "five", "six", "seven", "eight", "nine"};
    for (int i = 0; i < 400; ++i) {
      for (int rest = i * 7919 % 10007, n = 0; n < 6; ++n, rest /= 7) {
        text << kWords[rest % 10] << (n % 2 == 0 ? " " : "-");
      }
      text << "，" << i % 10 << (i % 3 == 0 ? "\r\n" : "\n");
    }
    text << "\n   \n";
  }

  StatusOr<TokenizerTrainingResult> Train(const std::string& name,
                                          const TokenizerTrainingOptions& options) {
    return TrainSentencePiece({root_ + "/text.txt"}, root_ + "/" + name, options);
  }
  std::unique_ptr<Tokenizer> Load(const std::string& name) {
    auto tokenizer = LoadTokenizer(root_ + "/" + name);
    EXPECT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
    return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
  }
  std::string root_;
};

TEST_F(TrainSentencePieceTest, T5HasItsIdsAndGivesTextBack) {
  for (const char* type : {"unigram", "bpe"}) {
    const auto result = Train(type, {.type = type, .vocab_size = 48});
    ASSERT_TRUE(result.ok()) << Message(result.status());
    EXPECT_EQ(result->num_pieces, 48);
    EXPECT_EQ(result->num_ids, 148);
    EXPECT_EQ(result->num_sentences, 400);
    const auto tokenizer = Load(type);
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(tokenizer->pad_id(), 0);
    EXPECT_EQ(tokenizer->eos_id(), 1);
    EXPECT_EQ(tokenizer->FindSpecial("<extra_id_0>"), 147);
    EXPECT_EQ(tokenizer->FindSpecial("<extra_id_99>"), 48);
    const std::vector<int32_t> ids = tokenizer->Encode("three four-seven");
    EXPECT_EQ(tokenizer->Decode(ids), "three four-seven");
    EXPECT_LT(ids.size(), 16u) << type;  // fewer than the characters: words were learnt
  }
}

// tokenizer.json alone, for transformers, gives the ids of the model beside it, with every
// character map.
TEST_F(TrainSentencePieceTest, TheTokenizerJsonGivesTheSameIds) {
  for (const TokenizerTrainingOptions& options :
       {TokenizerTrainingOptions{.vocab_size = 48},
        {.type = "bpe", .vocab_size = 48, .normalization = "nfkc"},
        {.vocab_size = 48, .normalization = "identity"},
        {.family = "llama", .type = "bpe", .vocab_size = 300}}) {
    const auto result = Train("model", options);
    ASSERT_TRUE(result.ok()) << Message(result.status());
    const auto model = Load("model");
    ASSERT_TRUE(fs::remove(root_ + "/model/" + result->model_file));
    const auto whole = Load("model");
    ASSERT_NE(whole, nullptr);
    EXPECT_NE(whole->Fingerprint(), model->Fingerprint());  // another class
    for (const char* text :
         {"one two", " one", "  one  two ", "one\ttwo\n", "▁one", " ▁ one▁", "", " ", "１，２",
          "x</s> one", "</s>", " </s> two", "\ufeffone", "one-two-three 5 6 ", "é ﬁ", "a\xFF"}) {
      EXPECT_EQ(whole->Encode(text), model->Encode(text)) << options.normalization << ": " << text;
    }
  }
}

TEST_F(TrainSentencePieceTest, TheSameTextGivesTheSameBytes) {
  ASSERT_TRUE(Train("a", {.vocab_size = 48}).ok());
  ASSERT_TRUE(Train("b", {.vocab_size = 48}).ok());
  ASSERT_TRUE(Train("c", {.vocab_size = 48, .max_sentences = 300}).ok());
  EXPECT_EQ(*ReadFile(root_ + "/a/spiece.model"), *ReadFile(root_ + "/b/spiece.model"));
  EXPECT_NE(*ReadFile(root_ + "/a/spiece.model"), *ReadFile(root_ + "/c/spiece.model"));
}

TEST_F(TrainSentencePieceTest, LowerCaseAndNormalization) {
  ASSERT_TRUE(Train("folded", {.vocab_size = 48, .lower_case = true}).ok());
  const auto folded = Load("folded");
  EXPECT_EQ(folded->Encode("ZERO One"), folded->Encode("zero one"));
  EXPECT_EQ(folded->Decode(folded->Encode("Zero")), "zero");
  // NFKC makes an ASCII comma of a full-width one; `identity` keeps it.
  EXPECT_EQ(folded->Encode("one，"), folded->Encode("one,"));
  ASSERT_TRUE(Train("same", {.vocab_size = 48, .normalization = "identity"}).ok());
  const auto same = Load("same");
  EXPECT_EQ(same->Decode(same->Encode("Zero，")), "Zero，");
}

TEST_F(TrainSentencePieceTest, GlmAndChatGlmHaveTheirTokens) {
  const auto glm_result = Train("glm", {.family = "glm", .vocab_size = 48});
  ASSERT_TRUE(glm_result.ok()) << Message(glm_result.status());
  EXPECT_EQ(glm_result->num_ids, 57);
  const auto glm = Load("glm");
  for (const auto id : {glm->eos_id(), glm->cls_id(), glm->sep_id(), glm->mask_id(),
                        glm->FindSpecial("[gMASK]"), glm->FindSpecial("[sMASK]"),
                        glm->FindSpecial("<|startofpiece|>"), glm->FindSpecial("<|endofpiece|>")}) {
    ASSERT_TRUE(id.has_value());
    EXPECT_GE(*id, 48);
    EXPECT_LT(*id, 57);
  }
  const auto chat_result = Train("chat", {.family = "chatglm", .vocab_size = 390});
  ASSERT_TRUE(chat_result.ok()) << Message(chat_result.status());
  const auto chat = Load("chat");
  ASSERT_TRUE(chat->FindSpecial("[gMASK]") && chat->FindSpecial("<sop>") &&
              chat->FindSpecial("<eop>") && chat->mask_id());
  const std::string text = "one\n\ttwo     three，字" + std::string(100, ' ') + "five";
  EXPECT_EQ(chat->Decode(chat->Encode(text)), text);
  const auto llama_result = Train("llama", {.family = "llama", .vocab_size = 300});
  ASSERT_TRUE(llama_result.ok()) << Message(llama_result.status());
  const auto llama = Load("llama");
  EXPECT_EQ(llama->bos_id(), 1);
  EXPECT_EQ(llama->Decode(llama->Encode("two 字")), "two 字");
}

TEST_F(TrainSentencePieceTest, SeveralMembersOfJsonLines) {
  std::ofstream(root_ + "/pairs.jsonl") << R"({"a": "one two", "b": "xyz xyz"})"
                                        << "\n";
  TokenizerTrainingOptions options = {.vocab_size = 13};
  options.json_keys = {"a", "b"};
  const auto result = TrainSentencePiece({root_ + "/pairs.jsonl"}, root_ + "/pairs", options);
  ASSERT_TRUE(result.ok()) << Message(result.status());
  EXPECT_EQ(result->num_sentences, 2);
  const auto tokenizer = Load("pairs");
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("xyz one")), "xyz one");
}

TEST_F(TrainSentencePieceTest, WhatCannotBeTrainedIsNamed) {
  const auto failure = [&](const TokenizerTrainingOptions& options) {
    const auto result = Train("bad", options);
    EXPECT_FALSE(result.ok());
    EXPECT_FALSE(fs::exists(root_ + "/bad"));
    const std::string message = result.ok() ? "" : Message(result.status());
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  };
  EXPECT_NE(failure({.family = "bert"}).find("'bert'"), std::string::npos);
  EXPECT_NE(failure({.type = "word"}).find("'word'"), std::string::npos);
  EXPECT_NE(failure({.vocab_size = 3}).find("vocab_size must be at least 8, not 3"),
            std::string::npos);
  EXPECT_NE(failure({.vocab_size = 90000}).find("too high"), std::string::npos);
  EXPECT_NE(failure({.vocab_size = 10}).find("smaller"), std::string::npos);
  EXPECT_NE(failure({.normalization = "nfd"}).find("'nfd'"), std::string::npos);
  EXPECT_NE(failure({.lower_case = true, .normalization = "identity"}).find("identity"),
            std::string::npos);
  EXPECT_NE(failure({.character_coverage = 0}).find("character_coverage"), std::string::npos);
  std::ofstream(root_ + "/blank.txt") << "\n \n";
  EXPECT_FALSE(TrainSentencePiece({root_ + "/blank.txt"}, root_ + "/bad", {}).ok());
  EXPECT_FALSE(TrainSentencePiece({root_ + "/missing.txt"}, root_ + "/bad", {}).ok());
}

}  // namespace
}  // namespace tessera::data
