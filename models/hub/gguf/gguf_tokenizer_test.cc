// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_tokenizer.h"

#include <cstdio>
#include <cstdlib>
#include <map>

#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/split_patterns.h"
#include "data/tokenizer/streaming_decoder.h"
#include "models/hub/gguf/gguf_folder.h"
#include "models/hub/gguf/gguf_test_models.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

TEST_F(GgufTest, TheByteTokenizerBecomesBpe) {
  const data::ByteTokenizer bytes;
  const std::string folder = Saved("m", SmallGpt(), &bytes);
  ASSERT_TRUE(WriteFileAtomically(folder + "/chat_template.jinja", "{{ messages }}").ok());
  ExpectRoundTrip(folder);
  const auto back = data::LoadTokenizer(Path("back"));
  ASSERT_TRUE(back.ok()) << Message(back.status());
  const std::string text = "Hello,  w\xC3\xB6rld\n\xF0\x9F\x99\x82 12345";
  EXPECT_EQ((*back)->Encode(text), bytes.Encode(text));
  EXPECT_EQ((*back)->eos_id(), 256);
  EXPECT_EQ(Bytes(Path("back/chat_template.jinja")), "{{ messages }}");
  EXPECT_EQ((*ReadJsonFile(Path("back/config.json")))["eos_token_id"], 256);
}

// A file of the small Llama with this tokenizer, converted to a folder.
class TokenizerTest : public GgufTest {
 protected:
  std::string Convert(const GgufMetadata& tokenizer, bool same_back = true) const {
    const std::string folder = Saved("m", SmallLlama());
    EXPECT_TRUE(ConvertToGguf(folder, Path("m.gguf")).ok());
    const GgufFile file = Opened(Path("m.gguf"));
    GgufMetadata metadata = file.metadata();
    std::erase_if(metadata, [](const auto& v) { return v.first.starts_with("tokenizer."); });
    metadata.insert(metadata.end(), tokenizer.begin(), tokenizer.end());
    WithMetadata(file, metadata, "t.gguf");
    const Status status = ConvertFromGguf(Path("t.gguf"), Path("t"));
    EXPECT_TRUE(status.ok()) << Message(status);
    // The other way gives the same keys.
    const Status again = ConvertToGguf(Path("t"), Path("again.gguf"));
    EXPECT_TRUE(again.ok()) << Message(again);
    EXPECT_EQ(Bytes(Path("t.gguf")) == Bytes(Path("again.gguf")), same_back);
    return Path("t");
  }
  static std::vector<int32_t> Ids(const std::string& folder, const std::string& text) {
    const auto tokenizer = data::LoadTokenizer(folder);
    EXPECT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
    return (*tokenizer)->Encode(text);
  }
  // All bytes, and a few pieces.
  static void AddPieces(std::vector<std::string>* tokens, std::vector<int32_t>* types) {
    for (int byte = 0; byte < 256; ++byte) {
      char text[8];
      std::snprintf(text, sizeof(text), "<0x%02X>", byte);
      tokens->emplace_back(text);
      types->push_back(6);
    }
    for (const char* piece : {"\u2581", "a", "b", "ab", "\u2581ab"}) tokens->emplace_back(piece);
    types->resize(tokens->size(), 1);
  }
  // With unused ones behind these.
  static void Fill(std::vector<std::string>* tokens, std::vector<int32_t>* types) {
    types->resize(tokens->size(), 1);
    while (tokens->size() < 300) tokens->push_back(Concat("[PAD", tokens->size(), "]"));
    types->resize(300, 5);
  }
};

