// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE on small vocabularies that the test trains itself: against a naive encoder,
// and files good and bad. known_split_test.cc compares the splitting.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "core/thread_pool.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/gpt2_split.h"
#include "data/tokenizer/pipeline_tokenizer.h"

namespace tessera::data {
namespace {

constexpr const char* kCorpus =
    "the quick brown fox's tail they're here, we've seen it; don't stop 123 1234 12345\n"
    "  the the then there   these those  \n\n int main() { return x == y; }\n"
    "caf\xC3\xA9 na\xC3\xAFve \xE4\xB8\xAD\xE6\x96\x87\xE4\xB8\xAD\xE6\x96\x87 "
    "\xF0\x9F\x98\x80\xF0\x9F\x98\x80 "
    "aaaaaaaa abababab banana bandana\n";

std::mt19937_64 FreshRandom() {
  std::random_device device;
  const uint64_t seed = (uint64_t{device()} << 32) | device();
  std::cout << "seed " << seed << "\n";
  return std::mt19937_64(seed);
}

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  Gpt2Splitter splitter(text);
  std::string_view word;
  while (splitter.Next(&word)) words.emplace_back(word);
  return words;
}

struct ByteLevelBpeConfig {
  VocabEntries vocab;
  BpeRules merges;
  std::vector<AddedToken> added_tokens;
  bool add_prefix_space = false;
  bool use_regex = true;
};

// A naive trainer: the most frequent pair of pieces becomes one, `count` times.
ByteLevelBpeConfig TrainBpe(const std::string& corpus, int count) {
  ByteLevelBpeConfig config;
  for (int b = 0; b < 256; ++b) {
    config.vocab.emplace_back(BytePiece(static_cast<uint8_t>(b)), std::ssize(config.vocab));
  }
  std::vector<std::vector<std::string>> words;
  for (const std::string& word : Words(corpus)) {
    words.emplace_back();
    for (const char c : word) words.back().push_back(BytePiece(static_cast<uint8_t>(c)));
  }
  for (int m = 0; m < count; ++m) {
    std::map<std::pair<std::string, std::string>, int> pairs;
    for (const auto& word : words) {
      for (size_t i = 0; i + 1 < word.size(); ++i) ++pairs[{word[i], word[i + 1]}];
    }
    if (pairs.empty()) break;
    auto best = pairs.begin();
    for (auto at = pairs.begin(); at != pairs.end(); ++at) {
      if (at->second > best->second) best = at;
    }
    const auto [left, right] = best->first;
    for (auto& word : words) {
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        if (word[i] != left || word[i + 1] != right) continue;
        word[i] += right;
        word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
    config.merges.emplace_back(left, right);
    config.vocab.emplace_back(left + right, std::ssize(config.vocab));
  }
  config.added_tokens.push_back(
      {.content = std::string(kEndOfText), .id = static_cast<int32_t>(config.vocab.size())});
  return config;
}

std::unique_ptr<Tokenizer> Make(const ByteLevelBpeConfig& config) {
  TokenizerDescription description = {.path = "test", .tokenizer_class = TokenizerClass::kGpt2};
  nlohmann::json added = nlohmann::json::array();
  for (const AddedToken& token : config.added_tokens) {
    added.push_back({{"content", token.content},
                     {"id", token.id},
                     {"special", token.special},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip},
                     {"normalized", token.normalized}});
  }
  description.json.root = {{"model", {{"type", "BPE"}}},
                           {"pre_tokenizer",
                            {{"type", "ByteLevel"},
                             {"add_prefix_space", config.add_prefix_space},
                             {"use_regex", config.use_regex}}},
                           {"added_tokens", added}};
  description.json.large = {config.vocab, config.merges, "test"};
  auto bpe = PipelineTokenizer::Create(std::move(description));
  EXPECT_TRUE(bpe.ok()) << bpe.status();
  return std::move(bpe).value();
}

// One word merged by the definition: the lowest-ranked pair of neighbours, the leftmost first.
std::vector<int32_t> NaiveWord(const ByteLevelBpeConfig& config, const std::string& word) {
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (size_t i = 0; i < config.merges.size(); ++i) ranks.emplace(config.merges[i], i);
  std::map<std::string, int32_t> ids(config.vocab.begin(), config.vocab.end());
  std::vector<std::string> pieces;
  for (const char c : word) pieces.push_back(BytePiece(static_cast<uint8_t>(c)));
  while (true) {
    size_t best_rank = ranks.size();
    size_t best = 0;
    for (size_t i = 0; i + 1 < pieces.size(); ++i) {
      const auto at = ranks.find({pieces[i], pieces[i + 1]});
      if (at != ranks.end() && at->second < best_rank) {
        best_rank = at->second;
        best = i;
      }
    }
    if (best_rank == ranks.size()) break;
    pieces[best] += pieces[best + 1];
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<int32_t> result;
  for (const std::string& piece : pieces) result.push_back(ids.at(piece));
  return result;
}

std::string RandomText(std::mt19937_64* random, size_t characters) {
  static const std::vector<std::string> kParts = {" ",
                                                  " ",
                                                  "  ",
                                                  "\n",
                                                  "\t",
                                                  "\r\n",
                                                  "'",
                                                  "'s",
                                                  "'re",
                                                  "'ll",
                                                  "'V",
                                                  "a",
                                                  "the",
                                                  "Z",
                                                  "7",
                                                  "42",
                                                  "!",
                                                  "...",
                                                  "_",
                                                  "-",
                                                  "\xC3\xA9",
                                                  "\xC2\xA0",
                                                  "\xE2\x80\xA8",
                                                  "\xE3\x80\x80",
                                                  "\xE4\xB8\xAD",
                                                  "\xF0\x9F\x98\x80",
                                                  "\xCC\x81",
                                                  "\xD9\xA1",
                                                  "\xC2\xBD",
                                                  "\xE1\xA0\x8E",
                                                  "\xC2\x85",
                                                  "\x1C",
                                                  std::string(1, '\0'),
                                                  "\xE2\x80\x8B",
                                                  "\xC2\xAA",
                                                  "\xE2\x85\xA7"};
  std::string text;
  for (size_t i = 0; i < characters; ++i) {
    if ((*random)() % 8 != 0) {
      text += kParts[(*random)() % kParts.size()];
    } else {
      AppendUtf8(static_cast<char32_t>((*random)() % 0x1C80), &text);
    }
  }
  return text;
}

TEST(Gpt2SplitterTest, KnownSplits) {
  using V = std::vector<std::string>;
  EXPECT_EQ(Words("I've  seen it's"), (V{"I", "'ve", " ", " seen", " it", "'s"}));
  EXPECT_EQ(Words("a   b\n\nc  "), (V{"a", "  ", " b", "\n", "\n", "c", "  "}));
  EXPECT_EQ(Words("x \t y"), (V{"x", " \t", " y"}));
  EXPECT_EQ(Words("'S ''s 'll"), (V{"'", "S", " ''", "s", " '", "ll"}));
  EXPECT_EQ(Words("abc123!? 4"), (V{"abc", "123", "!?", " 4"}));
  EXPECT_EQ(Words(""), V{});
  EXPECT_EQ(Words(" "), V{" "});
}

TEST(Gpt2SplitterTest, BytesThatAreNotUtf8) {
  using V = std::vector<std::string>;
  EXPECT_EQ(Words("a\xFF\xC3 b"), (V{"a", "\xFF\xC3", " b"}));
  EXPECT_EQ(Words(" \xE4\xB8"), V{" \xE4\xB8"});
  EXPECT_EQ(Words("\xED\xA0\x80!"), V{"\xED\xA0\x80!"});  // a surrogate
}

TEST(ByteLevelBpeTest, EqualsNaiveOnRandomText) {
  std::mt19937_64 random = FreshRandom();
  const ByteLevelBpeConfig config = TrainBpe(kCorpus, 120);
  const auto bpe = Make(config);
  for (int i = 0; i < 300; ++i) {
    std::string text = RandomText(&random, random() % 30);
    if (i % 3 == 0) text += std::string(kCorpus).substr(random() % 200, random() % 80);
    std::vector<int32_t> expected;
    for (const std::string& word : Words(text)) {
      for (const int32_t id : NaiveWord(config, word)) expected.push_back(id);
    }
    for (int round = 0; round < 2; ++round) {  // the second from the word cache
      ASSERT_EQ(bpe->Encode(text, {.parse_special = false}), expected) << PieceOfBytes(text);
    }
    ASSERT_EQ(bpe->Decode(expected), text);
  }
}

TEST(ByteLevelBpeTest, LongWordsEqualNaive) {
  std::mt19937_64 random = FreshRandom();
  const ByteLevelBpeConfig config = TrainBpe(kCorpus, 120);
  const auto bpe = Make(config);
  for (const size_t length : {1, 2, 23, 24, 63, 64, 65, 66, 200, 1000}) {
    std::string word;
    for (size_t i = 0; i < length; ++i) word += "abnthe"[random() % 6];
    EXPECT_EQ(bpe->Encode(word), NaiveWord(config, word)) << word;
    const std::string same(length, 'a');
    EXPECT_EQ(bpe->Encode(same), NaiveWord(config, same)) << length;
  }
  // Without an end in sight, but not forever.
  const std::string huge(1 << 20, 'a');
  EXPECT_EQ(bpe->Decode(bpe->Encode(huge)), huge);
}

TEST(ByteLevelBpeTest, AnyBytesRoundTrip) {
  std::mt19937_64 random = FreshRandom();
  const auto bpe = Make(TrainBpe(kCorpus, 60));
  for (int i = 0; i < 300; ++i) {
    std::string bytes;
    for (size_t n = random() % 60; n > 0; --n) bytes += static_cast<char>(random() & 0xFF);
    EXPECT_EQ(bpe->Decode(bpe->Encode(bytes)), bytes);
  }
}

TEST(ByteLevelBpeTest, LongTextsAreEncodedInParallelAlike) {
  const auto bpe = Make(TrainBpe(kCorpus, 60));
  const std::string pattern =
      "the bandana's  \n\tquick\xC2\xA0 fox \xE3\x80\x82\n\xE3\x80\x80\n\xFF\n\xB8 ";
  // Wherever the borders between chunks would fall in the pattern, the words stay whole.
  for (size_t shift = 0; shift < pattern.size(); ++shift) {
    std::string text(shift, 'x');
    while (text.size() < 300000) text += pattern;
    std::vector<int32_t> expected;
    for (const std::string& word : Words(text)) bpe->EncodeTo(word, {}, &expected);
    for (const int threads : {1, 3}) {
      SetNumThreads(threads);
      EXPECT_TRUE(bpe->Encode(text) == expected) << shift << " " << threads;
    }
  }
  SetNumThreads(AvailableCores());
}

TEST(ByteLevelBpeTest, SpecialTokens) {
  ByteLevelBpeConfig config = TrainBpe(kCorpus, 20);
  const int32_t eos = config.added_tokens[0].id;
  config.added_tokens.push_back({.content = "<m>", .id = eos + 1, .lstrip = true, .rstrip = true});
  config.added_tokens.push_back({.content = "<m>x", .id = eos + 2, .special = false});
  const auto bpe = Make(config);
  EXPECT_EQ(bpe->eos_id(), eos);
  EXPECT_EQ(bpe->vocab_size(), eos + 3);
  const auto plain = [&](std::string_view s) { return bpe->Encode(s, {.parse_special = false}); };
  const auto join = [](std::vector<std::vector<int32_t>> parts) {
    std::vector<int32_t> all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  EXPECT_EQ(bpe->Encode("a <|endoftext|> b"), join({plain("a "), {eos}, plain(" b")}));
  EXPECT_EQ(bpe->Encode("a \xC2\xA0<m>\n b"), join({plain("a"), {eos + 1}, plain("b")}));
  EXPECT_EQ(bpe->Encode("<m> <m><|endoftext|>"), (std::vector<int32_t>{eos + 1, eos + 1, eos}));
  EXPECT_EQ(bpe->Encode("<m>x"), (std::vector<int32_t>{eos + 2}));
  EXPECT_EQ(bpe->Encode("<m>x<m>", {.parse_special = false}), join({{eos + 2}, plain("<m>")}));
  EXPECT_EQ(bpe->Encode("<|endoftext|"), plain("<|endoftext|"));
  EXPECT_GT(plain("<|endoftext|>").size(), 1u);
  const std::vector<int32_t> ids = bpe->Encode("a<|endoftext|>b");
  EXPECT_EQ(bpe->Decode(ids), "a<|endoftext|>b");
  EXPECT_EQ(bpe->Decode(ids, {.skip_special = true}), "ab");
  EXPECT_EQ(bpe->Decode(std::vector<int32_t>{-1, 1 << 30, 65}),
            bpe->Decode(std::vector<int32_t>{65}));
}

TEST(ByteLevelBpeTest, AddPrefixSpaceAndNoRegex) {
  ByteLevelBpeConfig config = TrainBpe(kCorpus, 40);
  const auto plain = Make(config);
  config.add_prefix_space = true;
  const auto prefixed = Make(config);
  EXPECT_EQ(prefixed->Encode("the fox"), plain->Encode(" the fox"));
  EXPECT_EQ(prefixed->Encode(" the fox"), plain->Encode(" the fox"));
  EXPECT_EQ(prefixed->Encode("a<|endoftext|>b"), plain->Encode(" a<|endoftext|> b"));
  EXPECT_TRUE(prefixed->Encode("").empty());
  EXPECT_NE(prefixed->Fingerprint(), plain->Fingerprint());
  config.add_prefix_space = false;
  config.use_regex = false;
  EXPECT_EQ(Make(config)->Encode("the the"), NaiveWord(config, "the the"));
}

// ---- Files ----

class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/bpe_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void Put(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(folder_ + "/" + name, text).ok());
  }
  nlohmann::json Get(const std::string& name) {
    auto value = ReadJsonFile(folder_ + "/" + name);
    EXPECT_TRUE(value.ok()) << value.status();
    return std::move(value).value();
  }
  // The message that loading the folder fails with.
  std::string Failure() {
    const auto loaded = LoadTokenizer(folder_);
    EXPECT_FALSE(loaded.ok());
    const std::string message = loaded.ok() ? "" : Message(loaded.status());
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  }
  std::string folder_;
};

TEST_F(FolderTest, SavedFilesLoadInEveryForm) {
  const std::string text = "the then <|endoftext|> caf\xC3\xA9 \xFF''s";
  ByteLevelBpeConfig config = TrainBpe(kCorpus, 80);
  const auto bpe = Make(config);
  const std::vector<int32_t> expected = bpe->Encode(text);
  ASSERT_TRUE(bpe->Save(folder_).ok());
  auto loaded = LoadTokenizer(folder_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->Encode(text), expected);
  EXPECT_EQ((*loaded)->Fingerprint(), bpe->Fingerprint());
  EXPECT_EQ((*loaded)->eos_id(), bpe->eos_id());

  nlohmann::json root = Get("tokenizer.json");  // merges as pairs
  for (nlohmann::json& merge : root["model"]["merges"]) {
    const std::string line = merge;
    merge = {line.substr(0, line.find(' ')), line.substr(line.find(' ') + 1)};
  }
  Put("tokenizer.json", root.dump());
  loaded = LoadTokenizer(folder_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->Encode(text), expected);

  std::filesystem::remove(folder_ + "/tokenizer.json");
  nlohmann::json vocab = Get("vocab.json");
  vocab[std::string(kEndOfText)] = config.added_tokens[0].id;
  std::filesystem::rename(folder_ + "/merges.txt", folder_ + "/vocab.bpe");
  std::filesystem::remove(folder_ + "/vocab.json");
  EXPECT_NE(Failure().find("encoder.json"), std::string::npos);
  Put("encoder.json", vocab.dump());
  loaded = LoadTokenizer(folder_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->Encode(text), expected);
  EXPECT_EQ((*loaded)->eos_id(), bpe->eos_id());
}

TEST_F(FolderTest, WhatIsNotSupportedIsNamed) {
  ASSERT_TRUE(Make(TrainBpe(kCorpus, 5))->Save(folder_).ok());
  const nlohmann::json good = Get("tokenizer.json");
  const auto failure = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json bad = good;
    bad[nlohmann::json::json_pointer(pointer)] = value;
    Put("tokenizer.json", bad.dump());
    const auto loaded = LoadTokenizer(folder_);
    return loaded.ok() ? std::string() : Message(loaded.status());
  };
  const auto names = [](const std::string& message, std::vector<const char*> parts) {
    for (const char* part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << message << " lacks " << part;
    }
  };
  names(failure("/normalizer", {{"type", "Other"}}), {"tokenizer.json", "normalizer", "Other"});
  names(failure("/pre_tokenizer", {{"type", "Other"}}), {"pre_tokenizer", "Other"});
  names(failure("/post_processor", {{"type", "TemplateProcessing"}}),
        {"tokenizer.json: post_processor.single"});
  // RoBERTa's tokens are then asked for.
  names(failure("/post_processor", {{"type", "RobertaProcessing"}}), {"<pad>"});
  names(failure("/decoder", {{"type", "CTC"}}), {"decoder", "CTC"});
  names(failure("/model/type", "Unigram"), {"model.vocab: not an array"});
  names(failure("/model/dropout", 0.1), {"dropout", "0.1"});
  names(failure("/model/byte_fallback", 2), {"byte_fallback"});
  names(failure("/model/end_of_word_suffix", 2), {"end_of_word_suffix"});
  names(failure("/added_tokens/0/single_word", "yes"), {"single_word"});
  names(failure("/model/merges/0", "abc"), {"merges[0]"});
  names(failure("/model/merges/1", {"a", "zz"}), {"merge 1", "zz"});
  names(failure("/model/vocab", {{"a", -1}}), {"id of token a"});
  names(failure("/model/vocab/a", 1 << 30), {"1073741824"});
  names(failure("/model/vocab/a", 3), {"id 3", "two tokens"});
  names(failure("/model/vocab", 7), {"vocabulary"});
  names(failure("/added_tokens", 7), {"added_tokens"});
  names(failure("/model", nullptr), {"model"});
}

