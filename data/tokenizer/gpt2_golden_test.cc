// SPDX-License-Identifier: Apache-2.0
// The ids of GPT-2's own vocabulary, against goldens that tests/parity/gpt2_tokenizer.py made with
// Hugging Face's tokenizers. The vocabulary is not part of the project: it is looked for in
// $TESSERA_SHARED_DATA/gpt2 and in shared/data/gpt2 beside any folder above the project's own.
#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "data/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

constexpr const char* kGoldens = "data/tokenizer/testdata/gpt2_goldens.json";
constexpr size_t kMixedBytes = 1 << 20;

std::optional<std::string> FindVocabulary() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (const char* shared = std::getenv("TESSERA_SHARED_DATA")) {
    const fs::path folder = fs::path(shared) / "gpt2";
    if (fs::is_directory(folder, ignored)) return folder.string();
  }
  for (fs::path at = fs::canonical(kGoldens, ignored); at.has_relative_path();) {
    at = at.parent_path();
    const fs::path folder = at / "shared/data/gpt2";
    if (fs::is_directory(folder, ignored)) return folder.string();
  }
  return std::nullopt;
}

class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t x = state_ += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

 private:
  uint64_t state_;
};

// As mixed_text in tests/parity/gpt2_tokenizer.py.
std::string MixedText(uint64_t seed, const nlohmann::json& fragments) {
  SplitMix random(seed);
  std::string out;
  while (out.size() < kMixedBytes) {
    const uint64_t kind = random.Next() % 8;
    if (kind == 0) {
      for (uint64_t n = 1 + random.Next() % 6; n > 0; --n) {
        const auto c = static_cast<char32_t>(random.Next() % 0x110000);
        AppendUtf8(c >= 0xD800 && c < 0xE000 ? 0x2028 : c, &out);
      }
    } else if (kind == 1) {
      for (uint64_t n = 1 + random.Next() % 12; n > 0; --n) {
        out += static_cast<char>(random.Next() % 128);
      }
    } else {
      out += fragments[random.Next() % fragments.size()]["text"].get<std::string>();
    }
    constexpr const char* kSeparators[] = {"", "", " ", "\n"};
    out += kSeparators[random.Next() % 4];
  }
  return out;
}

std::string Hash(std::string_view bytes) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016" PRIx64, HashBytes(bytes));
  return text;
}

class Gpt2GoldenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto goldens = ReadJsonFile(kGoldens);
    ASSERT_TRUE(goldens.ok()) << goldens.status();
    goldens_ = *std::move(goldens);
    const std::optional<std::string> folder = FindVocabulary();
    if (!folder) {
      GTEST_SKIP() << "GPT-2's vocabulary is not here: set TESSERA_SHARED_DATA to a folder with "
                      "gpt2/encoder.json and gpt2/vocab.bpe";
    }
    auto loaded = LoadTokenizer(*folder);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    tokenizer_ = *std::move(loaded);
  }
  nlohmann::json goldens_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(Gpt2GoldenTest, TrickyStrings) {
  EXPECT_EQ(tokenizer_->vocab_size(), 50257);
  EXPECT_EQ(tokenizer_->eos_id(), 50256);
  ASSERT_GT(goldens_["fragments"].size(), 200u);
  for (const nlohmann::json& item : goldens_["fragments"]) {
    const std::string text = item["text"];
    const std::vector<int32_t> ids = tokenizer_->Encode(text);
    EXPECT_EQ(ids, item["ids"].get<std::vector<int32_t>>()) << item["text"];
    EXPECT_EQ(tokenizer_->Decode(ids), text);
  }
}

TEST_F(Gpt2GoldenTest, OneMegabyteOfMixedText) {
  const std::string text = MixedText(goldens_["seed"], goldens_["fragments"]);
  ASSERT_EQ(text.size(), goldens_["text_bytes"]);
  ASSERT_EQ(Hash(text), goldens_["text_hash"]);
  const std::vector<int32_t> ids = tokenizer_->Encode(text);
  EXPECT_EQ(ids.size(), goldens_["num_ids"]);
  const std::string_view bytes(reinterpret_cast<const char*>(ids.data()), ids.size() * 4);
  const size_t block_bytes = goldens_["ids_per_block"].get<size_t>() * 4;
  for (size_t i = 0; i < goldens_["block_hashes"].size(); ++i) {
    ASSERT_LE(i * block_bytes, bytes.size());
    ASSERT_EQ(Hash(bytes.substr(i * block_bytes, block_bytes)), goldens_["block_hashes"][i])
        << "ids from " << i * block_bytes / 4 << " on differ";
  }
  EXPECT_EQ(tokenizer_->Decode(ids), text);
}

TEST_F(Gpt2GoldenTest, SavedFolderIsSelfContained) {
  const std::string folder = ::testing::TempDir() + "/gpt2_saved";
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(tokenizer_->Save(folder).ok());
  const auto loaded = LoadTokenizer(folder);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->Fingerprint(), tokenizer_->Fingerprint());
  const std::string text = MixedText(1, goldens_["fragments"]).substr(0, 100000);
  EXPECT_EQ((*loaded)->Encode(text), tokenizer_->Encode(text));
}

}  // namespace
}  // namespace tessera::data