TEST_F(TokenizerTest, ByteLevelBpe) {
  // How many digits a word has.
  const std::map<std::string_view, int> most = {{"gpt-2", 4},
                                                {"llama-bpe", 3},
                                                {"glm4", 3},
                                                {"minicpm5", 3},
                                                {"dbrx", 3},
                                                {"qwen2", 1},
                                                {"deepseek-r1-qwen", 1},
                                                {"qwen35", 1},
                                                {"smollm", 1},
                                                {"gpt-4o", 3},
                                                {"tekken", 1},
                                                {"seed-coder", 1},
                                                {"deepseek-v3", 3},
                                                {"default", 3},
                                                {"deepseek-llm", 4},
                                                {"viking", 1},
                                                {"deepseek-coder", 1}};
  for (const data::SplitPattern& known : data::kSplitPatterns) {
    const std::string pre(known.name);
    std::filesystem::remove_all(Path("t"));
    std::vector<std::string> tokens = {"1", "2",         "3",       "12",     "123", "23", "1234",
                                       "4", "<|begin|>", "<|end|>", "<tool>", "a",   "b",  "ab"};
    std::vector<int32_t> types(tokens.size(), 1);
    types[8] = types[9] = 3;
    types[10] = 4;
    Fill(&tokens, &types);
    const bool bos = known.options.begins;
    const GgufMetadata keys = {
        {"tokenizer.ggml.model", std::string("gpt2")},
        {"tokenizer.ggml.pre", pre},
        {"tokenizer.ggml.bos_token_id", uint32_t{8}},
        {"tokenizer.ggml.eos_token_id", uint32_t{9}},
        {"tokenizer.ggml.tokens", GgufArray(tokens)},
        {"tokenizer.ggml.token_type", GgufArray(types)},
        {"tokenizer.ggml.merges",
         GgufArray(std::vector<std::string>{"1 2", "12 3", "2 3", "123 4"})},
        {"tokenizer.ggml.add_bos_token", bos},
        {"tokenizer.ggml.add_eos_token", false},
    };
    // GLM-4 splits as Llama 3 does, and a file of the folder has that name.
    const std::string folder = Convert(keys, /*same_back=*/pre != "glm4");
    ASSERT_TRUE(most.contains(pre)) << pre;
    const std::vector<int32_t> digits = most.at(pre) == 4   ? std::vector<int32_t>{6}
                                        : most.at(pre) == 3 ? std::vector<int32_t>{4, 7}
                                                            : std::vector<int32_t>{0, 1, 2, 7};
    EXPECT_EQ(Ids(folder, "1234"), digits) << pre;
    // These take a word that is a token without merging.
    const bool ignores_merges =
        pre == "llama-bpe" || pre == "glm4" || pre == "minicpm5" || pre == "tekken";
    EXPECT_EQ(Ids(folder, "ab"),
              ignores_merges ? std::vector<int32_t>{13} : (std::vector<int32_t>{11, 12}))
        << pre;
    EXPECT_EQ(Ids(folder, "4<|end|>4<tool>"), (std::vector<int32_t>{7, 9, 7, 10})) << pre;
    const auto tokenizer = data::LoadTokenizer(folder);
    EXPECT_EQ((*tokenizer)->bos_id(), 8);
    EXPECT_EQ((*tokenizer)->eos_id(), 9);
    EXPECT_TRUE((*tokenizer)->IsSpecial(9));
    EXPECT_FALSE((*tokenizer)->IsSpecial(10));
    const data::RowTemplate* const row = (*tokenizer)->row_template(false);
    EXPECT_EQ(row != nullptr && row->items.front().id == 8, bos);
  }
}

