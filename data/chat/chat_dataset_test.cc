// SPDX-License-Identifier: Apache-2.0
#include "data/chat/chat_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/batch_keys.h"
#include "data/chat/chat_tokens.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

class ChatDatasetTest : public testing::Test {
 protected:
  ChatDatasetTest()
      : root_(testing::TempDir() + "/chats_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()),
        tokenizer_(*LoadTokenizer("data/chat/testdata/tokenizer")),
        format_(*ChatFormat::OfTokenizer(*tokenizer_)) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  std::string Put(const std::string& name, const std::string& text) const {
    std::ofstream(root_ + "/" + name) << text;
    return root_ + "/" + name;
  }
  StatusOr<std::shared_ptr<const ChatDataset>> Open(const std::string& path,
                                                    const ChatDatasetOptions& options) const {
    return ChatDataset::Open(path, format_, *tokenizer_, root_ + "/cache", options);
  }
  std::vector<int64_t> Ids(const std::string& text) const {
    const std::vector<int32_t> ids = tokenizer_->Encode(text);
    return {ids.begin(), ids.end()};
  }

  const std::string root_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const ChatFormat format_;
};

std::string Exchange(const std::string& question, const std::string& answer) {
  return R"({"messages": [{"role": "user", "content": ")" + question +
         R"("}, {"role": "assistant", "content": ")" + answer + "\"}]}\n";
}

std::vector<int64_t> Row(const Tensor& t, int64_t row) {
  const std::vector<int64_t> all = t.ToVector<int64_t>();
  return {all.begin() + row * t.size(1), all.begin() + (row + 1) * t.size(1)};
}

TEST_F(ChatDatasetTest, WhatTheAssistantWroteIsPredicted) {
  const std::string path =
      Put("chats.jsonl",
          R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "bc"},)"
          R"( {"from": "human", "value": "d"}, {"from": "gpt", "value": "e"}]})"
          "\n" +
              Exchange("a", "longer than the other"));
  const auto chats = Open(path, {.seq_len = 100});
  ASSERT_TRUE(chats.ok()) << Message(chats.status());
  ASSERT_EQ((*chats)->size(), 2);
  const auto batch = (*chats)->MakeBatch(std::vector<Sample>{{.index = 0}, {.index = 1}});
  ASSERT_TRUE(batch.ok());
  std::vector<int64_t> ids, targets;
  for (const auto& [text, learnt] :
       {std::pair("<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n", false),
        {"bc<|im_end|>", true},
        {"\n<|im_start|>user\nd<|im_end|>\n<|im_start|>assistant\n", false},
        {"e<|im_end|>", true},
        {"\n", false}}) {
    for (const int64_t id : Ids(text)) {
      ids.push_back(id);
      targets.push_back(learnt ? id : kIgnoreLabel);
    }
  }
  EXPECT_EQ((*chats)->length(0), std::ssize(ids) - 1);
  EXPECT_EQ((*chats)->length_of(0), std::ssize(ids) - 1);
  const auto width = static_cast<size_t>(batch->at(keys::kInputIds).size(1));
  ASSERT_EQ(width, static_cast<size_t>(std::max((*chats)->length(0), (*chats)->length(1))));
  ids.pop_back();
  ids.resize(width, 0);
  targets.erase(targets.begin());
  targets.resize(width, kIgnoreLabel);
  EXPECT_EQ(Row(batch->at(keys::kInputIds), 0), ids);
  EXPECT_EQ(Row(batch->at(keys::kTargets), 0), targets);
  EXPECT_EQ(batch->targets, 5 + std::ssize(Ids("longer than the other<|im_end|>")));
  EXPECT_FALSE(batch->has(keys::kDocumentIds));
  // A part of them.
  const auto second = (*chats)->Part(1, 2);
  EXPECT_EQ(second->size(), 1);
  EXPECT_EQ(second->length(0), (*chats)->length(1));
  EXPECT_THROW((*chats)->Part(1, 3), Error);
}

