// SPDX-License-Identifier: Apache-2.0
#include "data/preference/preference_dataset.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/batch_keys.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kEos = 256;  // of the byte tokenizer
constexpr int64_t kNone = kIgnoreLabel;

std::vector<int64_t> Row(const Tensor& t, int64_t row) {
  const int64_t columns = t.shape()[1];
  const int64_t* begin = t.data<int64_t>() + row * columns;
  return {begin, begin + columns};
}

// Bytes, then the tokens behind them.
std::vector<int64_t> Bytes(const std::string& text, const std::vector<int64_t>& more = {}) {
  std::vector<int64_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

class PreferenceDatasetTest : public testing::Test {
 protected:
  PreferenceDatasetTest()
      : root_(testing::TempDir() + "/preference_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()),
        bytes_(*LoadTokenizer("byte")) {
    fs::remove_all(root_);
    fs::create_directories(root_ + "/chat");
  }
  std::string Put(const std::string& name, const std::string& content) const {
    std::ofstream(root_ + "/" + name, std::ios::binary) << content;
    return root_ + "/" + name;
  }
  // Of the byte tokenizer's folder.
  void PutTemplate(const std::string& text) {
    EXPECT_TRUE(LoadTokenizer("byte").value()->Save(root_ + "/chat").ok());
    Put("chat/chat_template.jinja", text);
    bytes_ = *LoadTokenizer(root_ + "/chat");
  }
  StatusOr<std::shared_ptr<PreferenceDataset>> Open(const std::string& path,
                                                    PreferenceOptions options = {}) const {
    return PreferenceDataset::Open(path, *bytes_, root_ + "/cache/pairs", options);
  }
  Batch BatchOfAll(const PreferenceDataset& pairs) const {
    std::vector<Sample> samples;
    for (int64_t i = 0; i < pairs.size(); ++i) samples.push_back({.index = i, .position = i});
    return *pairs.MakeBatch(samples);
  }
  std::string Failure(const std::string& content, PreferenceOptions options = {}) const {
    const auto opened = Open(Put("bad.jsonl", content), options);
    EXPECT_FALSE(opened.ok());
    return opened.ok() ? "" : Message(opened.status());
  }

  const std::string root_;
  std::unique_ptr<Tokenizer> bytes_;
};

TEST_F(PreferenceDatasetTest, RowsArePairsOfAPromptWithItsCompletions) {
  const std::string lines =
      "{\"prompt\": \"ab\", \"chosen\": \"cd\", \"rejected\": \"e\"}\n\n"
      "{\"prompt\": \"f\", \"chosen\": \"\", \"rejected\": \"gh\"}\n";
  const auto pairs = Open(Put("pairs.jsonl", lines));
  ASSERT_TRUE(pairs.ok()) << Message(pairs.status());
  const Batch batch = BatchOfAll(**pairs);
  EXPECT_EQ(batch.rows, 4);
  EXPECT_EQ(batch.targets, 2);
  EXPECT_EQ(batch.tokens, 20);
  const Tensor& ids = batch.at(keys::kInputIds);
  EXPECT_EQ(Row(ids, 0), Bytes("abcd", {kEos}));
  EXPECT_EQ(Row(ids, 1), Bytes("abe", {kEos, 0}));
  EXPECT_EQ(Row(ids, 2), Bytes("f", {kEos, 0, 0, 0}));
  EXPECT_EQ(Row(ids, 3), Bytes("fgh", {kEos, 0}));
  EXPECT_EQ(batch.at(keys::kTokenMask).ToVector<int32_t>(),
            (std::vector<int32_t>{1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0}));
  const Tensor& targets = batch.at(keys::kTargets);
  EXPECT_EQ(Row(targets, 0), (std::vector<int64_t>{kNone, 'c', 'd', kEos, kNone}));
  EXPECT_EQ(Row(targets, 1), (std::vector<int64_t>{kNone, 'e', kEos, kNone, kNone}));
  EXPECT_EQ(Row(targets, 2), (std::vector<int64_t>{kEos, kNone, kNone, kNone, kNone}));
  EXPECT_EQ(Row(targets, 3), (std::vector<int64_t>{'g', 'h', kEos, kNone, kNone}));
  EXPECT_FALSE(batch.has(keys::kReferenceLogProbabilities));
  // An array of the same is the same; and is found again.
  const auto array =
      Open(Put("pairs.json", "[{\"prompt\": \"ab\", \"chosen\": \"cd\", \"rejected\": \"e\"}]"));
  EXPECT_EQ(Row(BatchOfAll(**array).at(keys::kInputIds), 0), Bytes("abcd", {kEos}));
  EXPECT_FALSE((*array)->reused_cache());
  EXPECT_TRUE((*Open(root_ + "/pairs.json"))->reused_cache());
}

TEST_F(PreferenceDatasetTest, ReferencesGoWithTheirPairs) {
  std::string lines;
  for (int i = 0; i < 3; ++i) {
    lines += "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n";
  }
  const auto pairs = *Open(Put("pairs.jsonl", lines));
  pairs->SetReference({-1, -2, -3, -4, -5, -6});
  const std::vector<Sample> samples = {{.index = 2}, {.index = 0}};
  const Batch batch = *pairs->MakeBatch(samples);
  EXPECT_EQ(batch.at(keys::kReferenceLogProbabilities).ToVector<double>(),
            (std::vector<double>{-5, -6, -1, -2}));
}

// What the template writes, and no more; the prompt ends where an answer would begin.
TEST_F(PreferenceDatasetTest, ConversationsAreTheTemplates) {
  PutTemplate(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  const std::string user = R"({"role": "user", "content": "hi"})";
  const auto says = [](const std::string& text) {
    return R"({"role": "assistant", "content": ")" + text + "\"}";
  };
  const std::string explicit_prompt = R"({"prompt": [)" + user + R"(], "chosen": [)" + says("yes") +
                                      R"(], "rejected": [)" + says("no") + "]}";
  const std::string implicit_prompt = R"({"chosen": [)" + user + "," + says("yes") +
                                      R"(], "rejected": [)" + user + "," + says("no") + "]}";
  const std::string repeated_prompt = R"({"prompt": "hi", )" + implicit_prompt.substr(1);
  for (const std::string& record : {explicit_prompt, implicit_prompt, repeated_prompt}) {
    const auto pairs = Open(Put("chats.jsonl", record));
    ASSERT_TRUE(pairs.ok()) << Message(pairs.status());
    const Batch batch = BatchOfAll(**pairs);
    EXPECT_EQ(Row(batch.at(keys::kInputIds), 0), Bytes("<user>hi;<assistant>yes;"));
    EXPECT_EQ(Row(batch.at(keys::kInputIds), 1), Bytes("<user>hi;<assistant>no;", {0}));
    const std::vector<int64_t> targets = Row(batch.at(keys::kTargets), 1);
    EXPECT_EQ(std::vector<int64_t>(targets.begin() + 18, targets.end()),
              (std::vector<int64_t>{kNone, 'n', 'o', ';', kNone, kNone}));
  }
  // Another template: other tokens.
  PutTemplate("{% for m in messages %}{{ m.content }}|{% endfor %}");
  const auto again = Open(root_ + "/chats.jsonl");
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(Row(BatchOfAll(**again).at(keys::kInputIds), 0), Bytes("hi|yes|"));

  PutTemplate("{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_EQ(Failure(explicit_prompt),
            root_ +
                "/bad.jsonl:1: what the chat template writes of 'chosen' does not begin with "
                "what it writes of the prompt alone");
  EXPECT_EQ(Failure(R"({"chosen": [)" + says("a") + R"(], "rejected": [)" + says("b") + "]}"),
            root_ +
                "/bad.jsonl:1: has no 'prompt', and 'chosen' and 'rejected' begin with "
                "different messages");
  bytes_ = *LoadTokenizer("byte");
  EXPECT_TRUE(Failure(explicit_prompt).starts_with(root_ + "/bad.jsonl:1: is a conversation; "));
}

// Of the prompt and of both completions.
TEST_F(PreferenceDatasetTest, TemplatesAreGivenTheRecordsVariables) {
  PutTemplate("{{ mood }}{% for m in messages %}{{ m.content }}{% endfor %}");
  const std::string pair = R"("prompt": [{"role": "user", "content": "p"}],)"
                           R"( "chosen": [{"role": "assistant", "content": "c"}],)"
                           R"( "rejected": [{"role": "assistant", "content": "r"}])";
  const auto pairs =
      Open(Put("pairs.jsonl", "{" + pair + R"(, "chat_template_kwargs": {"mood": "good"}})" +
                                  "\n{" + pair + "}\n"));
  ASSERT_TRUE(pairs.ok()) << Message(pairs.status());
  const Tensor ids = BatchOfAll(**pairs).at(keys::kInputIds);
  EXPECT_EQ(Row(ids, 0), Bytes("goodpc"));
  EXPECT_EQ(Row(ids, 1), Bytes("goodpr"));
  EXPECT_EQ(Row(ids, 2), Bytes("pc", {0, 0, 0, 0}));
  EXPECT_EQ(Failure("{" + pair + "}\n{" + pair + R"(, "chat_template_kwargs": "mood"})"),
            root_ + "/bad.jsonl:2: 'chat_template_kwargs' must be an object");
}

TEST_F(PreferenceDatasetTest, RefusesInOneLine) {
  const std::string good = "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n";
  const std::string file = root_ + "/bad.jsonl";
  const struct {
    const char* record;
    const char* problem;
  } cases[] = {
      {R"({"prompt": "a", "rejected": "b"})", "has no 'chosen'"},
      {R"({"prompt": "a", "chosen": "b"})", "has no 'rejected'"},
      {R"({"chosen": "b", "rejected": "c"})", "has no 'prompt'"},
      {R"({"prompt": "a", "chosen": 3, "rejected": "c"})",
       "'chosen' is neither a text nor a list of messages, each with a 'role'"},
      {R"({"prompt": "a", "chosen": "b", "rejected": []})", "'rejected' is no text"},
      {R"({"prompt": "a", "chosen": [{"role": "user"}], "rejected": "c"})",
       "'rejected' is no list of messages, each with a 'role', as 'chosen' is"},
      {R"({"prompt": "", "chosen": "b", "rejected": "c"})", "'prompt' has no token"},
      {R"(["a"])", "not a JSON object"},
      {R"({"prompt": "abc", "chosen": "d", "rejected": "defg"})",
       "the prompt and a completion are 8 tokens, more than the 7 of a row"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Failure(good + c.record, {.max_length = 7}), file + ":2: " + c.problem);
  }
  EXPECT_EQ(Failure("\n"), file + ": has no pair");
}

}  // namespace
}  // namespace tessera::data