// llama.cpp's other names, and what it does where a file does not say whether texts begin with BOS.
TEST_F(TokenizerTest, NamesAndDefaultsOfFiles) {
  std::vector<std::string> tokens = {"1", "2", "12", "a", "B", "aB", "!", "\u010A", "!\u010A"};
  tokens.emplace_back("<|begin|>");
  const std::vector<std::string> merges = {"1 2", "a B", "! \u010A"};
  std::vector<int32_t> types(9, 1);
  types.push_back(3);
  Fill(&tokens, &types);
  ASSERT_TRUE(ConvertToGguf(Saved("m", SmallLlama()), Path("m.gguf")).ok());
  const GgufFile file = Opened(Path("m.gguf"));
  struct Case {
    std::string pre;
    std::vector<int32_t> ids;  // of "12aB!" and a newline
    bool begins = false;
  };
  const std::vector<int32_t> whole = {2, 5, 8}, digits = {0, 1, 5, 8}, cased = {2, 3, 4, 8};
  const std::vector<int32_t> cased_digits = {0, 1, 3, 4, 8}, no_line = {2, 5, 6, 7};
  const std::vector<int32_t> viking = {0, 1, 5, 8};
  const std::vector<int32_t> digits_no_line = {0, 1, 5, 6, 7};
  for (const Case& c : {Case{"llama3", whole, true},
                        {"llama-v3", whole, true},
                        {"falcon3", whole, true},
                        {"pixtral", whole, true},
                        {"jina-v5-nano", whole, true},
                        {"minicpm5", whole},
                        {"smaug-bpe", whole},
                        {"glm4", whole},
                        {"glm5", whole},
                        {"chatglm-bpe", whole},
                        {"gpt-4o", cased},
                        {"llama4", cased},
                        {"kanana2", cased},
                        {"talkie", cased},
                        {"minimax-m2", cased},
                        {"tekken", cased_digits, true},
                        {"qwen35", digits},
                        {"deepseek-r1-qwen", digits},
                        {"solar-open", digits},
                        {"grok-2", digits},
                        {"megrez", digits},
                        {"seed-coder", digits_no_line},
                        {"deepseek-v3", whole},
                        {"hunyuan-dense", whole},
                        {"joyai-llm", whole},
                        {"hy_v4", whole},
                        {"deepseek-llm", no_line},
                        {"deepseek-coder", digits_no_line},
                        {"viking", viking},
                        {"phi-2", no_line},
                        {"jais", no_line},
                        {"granite-docling", no_line},
                        {"default", no_line},
                        {"starcoder", digits_no_line},
                        {"mellum2", digits_no_line}}) {
    GgufMetadata metadata = file.metadata();
    std::erase_if(metadata, [](const auto& v) { return v.first.starts_with("tokenizer."); });
    const GgufMetadata keys = {{"tokenizer.ggml.model", std::string("gpt2")},
                               {"tokenizer.ggml.pre", c.pre},
                               {"tokenizer.ggml.bos_token_id", uint32_t{9}},
                               {"tokenizer.ggml.tokens", GgufArray(tokens)},
                               {"tokenizer.ggml.token_type", GgufArray(types)},
                               {"tokenizer.ggml.merges", GgufArray(merges)}};
    metadata.insert(metadata.end(), keys.begin(), keys.end());
    const auto folder = MountGguf(Opened(WithMetadata(file, metadata, "t.gguf")));
    ASSERT_TRUE(folder.ok()) << Message(folder.status());
    EXPECT_EQ(Ids(folder->path(), "12aB!\n"), c.ids) << c.pre;
    const auto tokenizer = data::LoadTokenizer(folder->path());
    const data::RowTemplate* const row = (*tokenizer)->row_template(false);
    EXPECT_EQ(row != nullptr && row->items.front().id == 9, c.begins) << c.pre;
    std::filesystem::remove(Path("t.gguf"));
  }
}

// Ends of texts beside the first, and templates by name.
TEST_F(TokenizerTest, EndsAndTemplates) {
  std::vector<std::string> tokens = {"1",        "<|begin|>",  "<|endoftext|>",
                                     "<|user|>", "<|eom_id|>", "<|odd|>"};
  std::vector<int32_t> types(tokens.size(), 3);
  types[0] = 1;
  Fill(&tokens, &types);
  const std::string folder = Convert({
      {"tokenizer.ggml.model", std::string("gpt2")},
      {"tokenizer.ggml.pre", std::string("gpt-2")},
      {"tokenizer.ggml.bos_token_id", uint32_t{1}},
      {"tokenizer.ggml.eos_token_id", uint32_t{2}},
      {"tokenizer.ggml.eot_token_id", uint32_t{3}},
      {"tokenizer.ggml.eom_token_id", uint32_t{5}},
      {"tokenizer.ggml.tokens", GgufArray(tokens)},
      {"tokenizer.ggml.token_type", GgufArray(types)},
      {"tokenizer.ggml.merges", GgufArray(std::vector<std::string>())},
      {"tokenizer.ggml.add_bos_token", false},
      {"tokenizer.ggml.add_eos_token", false},
      {"tokenizer.chat_template", std::string("{{ messages }}")},
      {"tokenizer.chat_template.tool_use", std::string("{{ tools }}")},
      {"tokenizer.chat_templates", GgufArray(std::vector<std::string>{"tool_use"})},
  });
  const nlohmann::json generation = *ReadJsonFile(folder + "/generation_config.json");
  EXPECT_EQ(generation["eos_token_id"], nlohmann::json({2, 3, 5, 4}));
  EXPECT_EQ(generation["bos_token_id"], 1);
  EXPECT_EQ((*ReadJsonFile(folder + "/tokenizer_config.json"))["chat_template"],
            nlohmann::json({{{"name", "default"}, {"template", "{{ messages }}"}},
                            {{"name", "tool_use"}, {"template", "{{ tools }}"}}}));
  // Files of both may say the same.
  std::filesystem::create_directories(folder + "/additional_chat_templates");
  Write("t/additional_chat_templates/rag.jinja", "{{ documents }}");
  Write("t/chat_template.jinja", "{{ messages[0] }}");
  ASSERT_TRUE(ConvertToGguf(folder, Path("more.gguf")).ok());
  const GgufFile more = Opened(Path("more.gguf"));
  std::vector<std::string> names;
  std::string text;
  ASSERT_TRUE(more.Read("tokenizer.chat_templates", &names).ok());
  EXPECT_EQ(names, (std::vector<std::string>{"rag", "tool_use"}));
  ASSERT_TRUE(more.Read("tokenizer.chat_template", &text).ok());
  EXPECT_EQ(text, "{{ messages[0] }}");
  ASSERT_TRUE(more.Read("tokenizer.chat_template.rag", &text).ok());
  EXPECT_EQ(text, "{{ documents }}");
}

