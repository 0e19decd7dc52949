// SPDX-License-Identifier: Apache-2.0
// GLM and ChatGLM against themselves: who sees whom, one token at a time, padded, recomputed, as a
// cloze. tests/parity has them against a reference.
#include "models/glm/glm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "autograd/autograd.h"
#include "models/family.h"
#include "models/generation/generate.h"
#include "models/glm/chat_prompt.h"
#include "models/glm/chatglm.h"
#include "models/glm/cloze.h"
#include "models/glm/text_layout.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

using nlohmann::json;
using Ids = std::vector<int64_t>;

json GlmJson() {
  return {{"model_type", "glm"},      {"vocab_size", 41},         {"hidden_size", 24},
          {"num_layers", 2},          {"num_attention_heads", 3}, {"max_sequence_length", 24},
          {"initializer_range", 0.3}, {"sop_token_id", 36},       {"eop_token_id", 37},
          {"mask_token_id", 38},      {"smask_token_id", 39},     {"gmask_token_id", 40}};
}

json ChatJson() {
  return {{"model_type", "chatglm"},   {"vocab_size", 41},         {"hidden_size", 24},
          {"num_layers", 2},           {"inner_hidden_size", 29},  {"num_attention_heads", 3},
          {"max_sequence_length", 24}, {"initializer_range", 0.3}, {"bos_token_id", 36},
          {"eos_token_id", 37},        {"mask_token_id", 38},      {"gmask_token_id", 39},
          {"pad_token_id", 0}};
}

std::unique_ptr<Model> Build(const json& config, const nn::BuildContext& build = {.seed = 5}) {
  auto model = BuildModel(config, build);
  EXPECT_TRUE(model.ok()) << Message(model.status());
  return *std::move(model);
}

Tensor Row(const Ids& ids) { return Tensor::FromVector(ids, {1, std::ssize(ids)}); }

// Which positions' logits move when token `changed` becomes another.
std::vector<bool> Moved(Model& model, const Bundle& in, int64_t changed) {
  const Tensor before = model.Run(in, {}).at(keys::kLogits);
  Bundle other = in;
  const Tensor ids = in.at(keys::kInputIds).ContiguousCopy();
  ids.data<int64_t>()[changed] ^= 1;
  other.set(keys::kInputIds, ids);
  const Tensor after = model.Run(other, {}).at(keys::kLogits);
  const int64_t vocab = before.size(2);
  const std::vector<float> a = before.ToVector<float>();
  const std::vector<float> b = after.ToVector<float>();
  std::vector<bool> moved;
  for (int64_t t = 0; t < before.size(1); ++t) {
    moved.push_back(
        !std::equal(a.begin() + t * vocab, a.begin() + (t + 1) * vocab, b.begin() + t * vocab));
  }
  return moved;
}

TEST(GlmTest, TokensOfThePrefixSeeOneAnother) {
  const auto model = Build(GlmJson());
  Bundle in = {{keys::kInputIds, Row({1, 2, 3, 4, 5, 6})}};
  EXPECT_EQ(Moved(*model, in, 2), (std::vector<bool>{false, false, true, true, true, true}));
  in.set(keys::kAttentionMask, Tensor::FromVector<int64_t>({4}, {1}));
  EXPECT_EQ(Moved(*model, in, 2), std::vector<bool>(6, true));
  EXPECT_EQ(Moved(*model, in, 4), (std::vector<bool>{false, false, false, false, true, true}));
}

TEST(GlmTest, ChatTokensBeforeTheStartSeeOneAnother) {
  const auto model = Build(ChatJson());
  const Bundle in = {{keys::kInputIds, Row({1, 2, 39, 36, 5, 6})}};
  EXPECT_EQ(Moved(*model, in, 1), std::vector<bool>(6, true));
  EXPECT_EQ(Moved(*model, in, 4), (std::vector<bool>{false, false, false, false, true, true}));
}

