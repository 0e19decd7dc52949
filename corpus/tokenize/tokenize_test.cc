// SPDX-License-Identifier: Apache-2.0
#include "corpus/tokenize/tokenize.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "base/file.h"
#include "data/dataset/indexed_dataset_writer.h"
#include "data/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace tessera::corpus {
namespace {

class TokenizeTest : public testing::Test {
 protected:
  TokenizeTest() : root_(testing::TempDir() + "/tokenize") {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    std::ofstream out(Path("in.txt"));
    for (const std::string& text : texts_) out << text << "\n";
    options_.input = {Path("in.txt")};
    options_.output = Path("out");
    options_.tokenizer = "byte";
  }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }

  const std::string root_;
  const std::vector<std::string> texts_ = {"one", "a longer document", "zwölf", "x"};
  TokenizeOptions options_;
};

TEST_F(TokenizeTest, WritesWhatTheTrainersWriterDoes) {
  const auto tokenizer = data::LoadTokenizer("byte");
  ASSERT_TRUE(tokenizer.ok());
  for (const std::optional<int64_t> seq_len : {std::optional<int64_t>(), {4}, {1000}}) {
    for (const bool eos : {true, false}) {
      options_.seq_len = seq_len;
      options_.eos = eos;
      const auto counts = RunTokenize(options_, {});
      ASSERT_TRUE(counts.ok()) << Message(counts.status());
      EXPECT_EQ(counts->at("out"), 4);
      auto writer =
          data::IndexedDatasetWriter::Create(Path("expected"), (*tokenizer)->vocab_size());
      for (const std::string& text : texts_) {
        std::vector<int32_t> ids = (*tokenizer)->Encode(text);
        if (eos) ids.push_back(*(*tokenizer)->eos_id());
        for (std::span<const int32_t> rest = ids; !rest.empty();) {
          const size_t piece = std::min(rest.size(), static_cast<size_t>(seq_len.value_or(1000)));
          ASSERT_TRUE((*writer)->AddSequence(rest.first(piece)).ok());
          rest = rest.subspan(piece);
        }
        (*writer)->EndDocument();
      }
      ASSERT_TRUE((*writer)->Finish().ok());
      EXPECT_EQ(counts->at("tokens"), (*writer)->num_tokens());
      for (const char* end : {".bin", ".idx"}) {
        EXPECT_EQ(*ReadFile(Path("out") + end), *ReadFile(Path("expected") + end))
            << end << " " << seq_len.value_or(0) << " " << eos;
      }
      EXPECT_FALSE(PathExists(Path("out.work")));
    }
  }
}

// As `tessera tokenize` writes them: <s> of Llama's tokenizers before each document.
TEST_F(TokenizeTest, DocumentsBeginAsTheTokenizersTexts) {
  std::filesystem::create_directories(Path("llama"));
  std::ofstream(Path("llama/tokenizer.json")) << R"({
      "added_tokens": [{"id": 2, "content": "<s>", "special": true}],
      "model": {"type": "WordLevel", "vocab": {"one": 0, "x": 1, "<s>": 2}, "unk_token": "x"},
      "pre_tokenizer": {"type": "Whitespace"},
      "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [2], "tokens": ["<s>"]}}}})";
  options_.tokenizer = Path("llama");
  const auto tokens = [&] {
    EXPECT_TRUE(RunTokenize(options_, {}).ok());
    const std::string bytes = *ReadFile(Path("out.bin"));
    std::string ids;  // of two bytes each
    for (size_t i = 0; i < bytes.size(); i += 2) ids += static_cast<char>('0' + bytes[i]);
    return ids;
  };
  EXPECT_EQ(tokens(), "2021112121");
  options_.bos = false;
  EXPECT_EQ(tokens(), "011111");
}

TEST_F(TokenizeTest, TheKeySaysWhatTheTokensDependOn) {
  options_.output = Path("{key}");
  options_.seq_len = 4;
  ASSERT_TRUE(RunTokenize(options_, {}).ok());
  options_.seq_len = 8;
  ASSERT_TRUE(RunTokenize(options_, {}).ok());
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(root_)) {
    if (entry.path().extension() == ".bin") names.push_back(entry.path().stem());
  }
  std::ranges::sort(names);
  ASSERT_EQ(names.size(), 2u);
  EXPECT_TRUE(names[0].ends_with("-4")) << names[0];
  EXPECT_EQ(names[0].substr(0, 16), names[1].substr(0, 16));
}

TEST_F(TokenizeTest, NeedsATokenizer) {
  options_.tokenizer = "";
  EXPECT_EQ(RunTokenize(options_, {}).status().code(), StatusCode::kInvalidArgument);
  options_.tokenizer = Path("none");
  EXPECT_NE(Message(RunTokenize(options_, {}).status()).find("none"), std::string::npos);
}

}  // namespace
}  // namespace tessera::corpus
