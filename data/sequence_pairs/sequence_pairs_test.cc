// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "core/batch_keys.h"
#include "data/dataset/subset.h"
#include "data/sequence_pairs/instruction_dataset.h"
#include "data/sequence_pairs/sequence_pair_dataset.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> Row(const Tensor& t, int64_t row) {
  const int64_t columns = t.shape()[1];
  const int64_t* begin = t.data<int64_t>() + row * columns;
  return {begin, begin + columns};
}

class SequencePairsTest : public testing::Test {
 protected:
  SequencePairsTest()
      : root_(testing::TempDir() + "/" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    t5_ = *LoadTokenizer("data/tokenizer/testdata/sentence_piece/t5");
    chat_ = *LoadTokenizer("data/tokenizer/testdata/sentence_piece/chatglm_later");
  }
  std::string Write(const std::string& name, const std::string& content) {
    std::ofstream(root_ + "/" + name, std::ios::binary) << content;
    return root_ + "/" + name;
  }
  std::string Cache() const { return root_ + "/cache/tokens"; }

  std::vector<int64_t> Ids(const Tokenizer& tokenizer, const std::string& text) {
    const std::vector<int32_t> ids = tokenizer.Encode(text);
    return {ids.begin(), ids.end()};
  }
  // The text's ids with </s>, padded to `columns`.
  std::vector<int64_t> T5Row(const std::string& text, size_t columns, int64_t padding) {
    std::vector<int64_t> ids = Ids(*t5_, text);
    ids.push_back(1);
    ids.resize(columns, padding);
    return ids;
  }
  std::string Failure(const SequencePairFiles& files, const SequencePairOptions& options = {}) {
    const auto opened = SequencePairDataset::Open(files, *t5_, Cache(), options);
    return opened.ok() ? "" : Message(opened.status());
  }
  // With the token that begins an answer, and numbered rounds.
  InstructionOptions Answers(InstructionOptions options = {}) const {
    options.answer_start = chat_->FindSpecial("<sop>");
    options.join_history = [](const std::string& prompt, const auto& history) {
      std::string text;
      for (size_t i = 0; i < history.size(); ++i) {
        text +=
            Concat("[Round ", i, "]\n问：", history[i].first, "\n答：", history[i].second, "\n");
      }
      return text + Concat("[Round ", history.size(), "]\n问：", prompt, "\n答：");
    };
    return options;
  }
  std::string ChatFailure(const std::string& content, const InstructionOptions& options = {}) {
    const auto opened = InstructionDataset::Open(Write("bad.json", content), *chat_, root_ + "/bad",
                                                 Answers(options));
    return opened.ok() ? "" : Message(opened.status());
  }

  std::string root_;
  std::unique_ptr<Tokenizer> t5_;
  std::unique_ptr<Tokenizer> chat_;
};

TEST_F(SequencePairsTest, AlignedFilesBecomePaddedRows) {
  const auto pairs =
      SequencePairDataset::Open({.source = Write("a.en", "the fox\r\nhello world again\n\n"),
                                 .target = Write("a.de", "der hund\nhallo\nleer")},
                                *t5_, Cache(), {.source_prefix = "say: "});
  ASSERT_TRUE(pairs.ok()) << Message(pairs.status());
  ASSERT_EQ((*pairs)->size(), 3);
  const std::vector<Sample> samples = {{.index = 1}, {.index = 0}, {.index = 2}};
  const auto batch = (*pairs)->MakeBatch(samples);
  ASSERT_TRUE(batch.ok());
  const size_t source = Ids(*t5_, "say: hello world again").size() + 1;
  const size_t target = std::max({Ids(*t5_, "der hund").size(), Ids(*t5_, "hallo").size(),
                                  Ids(*t5_, "leer").size()}) +
                        1;
  EXPECT_EQ(batch->at(keys::kInputIds).shape(), Shape({3, static_cast<int64_t>(source)}));
  EXPECT_EQ(batch->at(keys::kLabels).shape(), Shape({3, static_cast<int64_t>(target)}));
  EXPECT_EQ(Row(batch->at(keys::kInputIds), 0), T5Row("say: hello world again", source, 0));
  EXPECT_EQ(Row(batch->at(keys::kInputIds), 1), T5Row("say: the fox", source, 0));
  EXPECT_EQ(Row(batch->at(keys::kInputIds), 2), T5Row("say: ", source, 0));
  EXPECT_EQ(Row(batch->at(keys::kLabels), 0), T5Row("hallo", target, -100));
  EXPECT_EQ(Row(batch->at(keys::kLabels), 1), T5Row("der hund", target, -100));
  std::vector<int64_t> mask(Ids(*t5_, "say: the fox").size() + 1, 1);
  mask.resize(source, 0);
  EXPECT_EQ(Row(batch->at(keys::kAttentionMask), 1), mask);
  EXPECT_EQ(batch->rows, 3);
  EXPECT_EQ(batch->tokens, static_cast<int64_t>(3 * (source + target)));
  int64_t targets = 0;
  for (int64_t r = 0; r < 3; ++r) {
    for (const int64_t label : Row(batch->at(keys::kLabels), r)) targets += label != -100;
  }
  EXPECT_EQ(batch->targets, targets);
  // A batch is as wide as its own longest row.
  const std::vector<Sample> one = {{.index = 0}};
  EXPECT_EQ((*pairs)->MakeBatch(one)->at(keys::kLabels).shape()[1], (*pairs)->target_length(0));
  EXPECT_THROW((*pairs)->MakeBatch(std::vector<Sample>{{.index = 3}}).ok(), Error);
  EXPECT_EQ((*pairs)->MakeBatch({})->rows, 0);
}