TEST(TextLayoutTest, PositionsStayAtTheBlank) {
  const auto glm = GlmConfig::FromJson(GlmJson());
  ASSERT_TRUE(glm.ok());
  const auto layout = LayoutOfText(*glm, {7, 38, 8, 40, 36, 9, 10});
  ASSERT_TRUE(layout.ok()) << Message(layout.status());
  EXPECT_EQ(layout->prefix_length, 4);
  EXPECT_EQ(layout->positions, (std::vector<Ids>{{0, 1, 2, 3, 1, 1, 1}, {0, 0, 0, 0, 1, 2, 3}}));
  const auto chat = ChatGlmConfig::FromJson(ChatJson());
  ASSERT_TRUE(chat.ok());
  const auto talk = LayoutOfText(*chat, {7, 38, 8, 39, 36, 9, 10});  // [gMASK] before [MASK]
  ASSERT_TRUE(talk.ok());
  EXPECT_EQ(talk->prefix_length, 4);
  EXPECT_EQ(talk->positions, (std::vector<Ids>{{0, 1, 2, 3, 3, 3, 3}, {0, 0, 0, 0, 1, 2, 3}}));
  EXPECT_EQ(LayoutOfText(*chat, {7, 38, 8, 36, 39})->positions[0], (Ids{0, 1, 2, 1, 1}));
}

TEST(TextLayoutTest, PromptsAreCompletedOrRefused) {
  const GlmConfig glm = *GlmConfig::FromJson(GlmJson());
  EXPECT_EQ(*CompletePrompt(glm, {7, 38}), (Ids{7, 38, 36}));
  EXPECT_EQ(*CompletePrompt(glm, {7}), (Ids{7, 40, 36}));
  EXPECT_EQ(*CompletePrompt(glm, {38, 36, 4}), (Ids{38, 36, 4}));
  EXPECT_NE(Message(CompletePrompt(glm, {7, 36, 38}).status()).find("no blank"), std::string::npos);
  GlmConfig nameless = glm;
  nameless.sop_token_id.reset();
  EXPECT_NE(Message(CompletePrompt(nameless, {38}).status()).find("sop_token_id"),
            std::string::npos);
  const ChatGlmConfig chat = *ChatGlmConfig::FromJson(ChatJson());
  EXPECT_EQ(*CompletePrompt(chat, {7}), (Ids{7, 39, 36}));
  EXPECT_EQ(*CompletePrompt(chat, {38, 7}), (Ids{38, 7, 36}));
  EXPECT_EQ(*CompletePrompt(chat, {}), (Ids{39, 36}));
  EXPECT_NE(Message(CompletePrompt(chat, {7, 36}).status()).find("gmask_token_id"),
            std::string::npos);
}

// ChatGLM: a mask and positions that say what the ids say change nothing.
TEST(GlmTest, WhatIsDerivedCanBeSaid) {
  const auto model = Build(ChatJson());
  const Tensor ids = Row({1, 2, 39, 36, 5});
  const std::vector<float> derived =
      model->Run({{keys::kInputIds, ids}}, {}).at(keys::kLogits).ToVector<float>();
  Ids hidden(25, 0);
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t j = std::max<int64_t>(i + 1, 3); j < 5; ++j) hidden[i * 5 + j] = 1;
  }
  const Tensor logits =
      model
          ->Run({{keys::kInputIds, ids},
                 {keys::kAttentionMask, Tensor::FromVector(hidden, {1, 1, 5, 5})},
                 {keys::kPositionIds,
                  Tensor::FromVector<int64_t>({0, 1, 2, 2, 2, 0, 0, 0, 1, 2}, {1, 2, 5})}},
                {})
          .at(keys::kLogits);
  EXPECT_EQ(logits.ToVector<float>(), derived);
}

TEST(GlmTest, PaddingOnEitherSideChangesNothing) {
  const auto model = Build(ChatJson());
  const Tensor ids = Row({1, 2, 39, 36, 5});
  const Tensor plain = model->Run({{keys::kInputIds, ids}}, {}).at(keys::kLogits);
  for (const int64_t left : {0, 2, 3}) {
    const Tensor mask = Pad(Full({1, 5}, 1, DType::kInt64), 1, left, 3 - left, 0);
    const Tensor padded = model
                              ->Run({{keys::kInputIds, Pad(ids, 1, left, 3 - left, 36)},
                                     {keys::kAttentionMask, mask}},
                                    {})
                              .at(keys::kLogits);
    ExpectClose(Slice(padded, 1, left, 5), plain, 1e-6, "padded", 1.0);
  }
}