// A padding token without a row counts for nothing; an end of text without one is refused.
TEST_F(TokenizerTest, TokensBeyondTheVocabulary) {
  ASSERT_TRUE(ConvertToGguf(Saved("m", SmallLlama()), Path("m.gguf")).ok());
  const GgufFile file = Opened(Path("m.gguf"));
  const auto mounted = [&](const std::string& key) {
    GgufMetadata metadata = file.metadata();
    std::erase_if(metadata, [](const auto& v) { return v.first.starts_with("tokenizer."); });
    std::vector<std::string> tokens;
    std::vector<int32_t> types;
    Fill(&tokens, &types);
    const GgufMetadata keys = {{"tokenizer.ggml.model", std::string("gpt2")},
                               {"tokenizer.ggml.pre", std::string("gpt-2")},
                               {key, uint32_t{300}},
                               {"tokenizer.ggml.tokens", GgufArray(tokens)},
                               {"tokenizer.ggml.token_type", GgufArray(types)}};
    metadata.insert(metadata.end(), keys.begin(), keys.end());
    return MountGguf(Opened(WithMetadata(file, metadata, "t.gguf"))).status();
  };
  EXPECT_TRUE(mounted("tokenizer.ggml.padding_token_id").ok());
  EXPECT_TRUE(mounted("tokenizer.ggml.eot_token_id").ok());
  EXPECT_FALSE(mounted("tokenizer.ggml.eos_token_id").ok());
}

// A real file, where this machine has one.
TEST_F(TokenizerTest, SmolLM) {
  const char* const path = std::getenv("TESSERA_SMOLLM_GGUF");
  if (path == nullptr) GTEST_SKIP() << "TESSERA_SMOLLM_GGUF names no file of SmolLM";
  const GgufFile file = Opened(path);
  const auto files = TokenizerOfGguf(file);
  ASSERT_TRUE(files.ok()) << Message(files.status());
  EXPECT_TRUE(files->count("chat_template.jinja") == 1);
  const MountedFolder folder("smollm", MountedTexts(*files));
  const auto tokenizer = data::LoadTokenizer(folder.path());
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  EXPECT_EQ((*tokenizer)->vocab_size(), 49152);
  const std::string text = "In 2024, it's <|im_start|>";
  EXPECT_EQ((*tokenizer)->Decode((*tokenizer)->Encode(text)), text);
}

TEST_F(TokenizerTest, SentencePiece) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  AddPieces(&tokens, &types);
  tokens.emplace_back("<|im_start|>");
  types.push_back(3);
  std::vector<float> scores(tokens.size(), 0);
  for (size_t i = 259; i < scores.size(); ++i) scores[i] = -static_cast<float>(300 - i);
  Fill(&tokens, &types);
  scores.resize(300, -10000);
  const std::string folder = Convert({
      {"tokenizer.ggml.model", std::string("llama")},
      {"tokenizer.ggml.pre", std::string("default")},
      {"tokenizer.ggml.bos_token_id", uint32_t{1}},
      {"tokenizer.ggml.eos_token_id", uint32_t{2}},
      {"tokenizer.ggml.unknown_token_id", uint32_t{0}},
      {"tokenizer.ggml.tokens", GgufArray(tokens)},
      {"tokenizer.ggml.scores", GgufArray(scores)},
      {"tokenizer.ggml.token_type", GgufArray(types)},
      {"tokenizer.ggml.add_bos_token", true},
      {"tokenizer.ggml.add_eos_token", false},
      {"tokenizer.ggml.add_space_prefix", true},
      {"tokenizer.ggml.remove_extra_whitespaces", false},
  });
  EXPECT_EQ(Ids(folder, "ab ba"), (std::vector<int32_t>{263, 259, 261, 260}));
  EXPECT_EQ(Ids(folder, "c"), (std::vector<int32_t>{259, 3 + 'c'}));
  EXPECT_EQ(Ids(folder, "<|im_start|>").back(), 264);
  const auto tokenizer = data::LoadTokenizer(folder);
  EXPECT_EQ((*tokenizer)->bos_id(), 1);
  EXPECT_EQ((*tokenizer)->eos_id(), 2);
  // A text of its own loses the blank in front, one that continues another keeps it.
  data::StreamingDecoder alone(**tokenizer), after(**tokenizer, {}, /*follows_text=*/true);
  EXPECT_EQ(alone.Push(263), "ab");
  EXPECT_EQ(after.Push(263), " ab");
}