TEST_F(SequencePairsTest, TablesLengthsAndLowerCase) {
  const SequencePairFiles table = {
      .source = Write("t.tsv", "id\tde\ten\n1\tDER HUND\tTHE LAZY DOG\n"),
      .source_column = "en",
      .target_column = "de"};
  const auto cut = SequencePairDataset::Open(
      table, *t5_, Cache(), {.max_source_length = 4, .max_target_length = 100, .lower_case = true});
  ASSERT_TRUE(cut.ok()) << Message(cut.status());
  const auto batch = (*cut)->MakeBatch(std::vector<Sample>{{.index = 0}});
  std::vector<int64_t> source = Ids(*t5_, "the lazy dog");
  source.resize(3);
  source.push_back(1);
  EXPECT_EQ(Row(batch->at(keys::kInputIds), 0), source);
  EXPECT_EQ(Row(batch->at(keys::kLabels), 0),
            T5Row("der hund", Ids(*t5_, "der hund").size() + 1, 0));

  const auto lines = SequencePairDataset::Open(
      {.source = Write("t.jsonl", "{\"target\": \"b\", \"source\": \"a\"}\n")}, *t5_, Cache());
  ASSERT_TRUE(lines.ok()) << Message(lines.status());
  EXPECT_EQ(Row((*lines)->MakeBatch(std::vector<Sample>{{.index = 0}})->at(keys::kLabels), 0),
            T5Row("b", Ids(*t5_, "b").size() + 1, 0));
}

TEST_F(SequencePairsTest, TheCacheIsUsedWhileNothingChanges) {
  const SequencePairFiles files = {.source = Write("a", "one\n"), .target = Write("b", "two\n")};
  const auto reused = [&](const SequencePairOptions& options) {
    const auto opened = SequencePairDataset::Open(files, *t5_, Cache(), options);
    EXPECT_TRUE(opened.ok()) << Message(opened.status());
    return (*opened)->reused_cache();
  };
  EXPECT_FALSE(reused({}));
  EXPECT_TRUE(reused({}));
  EXPECT_FALSE(reused({.max_source_length = 7}));
  EXPECT_FALSE(reused({}));
  EXPECT_FALSE(reused({.overwrite_cache = true}));
  EXPECT_TRUE(reused({}));
  Write("b", "three\n");
  EXPECT_FALSE(reused({}));
}