// Tokens chosen with cached keys and values, many rows at once, are those of whole passes of one.
TEST(GlmTest, GreedyDecodingFollowsTheWholeForwardPass) {
  for (const json& config : {GlmJson(), ChatJson()}) {
    const auto model = Build(config);
    const bool chat = config["model_type"] == "chatglm";
    const std::vector<Ids> prompts = {{3, 38, 4, 5}, {9, 10, 38}, {1, 2, 3, 4, 5, 6, 38}};
    GenerationConfig generation;
    generation.max_new_tokens = 9;
    const auto results = Generate(*model, prompts, generation);
    ASSERT_TRUE(results.ok()) << Message(results.status());
    for (size_t row = 0; row < prompts.size(); ++row) {
      Ids text = prompts[row];
      text.push_back(36);
      EXPECT_EQ((*results)[row].prompt, text);
      for (const int64_t id : (*results)[row].ids) {
        Bundle in = {{keys::kInputIds, Row(text)}};
        if (!chat) {
          const TextLayout layout = *model->text_format()->LayoutOf(text);
          Ids positions = layout.positions[0];
          positions.insert(positions.end(), layout.positions[1].begin(), layout.positions[1].end());
          in.set(keys::kPositionIds, Tensor::FromVector(positions, {1, 2, std::ssize(text)}));
          in.set(keys::kAttentionMask, Tensor::FromVector<int64_t>({layout.prefix_length}, {1}));
        }
        const Tensor logits = model->Run(in, {}).at(keys::kLogits);
        const std::vector<float> last =
            Slice(logits, 1, std::ssize(text) - 1, 1).ContiguousCopy().ToVector<float>();
        EXPECT_EQ(id, std::max_element(last.begin(), last.end()) - last.begin());
        text.push_back(id);
      }
    }
  }
}

TEST(GlmTest, SamplesAndBeamsDoNotDependOnTheBatch) {
  for (const json& config : {GlmJson(), ChatJson()}) {
    const auto model = Build(config);
    const std::vector<Ids> prompts = {{9, 10, 38}, {3, 38, 4, 5, 6}};
    GenerationConfig sampling;
    sampling.max_new_tokens = 8;
    sampling.do_sample = true;
    GenerationConfig beams;
    beams.max_new_tokens = 8;
    beams.num_beams = 3;
    beams.eos_token_ids = {37};
    for (const GenerationConfig& generation : {sampling, beams}) {
      const auto both = Generate(*model, prompts, generation);
      const auto first = Generate(*model, {prompts[0]}, generation);
      ASSERT_TRUE(both.ok() && first.ok()) << Message(both.status());
      EXPECT_EQ((*both)[0].ids, (*first)[0].ids);
      EXPECT_FALSE((*both)[1].ids.empty());
    }
  }
}

TEST(GlmTest, AFilledBlankEndsTheText) {
  json config = GlmJson();
  config["eos_token_id"] = 3;
  const auto generation = ReadGenerationConfig("", config);
  ASSERT_TRUE(generation.ok());
  EXPECT_EQ(generation->eos_token_ids, (Ids{3, 37}));
}

// Every candidate alone behind its context has the score that it has beside the others.
TEST(ClozeTest, CandidatesDoNotSeeOneAnother) {
  const auto model = Build(GlmJson());
  const GlmConfig config = *GlmConfig::FromJson(GlmJson());
  const std::vector<ClozeRow> rows = {{{5, 38, 6}, {{7}, {8, 9, 10}, {11, 12}}},
                                      {{13, 14, 15, 39}, {{16, 17}}}};
  const auto in = ClozeInputs(config, rows);
  ASSERT_TRUE(in.ok()) << Message(in.status());
  const std::vector<float> scores = model->Run(*in, {}).at(keys::kLogits).ToVector<float>();
  ASSERT_EQ(scores.size(), 6u);
  for (size_t b = 0; b < rows.size(); ++b) {
    for (size_t n = 0; n < 3; ++n) {
      if (n >= rows[b].candidates.size()) {
        EXPECT_EQ(scores[b * 3 + n], -std::numeric_limits<float>::infinity());
        continue;
      }
      const Ids& candidate = rows[b].candidates[n];
      Ids text = rows[b].context;
      text.push_back(36);
      double expected = 0;
      for (const int64_t id : candidate) {
        const TextLayout layout = *model->text_format()->LayoutOf(text);
        Ids positions = layout.positions[0];
        positions.insert(positions.end(), layout.positions[1].begin(), layout.positions[1].end());
        const std::vector<float> logits =
            model
                ->Run(
                    {{keys::kInputIds, Row(text)},
                     {keys::kPositionIds, Tensor::FromVector(positions, {1, 2, std::ssize(text)})},
                     {keys::kAttentionMask,
                      Tensor::FromVector<int64_t>({layout.prefix_length}, {1})},
                     {keys::kLogitPositions,
                      Tensor::FromVector<int64_t>({std::ssize(text) - 1}, {1, 1})}},
                    {})
                .at(keys::kLogits)
                .ToVector<float>();
        double sum = 0;
        for (const float l : logits) sum += std::exp(static_cast<double>(l));
        expected += logits[static_cast<size_t>(id)] - std::log(sum);
        text.push_back(id);
      }
      EXPECT_NEAR(scores[b * 3 + n], expected, 1e-5) << b << " " << n;
    }
  }
}