TEST_F(ChatDatasetTest, LongConversations) {
  const std::string text = Exchange("a", "b") + Exchange("a", "0123456789012345678901234567890") +
                           Exchange("012345678901234567890123456789", "b");
  const std::string path = Put("chats.jsonl", text);
  const auto open = [&](LongChats long_chats, int64_t seq_len) {
    return Open(path, {.seq_len = seq_len, .long_chats = long_chats});
  };
  const int64_t first =
      std::ssize(Ids("<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"));
  EXPECT_EQ(Message(open(LongChats::kRefuse, first).status()),
            path + ":2: the conversation has " + std::to_string(first + 30) +
                " tokens, more than the " + std::to_string(first) + " of seq_len");
  EXPECT_EQ(Message(open(LongChats::kRefuse, first - 1).status()).find(path + ":1: "), 0u);
  // The first fits as it is; of the third no answer would be left.
  const auto cut = open(LongChats::kCut, first);
  ASSERT_TRUE(cut.ok()) << Message(cut.status());
  ASSERT_EQ((*cut)->size(), 2);
  EXPECT_EQ((*cut)->length(0), first - 1);
  EXPECT_EQ((*cut)->length(1), first - 1);
  EXPECT_EQ((*cut)->num_cut(), 1);
  EXPECT_EQ((*cut)->num_dropped(), 1);
  // The turn's end of the cut answer is not there to be learnt.
  EXPECT_EQ((*cut)->MakeBatch(std::vector<Sample>{{.index = 1}})->targets, 3);
  const auto dropped = open(LongChats::kDrop, first);
  ASSERT_TRUE(dropped.ok());
  EXPECT_EQ((*dropped)->size(), 1);
  EXPECT_EQ((*dropped)->num_dropped(), 2);
  EXPECT_EQ((*open(LongChats::kRefuse, first + 30))->size(), 3);
  EXPECT_EQ(Message(open(LongChats::kDrop, 5).status()),
            path + ": none of its 3 conversations fits seq_len 5");
}

TEST_F(ChatDatasetTest, PromptsForPredictions) {
  const std::string path =
      Put("chats.json",
          R"([{"messages": [{"role": "user", "content": "a"}]}, )" + Exchange("a", "b") + "]");
  const auto chats = Open(path, {.seq_len = 100, .prompts = true});
  ASSERT_TRUE(chats.ok()) << Message(chats.status());
  EXPECT_EQ((*chats)->num_prompts(), 1);
  const std::vector<int64_t> prompt = Ids("<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  const auto batch = (*chats)->MakeBatch(std::vector<Sample>{{.index = 0}});
  EXPECT_EQ(Row(batch->at(keys::kInputIds), 0), prompt);
  const std::vector<int64_t> targets = Row(batch->at(keys::kTargets), 0);
  EXPECT_EQ(std::count(targets.begin(), targets.end(), kIgnoreLabel), std::ssize(targets) - 1);
  EXPECT_NE(targets.back(), kIgnoreLabel);
  // Nothing is left out of what is to be predicted. The answer's place is none of the tokens.
  const auto tokens = std::ssize(prompt);
  const std::string alone =
      Put("alone.json", R"([{"messages": [{"role": "user", "content": "a"}]}])");
  EXPECT_TRUE(Open(alone, {.seq_len = tokens, .prompts = true}).ok());
  EXPECT_EQ(
      Message(Open(alone, {.seq_len = tokens - 1, .long_chats = LongChats::kDrop, .prompts = true})
                  .status()),
      Concat(alone, "[0]: the conversation has ", tokens, " tokens, more than the ", tokens - 1,
             " of seq_len"));
}

TEST_F(ChatDatasetTest, BadConversationsAreNamed) {
  const auto failure = [&](const std::string& text) {
    const std::string path = Put("bad.jsonl", text);
    const std::string message = Message(Open(path, {.seq_len = 100}).status());
    EXPECT_EQ(message.find(path), 0u) << message;
    return message.substr(std::min(path.size(), message.size()));
  };
  EXPECT_EQ(failure(Exchange("a", "b") + "\n" + R"({"messages": [{"role": "user"}]})"),
            ":3: tokenizer_config.json:1: 'dict object' has no attribute 'content'");
  EXPECT_EQ(failure(R"({"messages": [{"role": "user", "content": "a"}]})"),
            ":1: the assistant says nothing in this conversation");
  EXPECT_EQ(failure(""), ": no conversations");
  EXPECT_EQ(failure(R"({"text": "a"})"),
            ":1: has none of 'messages', 'prompt', 'conversations' and 'instruction'");
}

TEST_F(ChatDatasetTest, TokensAreMadeAnewForAnotherTemplate) {
  const std::string path = Put("chats.jsonl", Exchange("a", "b"));
  const auto first = Open(path, {.seq_len = 100});
  ASSERT_TRUE(first.ok());
  fs::copy("data/chat/testdata/tokenizer", root_ + "/other");
  fs::permissions(root_ + "/other", fs::perms::owner_all, fs::perm_options::add);
  Put("other/chat_template.jinja",
      "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}");
  const auto tokenizer = LoadTokenizer(root_ + "/other");
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  const auto format = ChatFormat::OfTokenizer(**tokenizer);
  ASSERT_TRUE(format.ok()) << Message(format.status());
  EXPECT_EQ((*tokenizer)->Fingerprint(), tokenizer_->Fingerprint());
  const auto second =
      ChatDataset::Open(path, *format, **tokenizer, root_ + "/cache", {.seq_len = 100});
  ASSERT_TRUE(second.ok()) << Message(second.status());
  EXPECT_EQ((*second)->length(0), 3);
  EXPECT_NE((*first)->length(0), 3);
}

}  // namespace
}  // namespace tessera::data
