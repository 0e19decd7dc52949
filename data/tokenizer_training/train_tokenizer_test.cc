// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer_training/train_tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <tuple>

#include "base/file.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

class TrainTokenizerTest : public testing::Test {
 protected:
  TrainTokenizerTest()
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
    return TrainTokenizer({root_ + "/text.txt"}, root_ + "/" + name, options);
  }
  std::unique_ptr<Tokenizer> Load(const std::string& name) {
    auto tokenizer = LoadTokenizer(root_ + "/" + name);
    EXPECT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
    return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
  }
  std::string root_;
};

TEST_F(TrainTokenizerTest, T5HasItsIdsAndGivesTextBack) {
  for (const char* type : {"unigram", "bpe"}) {
    const auto result = Train(type, {.type = type, .vocab_size = 48});
    ASSERT_TRUE(result.ok()) << Message(result.status());
    EXPECT_EQ(result->num_pieces, 48);
    EXPECT_EQ(result->num_ids, 148);
    EXPECT_EQ(result->num_texts, 400);
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
TEST_F(TrainTokenizerTest, TheTokenizerJsonGivesTheSameIds) {
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

TEST_F(TrainTokenizerTest, TheSameTextGivesTheSameBytes) {
  ASSERT_TRUE(Train("a", {.vocab_size = 48}).ok());
  ASSERT_TRUE(Train("b", {.vocab_size = 48}).ok());
  ASSERT_TRUE(Train("c", {.vocab_size = 48, .max_sentences = 300}).ok());
  for (const char* family : {"gpt2", "bert"}) {
    ASSERT_TRUE(Train("d", {.family = family, .vocab_size = 290}).ok());
    ASSERT_TRUE(Train("e", {.family = family, .vocab_size = 290}).ok());
    EXPECT_EQ(*ReadFile(root_ + "/d/tokenizer.json"), *ReadFile(root_ + "/e/tokenizer.json"));
  }
  EXPECT_EQ(*ReadFile(root_ + "/a/spiece.model"), *ReadFile(root_ + "/b/spiece.model"));
  EXPECT_NE(*ReadFile(root_ + "/a/spiece.model"), *ReadFile(root_ + "/c/spiece.model"));
}

TEST_F(TrainTokenizerTest, LowerCaseAndNormalization) {
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

TEST_F(TrainTokenizerTest, GlmAndChatGlmHaveTheirTokens) {
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

// The pieces that tokenizers 0.22 (BpeTrainer) makes of the same text.
TEST_F(TrainTokenizerTest, ByteLevelPiecesAreThoseOfHuggingFace) {
  std::ofstream(root_ + "/small.txt", std::ios::binary)
      << "aaaa aaab low low low lower lower newest newest newest widest widest\n\n"
         "It's 2024, it's 20245 -- café café!\r\n\r\n  low's";
  struct Case {
    const char* family;
    int64_t vocab_size;
    int32_t first;
    std::vector<std::string> pieces;
  };
  const std::vector<Case> cases = {
      {"gpt2",
       275,
       257,
       {"lo", " lo", " low", "aa", "es", "est", "'s", "ew", "new", " new", " newest", "02", "202",
        "af", "caf", "dest", "er", "idest"}},
      {"llama3",
       280,
       262,
       {"lo", " lo", " low", "aa", "es", "est", "'s", "ew", "new", " new", " newest", "02", "202",
        "af", "caf", "dest", "er", "idest"}},
      {"qwen2",
       277,
       259,
       {"lo", " lo", " low", "aa", "es", "est", "'s", "ew", "new", " new", " newest", "af", "caf",
        "dest", "er", "idest", "widest", "é"}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.family);
    const auto result = TrainTokenizer({root_ + "/small.txt"}, root_ + "/" + c.family,
                                       {.family = c.family, .vocab_size = c.vocab_size});
    ASSERT_TRUE(result.ok()) << Message(result.status());
    EXPECT_EQ(result->num_pieces, c.vocab_size);
    EXPECT_EQ(result->num_ids, c.vocab_size);
    EXPECT_EQ(result->num_texts, 1);
    const auto tokenizer = Load(c.family);
    ASSERT_NE(tokenizer, nullptr);
    for (size_t i = 0; i < c.pieces.size(); ++i) {
      const std::vector<int32_t> id = {c.first + static_cast<int32_t>(i)};
      EXPECT_EQ(tokenizer->Decode(id), c.pieces[i]);
    }
  }
}

TEST_F(TrainTokenizerTest, ByteLevelFamiliesHaveTheirTokensAndGiveTextBack) {
  const std::string text = "one\n\ttwo  \n\n three，字 ￿ 1234567" + std::string("\0x", 2);
  for (const auto& [family, end, begin] : {std::tuple("gpt2", "<|endoftext|>", "<|endoftext|>"),
                                           {"llama3", "<|end_of_text|>", "<|begin_of_text|>"},
                                           {"qwen2", "<|endoftext|>", ""}}) {
    SCOPED_TRACE(family);
    ASSERT_TRUE(Train("bytes", {.family = family, .vocab_size = 300}).ok());
    const auto tokenizer = Load("bytes");
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(tokenizer->eos_id(), tokenizer->FindSpecial(end));
    EXPECT_EQ(tokenizer->bos_id(), tokenizer->FindSpecial(begin));
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
    const bool is_qwen = family == std::string("qwen2");
    EXPECT_EQ(tokenizer->FindSpecial("<|im_end|>").has_value(), is_qwen);
    // Qwen's composes text.
    EXPECT_EQ(tokenizer->Encode("e\u0301") == tokenizer->Encode("\u00e9"), is_qwen);
    // Alone, without what other versions of transformers read.
    ASSERT_TRUE(fs::remove(root_ + "/bytes/vocab.json"));
    ASSERT_TRUE(fs::remove(root_ + "/bytes/merges.txt"));
    EXPECT_EQ(Load("bytes")->Encode(text), tokenizer->Encode(text));
  }
}

TEST_F(TrainTokenizerTest, BertHasItsTokensAndFoldsText) {
  const auto result = Train("bert", {.family = "bert", .vocab_size = 80, .lower_case = true});
  ASSERT_TRUE(result.ok()) << Message(result.status());
  EXPECT_EQ(result->model_file, "vocab.txt");
  const auto bert = Load("bert");
  EXPECT_EQ(bert->pad_id(), 0);
  EXPECT_EQ(bert->cls_id(), 2);
  EXPECT_EQ(bert->sep_id(), 3);
  EXPECT_EQ(bert->mask_id(), 4);
  EXPECT_EQ(bert->Encode("ZERO Séven"), bert->Encode("zero seven"));
  EXPECT_EQ(bert->Encode("zero").size(), 1u);  // words were learnt
  EXPECT_EQ(bert->Encode("q"), std::vector<int32_t>{1});
  ASSERT_TRUE(Train("cased", {.family = "bert", .vocab_size = 80}).ok());
  const auto cased = Load("cased");
  EXPECT_NE(cased->Encode("Zero"), cased->Encode("zero"));
}

// Whatever stood in the folder, what is loaded is what was made.
TEST_F(TrainTokenizerTest, AnotherFamilyTakesTheFolder) {
  for (const char* family : {"t5", "gpt2", "bert", "llama3", "t5"}) {
    SCOPED_TRACE(family);
    const TokenizerTrainingOptions options = {
        .family = family, .vocab_size = std::string_view(family) == "t5" ? 48 : 290};
    ASSERT_TRUE(Train("shared", options).ok());
    ASSERT_TRUE(Train("own", options).ok());
    EXPECT_EQ(Load("shared")->Encode("one two"), Load("own")->Encode("one two"));
    fs::remove_all(root_ + "/own");
  }
}

TEST_F(TrainTokenizerTest, SeveralMembersOfJsonLines) {
  std::ofstream(root_ + "/pairs.jsonl") << R"({"a": "one two", "b": "xyz xyz"})"
                                        << "\n";
  TokenizerTrainingOptions options = {.vocab_size = 13};
  options.json_keys = {"a", "b"};
  const auto result = TrainTokenizer({root_ + "/pairs.jsonl"}, root_ + "/pairs", options);
  ASSERT_TRUE(result.ok()) << Message(result.status());
  EXPECT_EQ(result->num_texts, 2);
  const auto tokenizer = Load("pairs");
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("xyz one")), "xyz one");
}

TEST_F(TrainTokenizerTest, WhatCannotBeTrainedIsNamed) {
  const auto failure = [&](const TokenizerTrainingOptions& options) {
    const auto result = Train("bad", options);
    EXPECT_FALSE(result.ok());
    EXPECT_FALSE(fs::exists(root_ + "/bad"));
    const std::string message = result.ok() ? "" : Message(result.status());
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  };
  EXPECT_NE(failure({.family = "gpt3"}).find("'gpt3'"), std::string::npos);
  EXPECT_NE(failure({.type = "word"}).find("'word'"), std::string::npos);
  EXPECT_NE(failure({.vocab_size = 3}).find("vocab_size must be at least 8, not 3"),
            std::string::npos);
  EXPECT_NE(failure({.vocab_size = 90000}).find("too high"), std::string::npos);
  EXPECT_NE(failure({.vocab_size = 10}).find("smaller"), std::string::npos);
  EXPECT_NE(failure({.normalization = "nfd"}).find("'nfd'"), std::string::npos);
  EXPECT_NE(failure({.lower_case = true, .normalization = "identity"}).find("identity"),
            std::string::npos);
  EXPECT_NE(failure({.character_coverage = 0}).find("character_coverage"), std::string::npos);
  EXPECT_NE(failure({.min_frequency = 5}).find("min_frequency is not for t5"), std::string::npos);
  EXPECT_NE(failure({.family = "gpt2", .vocab_size = 256}).find("256 is less than the 257"),
            std::string::npos);
  EXPECT_NE(failure({.family = "bert", .vocab_size = 9}).find("characters of the text"),
            std::string::npos);
  for (const TokenizerTrainingOptions& options :
       {TokenizerTrainingOptions{.family = "gpt2", .type = "unigram"},
        {.family = "bert", .type = "bpe"},
        {.family = "llama3", .lower_case = true},
        {.family = "bert", .normalization = "nfkc"},
        {.family = "qwen2", .character_coverage = 1},
        {.family = "gpt2", .max_sentences = 5}}) {
    EXPECT_NE(failure(options).find("not for " + options.family), std::string::npos);
  }
  std::ofstream(root_ + "/blank.txt") << "\n \n";
  EXPECT_FALSE(TrainTokenizer({root_ + "/blank.txt"}, root_ + "/bad", {}).ok());
  EXPECT_FALSE(TrainTokenizer({root_ + "/missing.txt"}, root_ + "/bad", {}).ok());
}

}  // namespace
}  // namespace tessera::data