TEST(ClozeTest, RefusesRowsItCannotScore) {
  const GlmConfig config = *GlmConfig::FromJson(GlmJson());
  EXPECT_NE(Message(ClozeInputs(config, {{{1, 2}, {{3}}}}).status()).find("blank"),
            std::string::npos);
  EXPECT_NE(Message(ClozeInputs(config, {{{38}, {}}}).status()).find("candidates"),
            std::string::npos);
  EXPECT_NE(Message(ClozeInputs(config, {{{38}, {{}}}}).status()).find("empty"), std::string::npos);
}

TEST(GlmTest, RecomputationHasTheSameBits) {
  for (const json& config : {GlmJson(), ChatJson()}) {
    const auto run = [&](bool recompute) {
      const auto model = Build(config);
      model->set_checkpoint_activations(recompute);
      RunOptions options;
      options.context = {.training = true, .seed = 1, .step = 2};
      const Tensor ids = Row({3, 4, 39, 36, 7, 8});
      const Tensor loss =
          model->Run({{keys::kInputIds, ids}, {keys::kLabels, ids}}, options).at(keys::kLoss);
      Backward(loss);
      std::map<std::string, std::vector<float>> grads = {{"loss", loss.ToVector<float>()}};
      for (nn::Parameter* p : model->Parameters()) {
        grads[p->name] = Grad(p->tensor).ToVector<float>();
      }
      return grads;
    };
    EXPECT_TRUE(run(false) == run(true));
  }
}

TEST(GlmTest, ConfigurationsAreCheckedByName) {
  const auto problem = [](json config, const char* key, const json& value) {
    config[key] = value;
    return Message(BuildModel(config, {}).status());
  };
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, json>>{{"relative_encoding", true},
                                                 {"spell_length", 7},
                                                 {"max_memory_length", 5},
                                                 {"num_attention_heads", 5},
                                                 {"sop_token_id", 41},
                                                 {"max_sequence_length", 0}}) {
    EXPECT_NE(problem(GlmJson(), key, value).find(key), std::string::npos) << key;
  }
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, json>>{{"pre_seq_len", 128},
                                                 {"quantization_bit", 4},
                                                 {"position_encoding_2d", false},
                                                 {"num_attention_heads", 4},
                                                 {"bos_token_id", 130004},
                                                 {"inner_hidden_size", -1}}) {
    EXPECT_NE(problem(ChatJson(), key, value).find(key), std::string::npos) << key;
  }
}

TEST(ChatPromptTest, RoundsAreNumbered) {
  EXPECT_EQ(ChatPrompt("你好", {}), "[Round 0]\n问：你好\n答：");
  EXPECT_EQ(ChatPrompt("c", {{"a", "1"}, {"b", "2"}}),
            "[Round 0]\n问：a\n答：1\n[Round 1]\n问：b\n答：2\n[Round 2]\n问：c\n答：");
}

TEST(GlmTest, PresetsHaveTheirSizes) {
  const auto count = [](const char* name) {
    return Build(FindPreset(name)->config, {.device = Device::Meta(DeviceType::kCpu)})
        ->ParameterCount();
  };
  // Per layer 12 C^2 + 13 C; the tables of positions have one row more than the text may have.
  EXPECT_EQ(count("glm-large-chinese"),
            24 * (12 * 1024 * 1024 + 13 * 1024) + (50048 + 2 * 1025 + 2) * 1024);
  EXPECT_EQ(count("glm-10b"),
            48LL * (12 * 4096 * 4096 + 13 * 4096) + (50304LL + 2 * 1025 + 2) * 4096);
  EXPECT_EQ(count("chatglm-6b"), 28LL * (12 * 4096 * 4096 + 13 * 4096) + (2 * 130528LL + 2) * 4096);
}

}  // namespace
}  // namespace tessera::models
