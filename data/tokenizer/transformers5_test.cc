// SPDX-License-Identifier: Apache-2.0
// Folders as transformers 5 saves them: tokenizer.json, tokenizer_config.json and chat templates.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "data/tokenizer/sequence_pair.h"
#include "data/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kData = "data/tokenizer/testdata/transformers5/";

std::string NewFolder(const std::string& name) {
  const std::string folder = JoinPath(testing::TempDir(), name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

void Write(const std::string& folder, const std::string& name, const std::string& content) {
  ASSERT_TRUE(WriteFileAtomically(JoinPath(folder, name), content).ok());
}

std::unique_ptr<Tokenizer> Loaded(const std::string& folder) {
  auto tokenizer = LoadTokenizer(folder);
  EXPECT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

// What transformers makes of the same texts; see make_transformers5_goldens.py.
class Transformers5Test : public testing::TestWithParam<const char*> {};

TEST_P(Transformers5Test, IdsAndRowsAreThoseOfTheOriginal) {
  const auto tokenizer = Loaded(kData + GetParam());
  ASSERT_NE(tokenizer, nullptr);
  const auto goldens = ReadJsonFile(kData + GetParam() + "/goldens.json");
  ASSERT_TRUE(goldens.ok()) << Message(goldens.status());
  ASSERT_GT(goldens->size(), 90u);
  for (const json& golden : *goldens) {
    SCOPED_TRACE(golden["text"].dump());
    const std::string text = golden["text"];
    EXPECT_EQ(json(tokenizer->Encode(text)), golden["ids"]);
    if (tokenizer->row_template(false) == nullptr) {
      EXPECT_EQ(golden["row"], golden["ids"]);
      continue;
    }
    const auto row = EncodePair(*tokenizer, text);
    ASSERT_TRUE(row.ok()) << Message(row.status());
    EXPECT_EQ(json(row->ids), golden["row"]);
  }
  EXPECT_TRUE(tokenizer->FindSpecial("<extra1>").has_value());
  EXPECT_FALSE(tokenizer->FindSpecial("<plain>").has_value());
}

TEST_P(Transformers5Test, NothingIsLostWhenItIsSaved) {
  const auto tokenizer = Loaded(kData + GetParam());
  ASSERT_NE(tokenizer, nullptr);
  const std::string copy = NewFolder(std::string("saved_") + GetParam());
  ASSERT_TRUE(tokenizer->Save(copy).ok());
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kData + GetParam())) {
    const std::string name = fs::relative(entry.path(), kData + GetParam()).string();
    if (entry.is_directory() || name == "goldens.json") continue;
    ++files;
    const auto saved = ReadFile(JoinPath(copy, name));
    ASSERT_TRUE(saved.ok()) << name;
    EXPECT_EQ(*saved, *ReadFile(entry.path().string())) << name;
  }
  EXPECT_GE(files, 3);
  const auto again = Loaded(copy);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->Fingerprint(), tokenizer->Fingerprint());
}

INSTANTIATE_TEST_SUITE_P(Families, Transformers5Test,
                         testing::Values("gpt2", "bert", "bert_cased", "roberta", "t5", "albert",
                                         "xlm_roberta", "llama", "llama_bos"));

TEST(TokenizerFolderTest, TokensThatAreOnlyDeclaredGetTheNextIds) {
  const auto llama = Loaded(kData + "llama");
  const auto bert = Loaded(kData + "bert");
  EXPECT_EQ(llama->FindSpecial("<image>"), llama->vocab_size() - 1);
  EXPECT_EQ(bert->FindSpecial("<image>"), bert->vocab_size() - 1);
  const auto gpt2 = Loaded(kData + "gpt2");
  EXPECT_EQ(gpt2->pad_id(), gpt2->FindSpecial("<pad>"));
}