TEST_F(SequencePairsTest, WhatDoesNotFitIsNamed) {
  const std::string one = Write("one", "a\n");
  const std::string two = Write("two", "a\nb\n");
  const std::string lengths = Failure({.source = one, .target = two});
  EXPECT_NE(lengths.find("one has 1 lines"), std::string::npos) << lengths;
  EXPECT_NE(lengths.find("two has 2"), std::string::npos) << lengths;
  EXPECT_NE(Failure({.source = one, .target = Write("bad", "\xFF\n")}).find("bad: invalid UTF-8"),
            std::string::npos);
  EXPECT_NE(Failure({.source = Write("t.tsv", "a\tb\n1\t2\n")}).find("source"), std::string::npos);
  EXPECT_NE(Failure({.source = root_ + "/none", .target = one}).find("none"), std::string::npos);
  EXPECT_NE(Failure({.source = Write("e1", ""), .target = Write("e2", "")}).find("no pairs"),
            std::string::npos);
  EXPECT_NE(
      Failure({.source = one, .target = one}, {.max_target_length = 0}).find("max_target_length"),
      std::string::npos);
}

TEST_F(SequencePairsTest, HeldOutSamples) {
  std::string lines;
  for (int i = 0; i < 50; ++i) lines += "a" + std::string(static_cast<size_t>(i), 'b') + "\n";
  const std::string path = Write("a", lines);
  const auto pairs = SequencePairDataset::Open({.source = path, .target = path}, *t5_, Cache());
  ASSERT_TRUE(pairs.ok());
  // Each pair is told by its length.
  const auto lengths = [](const Dataset& part) {
    std::multiset<int64_t> found;
    for (int64_t i = 0; i < part.size(); ++i) {
      found.insert(part.MakeBatch(std::vector<Sample>{{.index = i}})->targets);
    }
    return found;
  };
  const auto [train, held] = SplitDataset(*pairs, {.fraction = 0.2, .seed = 3});
  ASSERT_NE(held, nullptr);
  EXPECT_EQ(train->size(), 40);
  EXPECT_EQ(held->size(), 10);
  std::multiset<int64_t> all = lengths(*train);
  all.merge(lengths(*held));
  EXPECT_EQ(all, lengths(**pairs));
  const auto [same_train, same_held] = SplitDataset(*pairs, {.fraction = 0.2, .seed = 3});
  EXPECT_EQ(lengths(*same_held), lengths(*held));
  const auto [end_train, end_held] = SplitDataset(*pairs, {.fraction = 0.2, .from_end = true});
  EXPECT_EQ(end_held->MakeBatch(std::vector<Sample>{{.index = 0}})->targets,
            (*pairs)->target_length(40));
  EXPECT_NE(lengths(*end_held), lengths(*held));
  EXPECT_EQ(SplitDataset(*pairs, {.fraction = 0}).second, nullptr);
  EXPECT_EQ(SplitDataset(*pairs, {.fraction = 0.999}).first->size(), 1);
  EXPECT_THROW(SplitDataset(*pairs, {.fraction = 1.0}), Error);
}

TEST_F(SequencePairsTest, InstructionsAreThoseOfChatGlm) {
  const std::string path = Write("chat.jsonl",
                                 "{\"prompt\": \"hello\", \"response\": \"the world\"}\n\n"
                                 "{\"prompt\": \"\", \"response\": \"left out\"}\n"
                                 "{\"prompt\": \"what\", \"response\": \"x\", \"history\": "
                                 "[[\"a\", \"b\"], [\"c\", \"d\"]]}\n");
  const auto chats = InstructionDataset::Open(path, *chat_, Cache(), Answers());
  ASSERT_TRUE(chats.ok()) << Message(chats.status());
  ASSERT_EQ((*chats)->size(), 2);
  const auto batch = (*chats)->MakeBatch(std::vector<Sample>{{.index = 0}, {.index = 1}});
  std::vector<int64_t> ids = Ids(*chat_, "hello");
  ids.push_back(*chat_->FindSpecial("[gMASK]"));
  const size_t context = ids.size();
  ids.push_back(*chat_->FindSpecial("<sop>"));
  for (const int64_t id : Ids(*chat_, "the world")) ids.push_back(id);
  ids.push_back(*chat_->FindSpecial("<eop>"));
  std::vector<int64_t> labels = ids;
  std::fill_n(labels.begin(), context, -100);
  const auto columns = static_cast<size_t>(batch->at(keys::kInputIds).shape()[1]);
  ASSERT_EQ(columns, std::max<size_t>(ids.size(), static_cast<size_t>((*chats)->length(1))));
  ids.resize(columns, *chat_->pad_id());
  labels.resize(columns, -100);
  EXPECT_EQ(Row(batch->at(keys::kInputIds), 0), ids);
  EXPECT_EQ(Row(batch->at(keys::kLabels), 0), labels);
  EXPECT_EQ(batch->tokens, static_cast<int64_t>(2 * columns));
  int64_t targets = 0;
  for (int64_t r = 0; r < 2; ++r) {
    for (const int64_t label : Row(batch->at(keys::kLabels), r)) targets += label != -100;
  }
  EXPECT_EQ(batch->targets, targets);

  // With history the prompt is the last of numbered rounds, also where there is none.
  const auto rounds =
      InstructionDataset::Open(path, *chat_, Cache(), Answers({.history_column = "history"}));
  ASSERT_TRUE(rounds.ok()) << Message(rounds.status());
  EXPECT_FALSE((*rounds)->reused_cache());
  const auto prompt_of = [&](int64_t index) {
    const auto one = (*rounds)->MakeBatch(std::vector<Sample>{{.index = index}});
    std::vector<int64_t> row = Row(one->at(keys::kInputIds), 0);
    row.resize(static_cast<size_t>(
        std::find(row.begin(), row.end(), *chat_->FindSpecial("[gMASK]")) - row.begin()));
    return row;
  };
  EXPECT_EQ(prompt_of(0), Ids(*chat_, "[Round 0]\n问：hello\n答："));
  EXPECT_EQ(
      prompt_of(1),
      Ids(*chat_, "[Round 0]\n问：a\n答：b\n[Round 1]\n问：c\n答：d\n[Round 2]\n问：what\n答："));
}