TEST_F(FolderTest, HostileFiles) {
  EXPECT_NE(Failure().find("no tokenizer here"), std::string::npos);
  Put("vocab.json", "{\"a\": 0, \"b\": 1, \"ab\": 2}");
  EXPECT_NE(Failure().find("merges.txt"), std::string::npos);
  Put("merges.txt", "#version: 0.2\na b\nb c d\n");
  EXPECT_NE(Failure().find("merges.txt:3"), std::string::npos);
  Put("merges.txt", "a b\nab a\n");
  EXPECT_NE(Failure().find("merge 1"), std::string::npos);
  Put("merges.txt", "a b\r\n");
  EXPECT_TRUE(LoadTokenizer(folder_).ok());
  Put("tokenizer_config.json", "{\"tokenizer_class\": \"Qwen2Tokenizer\"}");
  EXPECT_NE(Failure().find("Qwen2Tokenizer"), std::string::npos);
  Put("tokenizer_config.json", "{\"eos_token\": {\"content\": \"<eos>\"}}");
  const auto added = LoadTokenizer(folder_);
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_EQ((*added)->eos_id(), 3);  // behind the last one, as transformers adds it
  Put("tokenizer_config.json",
      "{\"eos_token\": {\"content\": \"<eos>\"}, \"added_tokens_decoder\": "
      "{\"7\": {\"content\": \"<eos>\", \"special\": true}}}");
  const auto loaded = LoadTokenizer(folder_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->eos_id(), 3);  // whatever id stands with it
  EXPECT_EQ((*loaded)->Encode("ab<eos>a"), (std::vector<int32_t>{2, 3, 0}));
  EXPECT_EQ((*loaded)->Encode("axb"), (std::vector<int32_t>{2}));  // x has no token and no unk
  for (const char* bad : {"", "{", "[]", "\"x\"", "{\"a\": \"\xFF\"}", "nul", "{\"a\":1,}"}) {
    Put("tokenizer_config.json", bad);
    EXPECT_NE(Failure().find("tokenizer_config.json"), std::string::npos) << bad;
  }
  Put("tokenizer_config.json", std::string(1000000, '['));
  EXPECT_NE(Failure().find("deeper"), std::string::npos);
  EXPECT_EQ(LoadTokenizer(folder_ + "/none").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace tessera::data