// Phi-3's control tokens take the blanks behind them.
TEST_F(TokenizerTest, SentencePieceOfPhi3) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  AddPieces(&tokens, &types);
  tokens.emplace_back("<|user|>");
  types.push_back(3);
  std::vector<float> scores(tokens.size(), 0);
  for (size_t i = 259; i < scores.size(); ++i) scores[i] = -static_cast<float>(300 - i);
  Fill(&tokens, &types);
  scores.resize(300, -10000);
  const std::string folder = Convert({{"general.name", std::string("Phi-3 mini")},
                                      {"tokenizer.ggml.model", std::string("llama")},
                                      {"tokenizer.ggml.bos_token_id", uint32_t{1}},
                                      {"tokenizer.ggml.eos_token_id", uint32_t{2}},
                                      {"tokenizer.ggml.tokens", GgufArray(tokens)},
                                      {"tokenizer.ggml.scores", GgufArray(scores)},
                                      {"tokenizer.ggml.token_type", GgufArray(types)}},
                                     /*same_back=*/false);
  EXPECT_EQ(Ids(folder, "<|user|>\n ab"), (std::vector<int32_t>{264, 263}));
  EXPECT_EQ(Ids(folder, "<s> ab"), (std::vector<int32_t>{1, 259, 263}));
}

// As llama.cpp writes Gemma's: no token has the unknown one's type, blanks of user-defined tokens
// are plain, and texts begin without one.
TEST_F(TokenizerTest, SentencePieceOfGemma) {
  std::vector<std::string> tokens = {"<pad>", "<eos>", "<bos>", "<unk>", "\n", "  "};
  std::vector<int32_t> types = {3, 3, 3, 3, 4, 4};
  AddPieces(&tokens, &types);
  std::vector<float> scores(tokens.size(), 0);
  for (size_t i = 262; i < scores.size(); ++i) scores[i] = -static_cast<float>(300 - i);
  Fill(&tokens, &types);
  scores.resize(300, -10000);
  const std::string folder = Convert(
      {
          {"tokenizer.ggml.model", std::string("llama")},
          {"tokenizer.ggml.pre", std::string("default")},
          {"tokenizer.ggml.bos_token_id", uint32_t{2}},
          {"tokenizer.ggml.eos_token_id", uint32_t{1}},
          {"tokenizer.ggml.unknown_token_id", uint32_t{3}},
          {"tokenizer.ggml.tokens", GgufArray(tokens)},
          {"tokenizer.ggml.scores", GgufArray(scores)},
          {"tokenizer.ggml.token_type", GgufArray(types)},
          {"tokenizer.ggml.add_bos_token", true},
          {"tokenizer.ggml.add_space_prefix", false},
      },
      /*same_back=*/false);  // the unknown token has its type
  EXPECT_EQ(Ids(folder, "ab  b ab\n"), (std::vector<int32_t>{265, 5, 264, 266, 4}));
  const auto tokenizer = data::LoadTokenizer(folder);
  for (const char* text : {" ab", "ab  b ab\n", "c  d"}) {
    EXPECT_EQ((*tokenizer)->Decode((*tokenizer)->Encode(text)), text);
  }
  data::StreamingDecoder decoder(**tokenizer);
  EXPECT_EQ(decoder.Push(266), " ab");
}

}  // namespace
}  // namespace tessera::models