TEST_F(SequencePairsTest, InstructionsInAnArrayAndCut) {
  const std::string path = Write("alpaca.json",
                                 " [{\"instruction\": \"count\", \"input\": \"1 2\", "
                                 "\"output\": \"hello world again\"}]");
  const auto chats = InstructionDataset::Open(path, *chat_, Cache(),
                                              Answers({.prompt_column = "instruction",
                                                       .response_column = "output",
                                                       .input_column = "input",
                                                       .max_source_length = 4,
                                                       .max_target_length = 5}));
  ASSERT_TRUE(chats.ok()) << Message(chats.status());
  std::vector<int64_t> expected = Ids(*chat_, "count\n1 2");
  expected.resize(3);
  expected.push_back(*chat_->FindSpecial("[gMASK]"));
  expected.push_back(*chat_->FindSpecial("<sop>"));
  const std::vector<int64_t> answer = Ids(*chat_, "hello world again");
  expected.insert(expected.end(), answer.begin(), answer.begin() + 3);
  expected.push_back(*chat_->FindSpecial("<eop>"));
  const auto batch = (*chats)->MakeBatch(std::vector<Sample>{{.index = 0}});
  EXPECT_EQ(Row(batch->at(keys::kInputIds), 0), expected);
  EXPECT_EQ(batch->targets, 5);
}

TEST_F(SequencePairsTest, InstructionsThatDoNotFitAreNamed) {
  const auto expect = [&](const std::string& content, const std::string& part,
                          const InstructionOptions& options = {}) {
    const std::string message = ChatFailure(content, options);
    EXPECT_NE(message.find(part), std::string::npos) << content << " gave: " << message;
  };
  expect("{\"prompt\": 3, \"response\": \"a\"}", "bad.json:1: prompt is not a text");
  expect("[{\"prompt\": \"a\", \"response\": \"a\"}, 7]", "bad.json[1]: not a JSON object");
  expect("{\"prompt\": \"a\"\n", "bad.json:1: not valid JSON");
  expect("{\"prompt\": \"a\"}", "no record has a member response");
  expect("{\"prompt\": \"\", \"response\": \"\"}", "no record with");
  expect("", "no record");
  expect("{\"prompt\": \"a\", \"response\": \"b\", \"h\": [[\"a\"]]}", "h[0]",
         {.history_column = "h"});
  expect("{\"prompt\": \"a\", \"response\": \"b\"}", "max_target_length", {.max_target_length = 1});
  const auto wrong = InstructionDataset::Open(
      Write("ok.json", "[{\"prompt\": \"a\", \"response\": \"b\"}]"), *t5_, Cache(), Answers());
  EXPECT_NE(Message(wrong.status()).find("[gMASK]"), std::string::npos);
}

}  // namespace
}  // namespace tessera::data