TEST(TokenizerFolderTest, IdsOfDeclaredTokensHaveALimit) {
  for (const char* name : {"gpt2", "bert", "llama"}) {
    const std::string folder = NewFolder("limit");
    fs::copy_file(kData + name + "/tokenizer.json", JoinPath(folder, "tokenizer.json"));
    Write(folder, "special_tokens_map.json", R"({"pad_token": "<new>"})");
    for (const char* id : {"-1", "4194304", "2147483647", "9223372036854775807", "1.5", "\"1\""}) {
      Write(folder, "added_tokens.json", std::string(R"({"<x>": )") + id + "}");
      const auto tokenizer = LoadTokenizer(folder);
      ASSERT_FALSE(tokenizer.ok()) << name << " " << id;
      EXPECT_NE(Message(tokenizer.status()).find("added_tokens.json: "), std::string::npos);
    }
    // The next ids count, not those behind a gap.
    Write(folder, "added_tokens.json", R"({"<a>": 4194303, "<b>": 4194300})");
    const auto tokenizer = Loaded(folder);
    ASSERT_NE(tokenizer, nullptr) << name;
    const int64_t size = tokenizer->vocab_size();
    EXPECT_EQ(tokenizer->Encode("<b><a><new>"),
              (std::vector<int32_t>{static_cast<int32_t>(size - 3), static_cast<int32_t>(size - 2),
                                    static_cast<int32_t>(size - 1)}));
  }
}

// The files of older versions that each class has; others have a tokenizer.json alone.
TEST(TokenizerFolderTest, ClassesAreKnownByTheirParts) {
  const auto saved = [](const char* name, const char* file) {
    const auto tokenizer = Loaded(kData + name);
    const std::vector<TokenizerFile> files = tokenizer->FilesToSave();
    return std::any_of(files.begin(), files.end(),
                       [&](const TokenizerFile& f) { return f.name == file; });
  };
  for (const char* name : {"gpt2", "roberta"}) EXPECT_TRUE(saved(name, "merges.txt")) << name;
  for (const char* name : {"bert", "bert_cased"}) EXPECT_TRUE(saved(name, "vocab.txt")) << name;
  for (const char* name : {"llama", "albert"}) {
    EXPECT_FALSE(saved(name, "merges.txt") || saved(name, "vocab.txt")) << name;
  }
}

// The files of both versions in one folder: the older ones lack the added tokens.
TEST(TokenizerFolderTest, TokenizerJsonIsTheTruth) {
  for (const char* name : {"bert", "gpt2"}) {
    const std::string folder = NewFolder("both");
    const auto original = Loaded(kData + name);
    ASSERT_TRUE(original->Save(folder).ok());
    Write(folder, "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nx\n");
    Write(folder, "vocab.json", R"({"x": 0, "<|endoftext|>": 1})");
    Write(folder, "merges.txt", "#version: 0.2\n");
    const auto both = Loaded(folder);
    ASSERT_NE(both, nullptr);
    EXPECT_EQ(both->Fingerprint(), original->Fingerprint());
    EXPECT_EQ(both->Encode("hello <plain> x"), original->Encode("hello <plain> x"));

    // Where it cannot be used, it is named, and nothing else is taken in its place.
    json bad = *ReadJsonFile(kData + name + "/tokenizer.json");
    bad["normalizer"] = {{"type", "Other"}};
    Write(folder, "tokenizer.json", bad.dump());
    const auto refused = LoadTokenizer(folder);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(Message(refused.status()).find("tokenizer.json: normalizer: type Other"),
              std::string::npos)
        << Message(refused.status());
  }
}

