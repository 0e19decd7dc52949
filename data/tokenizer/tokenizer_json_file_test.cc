// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/tokenizer_json_file.h"

#include <gtest/gtest.h>

#include "base/mounted_folder.h"

namespace tessera::data {
namespace {

using nlohmann::json;

StatusOr<TokenizerJsonFile> Read(const std::string& text) {
  const MountedFolder folder(
      "test", {{"t.json", MountedFile::OfBytes(text.data(), std::ssize(text), nullptr)}});
  return ReadTokenizerJsonFile(folder.path() + "/t.json");
}

TEST(TokenizerJsonFile, LargePartsAreThoseOfTheTree) {
  for (const char* merges : {R"(["a b", "\u0120 b"])", R"([["a", "b"], ["\u0120","b"]])"}) {
    for (const bool vocab_first : {true, false}) {
      const std::string vocab = R"({"a": 0, "b":1, "\"}]\\": 2, "ab" : 3 })";
      const std::string text =
          Concat(R"({"version": "1.0", "model": {"type": "BPE", )",
                 vocab_first ? "\"vocab\" : " : "\"merges\": ", vocab_first ? vocab : merges,
                 " ,\n", vocab_first ? "\"merges\": " : "\"vocab\":", vocab_first ? merges : vocab,
                 R"(, "fuse_unk": false}, "added_tokens": [{"id": 1}]})");
      const auto file = Read(text);
      ASSERT_TRUE(file.ok()) << file.status();
      ASSERT_TRUE(file->large) << text;
      json whole = json::parse(text);
      for (const auto& [piece, id] : file->large->vocab)
        EXPECT_EQ(whole["model"]["vocab"][piece], id);
      EXPECT_EQ(file->large->vocab.size(), 4u);
      const std::vector<std::pair<std::string, std::string>> expected = {{"a", "b"}, {"Ġ", "b"}};
      EXPECT_EQ(file->large->merges, expected);
      whole["model"]["vocab"] = json::object();
      whole["model"]["merges"] = json::array();
      EXPECT_EQ(file->root, whole);
    }
  }
}

TEST(TokenizerJsonFile, EverythingElseIsInTheTree) {
  for (const char* text :
       {"{}", "[]", "3", R"({"model": null})", R"({"model": {"vocab": {"a": 1}}})",
        R"({"model": {"vocab": {"a": 1.5}, "merges": []}})",
        R"({"model": {"vocab": {"a": 1}, "merges": ["ab"]}})",
        R"({"model": {"vocab": {"a": 1}, "merges": ["a b c"]}})",
        R"({"model": {"vocab": {"a": 1}, "merges": [["a", "b", "c"]]}})",
        R"({"model": {"vocab": {"a": 1}, "merges": [[]]}})",
        R"({"model": {"vocab": [["a", -1.5]], "merges": []}})",
        R"({"model": {"vocab": {"a": 1}, "merges": ["a b"]}, "model": {}})",
        R"({"model": {"vocab": {"a": 1}, "vocab": {"b": 1}, "merges": ["a b"]}})"}) {
    const auto file = Read(text);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_FALSE(file->large) << text;
    EXPECT_EQ(file->root, json::parse(text)) << text;
  }
  const std::string good = R"({"model": {"vocab": {"a": 1}, "merges": ["a b"]}})";
  EXPECT_TRUE(Read(good)->large);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_NE(Message(Read(good.substr(0, size)).status()).find("t.json: not valid JSON at byte"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::data