// The switches of tokenizer_config.json beside a tokenizer.json, as transformers 4 takes them.
TEST(TokenizerFolderTest, SwitchesBesideATokenizerJson) {
  const auto with = [](const char* name, json config) {
    const std::string folder = NewFolder("switches");
    fs::copy_file(kData + name + "/tokenizer.json", JoinPath(folder, "tokenizer.json"));
    config.update({{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    if (std::string(name).starts_with("bert")) config = {{"clean_up_tokenization_spaces", false}};
    Write(folder, "tokenizer_config.json", config.dump());
    return Loaded(folder);
  };
  // The template of "llama" has no token of its own, that of "llama_bos" has <s>.
  const auto row = [&](const char* name, const json& config) {
    const auto tokenizer = with(name, config);
    const auto built = EncodePair(*tokenizer, "a", "a");
    EXPECT_TRUE(built.ok()) << Message(built.status());
    return std::pair(built->ids, built->token_type_ids);
  };
  using Ids = std::vector<int32_t>;
  const auto plain = with("llama_bos", json::object());
  const Ids a = plain->Encode("a");
  ASSERT_EQ(a.size(), 1u);
  const int32_t bos = *plain->bos_id();
  const int32_t eos = *plain->eos_id();
  for (const char* name :
       {"LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizerFast", "GemmaTokenizer"}) {
    EXPECT_EQ(row("llama_bos",
                  {{"tokenizer_class", name}, {"add_bos_token", true}, {"add_eos_token", true}}),
              std::pair(Ids({bos, a[0], eos, bos, a[0], eos}), Ids({0, 0, 0, 1, 1, 1})));
    EXPECT_EQ(row("llama_bos", {{"tokenizer_class", name}, {"add_bos_token", false}}).first,
              Ids({a[0], a[0]}));
    EXPECT_EQ(row("llama", {{"tokenizer_class", name}, {"add_bos_token", true}}).first,
              Ids({bos, a[0], bos, a[0]}));
  }
  EXPECT_EQ(
      row("llama_bos", {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"add_eos_token", true}})
          .first,
      row("llama_bos", json::object()).first);
  EXPECT_NE(with("llama_bos", {{"tokenizer_class", "LlamaTokenizer"}, {"add_bos_token", false}})
                ->Fingerprint(),
            plain->Fingerprint());
  // A special token in a text is text.
  const auto split = with("llama_bos", {{"split_special_tokens", true}});
  EXPECT_EQ(split->Encode("</s>"), plain->Encode("</s>", {.parse_special = false}));
  EXPECT_NE(split->Encode("</s>"), plain->Encode("</s>"));
  // Blanks before punctuation.
  for (const char* name : {"gpt2", "llama_bos"}) {
    const auto cleaned = with(name, {{"clean_up_tokenization_spaces", true}});
    EXPECT_EQ(cleaned->Decode(cleaned->Encode("a , b .")), "a, b.") << name;
    const auto kept = with(name, {{"clean_up_tokenization_spaces", false}});
    EXPECT_EQ(kept->Decode(kept->Encode("a , b .")), "a , b .") << name;
  }
  // BERT's decoder cleans piece by piece, whatever is said.
  const auto bert = with("bert_cased", json::object());
  const Ids quoted = bert->Encode("a ' a .");
  EXPECT_EQ(bert->Decode(quoted), "a ' a.");
  EXPECT_EQ(Loaded(kData + "bert_cased")->Decode(quoted), "a'a.");
}

// Folders with vocab.txt, or vocab.json and merges.txt, alone.
TEST(TokenizerFolderTest, OlderFilesAreSavedWithATokenizerJson) {
  for (const char* name : {"bert", "bert_cased", "gpt2", "roberta"}) {
    SCOPED_TRACE(name);
    const auto original = Loaded(kData + name);
    const std::string written = NewFolder("written");
    original->set_source_files({});
    ASSERT_TRUE(original->Save(written).ok());
    const std::string old = NewFolder("old");
    const bool bert = std::string(name).starts_with("bert");
    for (const char* file : {bert ? "vocab.txt" : "vocab.json", bert ? "vocab.txt" : "merges.txt",
                             "tokenizer_config.json"}) {
      fs::copy_file(JoinPath(written, file), JoinPath(old, file), fs::copy_options::skip_existing);
    }
    json added = json::object();
    for (const char* token : {"<plain>", "<lr>", "<pad>"}) {
      const std::vector<int32_t> ids = original->Encode(token);
      if (ids.size() == 1) added[token] = ids[0];
    }
    Write(old, "added_tokens.json", added.dump());
    Write(old, "chat_template.jinja", "{{ messages }}");
    const auto plain = Loaded(old);
    ASSERT_NE(plain, nullptr);
    const std::string saved = NewFolder(std::string("saved_old_") + name);
    ASSERT_TRUE(plain->Save(saved).ok());
    EXPECT_EQ(*ReadFile(JoinPath(saved, "chat_template.jinja")), "{{ messages }}");
    ASSERT_TRUE(fs::remove(JoinPath(saved, bert ? "vocab.txt" : "vocab.json")));
    ASSERT_TRUE(PathExists(JoinPath(saved, "tokenizer.json")));
    const auto again = Loaded(saved);
    ASSERT_NE(again, nullptr);
    const auto goldens = ReadJsonFile(kData + name + "/goldens.json");
    for (const json& golden : *goldens) {
      const std::string text = golden["text"];
      EXPECT_EQ(again->Encode(text), plain->Encode(text)) << text;
      if (text.find("extra1") == std::string::npos && text.find("image") == std::string::npos &&
          text.find("<lr>") == std::string::npos && text.find("<mask>") == std::string::npos) {
        EXPECT_EQ(json(plain->Encode(text)), golden["ids"]) << text;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::data
