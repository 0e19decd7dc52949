// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "models/family.h"
#include "models/generation/generate.h"
#include "models/generation/special_tokens.h"
#include "models/generation/stop_strings.h"
#include "models/generation/token_choice.h"
#include "models/generation/written_text.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using Ids = std::vector<int64_t>;

std::unique_ptr<Model> SmallModel(int64_t vocab = 23, uint64_t seed = 1) {
  const nlohmann::json config = {
      {"model_type", "gpt2"}, {"vocab_size", vocab}, {"n_positions", 24},       {"n_embd", 10},
      {"n_layer", 2},         {"n_head", 2},         {"initializer_range", 0.6}};
  auto model = BuildModel(config, {.seed = seed});
  EXPECT_TRUE(model.ok()) << Message(model.status());
  return *std::move(model);
}

std::vector<GenerationResult> Continue(Model& model, const std::vector<Ids>& prompts,
                                       const GenerationConfig& config,
                                       const GenerateOptions& options = {}) {
  auto results = Generate(model, prompts, config, options);
  EXPECT_TRUE(results.ok()) << Message(results.status());
  return results.ok() ? *std::move(results) : std::vector<GenerationResult>(prompts.size());
}

std::string FailureOf(Model& model, const Ids& prompt, const GenerationConfig& config) {
  const auto results = Generate(model, {prompt}, config);
  EXPECT_EQ(results.status().code(), StatusCode::kInvalidArgument);
  return Message(results.status());
}

// Logits after the last token, from the whole sequence at once.
std::vector<double> FullPass(Model& model, const Ids& ids) {
  const NoGrad no_grad;
  const auto n = static_cast<int64_t>(ids.size());
  const std::vector<double> all =
      model.Run({{keys::kInputIds, Tensor::FromVector<int64_t>(ids, {1, n})}}, {})
          .at(keys::kLogits)
          .ToVector<double>();
  return {all.end() - model.vocab_size(), all.end()};
}

TEST(GenerateTest, GreedyTakesTheLikeliestOfTheFullPass) {
  const auto model = SmallModel();
  const Ids prompt = {3, 1, 4, 1, 5};
  const Ids got = Continue(*model, {prompt}, {.max_new_tokens = 10})[0].ids;
  Ids expected = prompt;
  for (int i = 0; i < 10; ++i) {
    const std::vector<double> logits = FullPass(*model, expected);
    expected.push_back(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  EXPECT_EQ(got, Ids(expected.begin() + 5, expected.end()));
}

TEST(GenerateTest, RowsDoNotDependOnTheirBatch) {
  const auto model = SmallModel();
  GenerationConfig config = {.max_new_tokens = 9, .do_sample = true, .temperature = 1.5};
  config.eos_token_ids = {7};
  config.seed = 11;
  const std::vector<Ids> prompts = {{3}, {1, 4, 1, 5, 9, 2, 6}, {5, 3, 5}, {2, 2}};
  const auto together = Continue(*model, prompts, config);
  EXPECT_EQ(Continue(*model, {prompts[0]}, config)[0].ids, together[0].ids);
  // Row 1 again, beside others that end sooner or later.
  const auto beside = Continue(*model, {{8, 8, 8}, prompts[1]}, config);
  EXPECT_EQ(beside[1].ids, together[1].ids);
  bool differs = false;
  for (const GenerationResult& r : together) differs |= r.ids != together[0].ids;
  EXPECT_TRUE(differs);
}

TEST(GenerateTest, SameSeedSameText) {
  const auto model = SmallModel();
  GenerationConfig config = {.max_new_tokens = 15, .do_sample = true, .temperature = 2};
  const Ids first = Continue(*model, {{1, 2}}, config)[0].ids;
  EXPECT_EQ(Continue(*model, {{1, 2}}, config)[0].ids, first);
  config.seed = 1;
  EXPECT_NE(Continue(*model, {{1, 2}}, config)[0].ids, first);
}

TEST(GenerateTest, SeveralTextsOfAPromptAreItsRows) {
  const auto model = SmallModel();
  GenerationConfig config = {.max_new_tokens = 12, .do_sample = true, .temperature = 2};
  config.num_return_sequences = 3;
  std::vector<int64_t> told;
  const auto texts =
      Continue(*model, {{1, 2}, {5}}, config, {.on_result = [&](int64_t row, const auto&) {
        told.push_back(row);
        return OkStatus();
      }});
  ASSERT_EQ(texts.size(), 6u);
  EXPECT_EQ(told, (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  std::set<Ids> different;
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(texts[i].prompt, i < 3 ? (Ids{1, 2}) : Ids{5});
    different.insert(texts[i].ids);
  }
  EXPECT_EQ(different.size(), 6u);
  // The same as of the prompt written out.
  config.num_return_sequences = 1;
  const auto rows = Continue(*model, {{1, 2}, {1, 2}, {1, 2}, {5}, {5}, {5}}, config);
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i].ids, rows[i].ids) << i;
}

TEST(GenerateTest, ManyThreadsGenerateFromOneModel) {
  const auto model = SmallModel();
  constexpr size_t kThreads = 8;
  const auto config_of = [](size_t i) {
    GenerationConfig config = {.max_new_tokens = 12, .do_sample = i % 2 == 0};
    config.seed = i;
    config.num_beams = i % 4 == 1 ? 3 : 1;
    return config;
  };
  const auto prompt_of = [](size_t i) { return Ids(i + 1, static_cast<int64_t>(i + 2)); };
  std::vector<Ids> alone;
  for (size_t i = 0; i < kThreads; ++i) {
    alone.push_back(Continue(*model, {prompt_of(i)}, config_of(i))[0].ids);
  }
  std::vector<Ids> together(kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back(
        [&, i] { together[i] = Continue(*model, {prompt_of(i)}, config_of(i))[0].ids; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
}

TEST(GenerateTest, EndsAtEndOfText) {
  const auto model = SmallModel();
  const Ids free = Continue(*model, {{3, 1}}, {.max_new_tokens = 8})[0].ids;
  GenerationConfig config = {.max_new_tokens = 8};
  config.eos_token_ids = {free[3]};
  const auto first = std::find(free.begin(), free.end(), free[3]) - free.begin();
  const GenerationResult got = Continue(*model, {{3, 1}}, config)[0];
  EXPECT_EQ(got.ids, Ids(free.begin(), free.begin() + first + 1));
  EXPECT_EQ(got.end, GenerationResult::End::kEndOfText);
}

TEST(GenerateTest, TextIsStreamedAndCutAtStopStrings) {
  const auto model = SmallModel(257, 2);
  const data::ByteTokenizer tokenizer;
  const Ids prompt = {72, 105};
  const auto generate = [&](const std::vector<std::string>& stop, std::string* streamed) {
    GenerationConfig config = {.max_new_tokens = 12};
    config.stop_strings = stop;
    return Continue(*model, {prompt}, config,
                    {.tokenizer = &tokenizer,
                     .on_token = [streamed](int64_t row, int64_t, std::string_view text) {
                       EXPECT_EQ(row, 0);
                       *streamed += text;
                       return OkStatus();
                     }})[0];
  };
  std::string streamed;
  const GenerationResult whole = generate({}, &streamed);
  EXPECT_EQ(streamed, whole.text);
  std::string bytes;
  for (int64_t id : whole.ids) bytes += static_cast<char>(id);
  EXPECT_EQ(whole.text, bytes);
  const std::string stop = bytes.substr(4, 3);
  streamed.clear();
  const GenerationResult cut = generate({stop}, &streamed);
  EXPECT_EQ(cut.text, bytes.substr(0, bytes.find(stop)));
  EXPECT_EQ(streamed, cut.text);
  EXPECT_EQ(cut.end, GenerationResult::End::kStopString);
}

TEST(GenerateTest, MarksThatAreSpecialTokensAreText) {
  const auto model = SmallModel(260);
  const data::ByteTokenizer tokenizer;
  GenerationConfig config = {.max_new_tokens = 4};
  // "aa" might begin the stop string: what is held back comes before the mark.
  config.stop_strings = {"aab"};
  const auto write = [&](std::vector<int64_t> shown) {
    std::string told;
    auto text = *WrittenText::Of(*model,
                                 {.prompt = std::vector<int64_t>{1},
                                  .config = config,
                                  .shown_tokens = std::move(shown),
                                  .on_token =
                                      [&](int64_t, std::string_view piece, const TokenScores*) {
                                        told += Concat(piece, "|");
                                        return OkStatus();
                                      }},
                                 &tokenizer);
    for (const int64_t id : {int64_t{'a'}, int64_t{'a'}, int64_t{256}, int64_t{'b'}}) {
      EXPECT_TRUE(text->Add(id).ok());
    }
    EXPECT_EQ(text->done(), true);
    return told;
  };
  EXPECT_EQ(write({256}), "||aa<|endoftext|>|b|");
  EXPECT_EQ(write({}), "||||");  // "aab" is there
}

TEST(GenerateTest, WhatIsHeldBackAtTheEndKeepsItsOrder) {
  const auto model = SmallModel(260);
  const data::ByteTokenizer tokenizer;
  GenerationConfig config = {.max_new_tokens = 2};
  config.stop_strings = {"ab"};
  auto text =
      *WrittenText::Of(*model, {.prompt = std::vector<int64_t>{1}, .config = config}, &tokenizer);
  // The stop strings hold "a" back, and the decoder the beginning of a character.
  for (const int64_t id : {int64_t{'a'}, int64_t{0xc3}}) EXPECT_TRUE(text->Add(id).ok());
  EXPECT_TRUE(text->done());
  EXPECT_EQ(text->TakeResult().text, "a\xc3");
}

// Every text of three tokens behind a prompt, with its log-probability by full passes.
std::vector<std::pair<Ids, double>> TextsOfThree(Model& model, const Ids& prompt) {
  std::vector<std::pair<Ids, double>> texts;
  for (int64_t code = 0; code < 125; ++code) {
    Ids ids = prompt;
    double log_p = 0;
    for (const int64_t id : {code / 25, code / 5 % 5, code % 5}) {
      std::vector<double> scores = FullPass(model, ids);
      LogSoftmaxInPlace(scores);
      log_p += scores[static_cast<size_t>(id)];
      ids.push_back(id);
    }
    texts.emplace_back(std::move(ids), log_p);
  }
  return texts;
}

TEST(GenerateTest, OneBeamPerTokenFindsTheLikeliestText) {
  // With as many beams as there are texts of one token less, the search is exhaustive.
  const auto model = SmallModel(5);
  const Ids prompt = {1, 3};
  const auto likeliest = [&](const std::function<bool(const Ids&)>& allowed) {
    double best = -1e300;
    Ids found;
    for (const auto& [ids, log_p] : TextsOfThree(*model, prompt)) {
      if (allowed(ids) && log_p > best) best = log_p, found = Ids(ids.begin() + 2, ids.end());
    }
    return found;
  };
  const auto searched = [&](GenerationConfig config) {
    config.max_new_tokens = 3;
    config.num_beams = 25;
    return Continue(*model, {prompt}, config)[0].ids;
  };
  const Ids best = likeliest([](const Ids&) { return true; });
  EXPECT_EQ(searched({}), best);
  // Beams hold to what is forbidden, each by its own tokens.
  const auto repeats = [](const Ids& ids) {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (std::count(ids.begin(), ids.end(), ids[i]) > 1) return true;
    }
    return false;
  };
  EXPECT_EQ(searched({.no_repeat_ngram_size = 1}),
            likeliest([&](const Ids& ids) { return !repeats(ids); }));
  for (const size_t place : {size_t{0}, size_t{1}, size_t{2}}) {
    const int64_t id = best[place];
    EXPECT_EQ(searched({.suppress_tokens = {id}}), likeliest([&](const Ids& ids) {
                return std::count(ids.begin() + 2, ids.end(), id) == 0;
              }));
    EXPECT_EQ(searched({.begin_suppress_tokens = {id}}),
              likeliest([&](const Ids& ids) { return ids[2] != id; }));
  }
  EXPECT_EQ(searched({.bad_words_ids = {{best[0], best[1]}}}), likeliest([&](const Ids& ids) {
              for (size_t i = 2; i < ids.size(); ++i) {
                if (ids[i - 1] == best[0] && ids[i] == best[1]) return false;
              }
              return true;
            }));
}

// Of five tokens, of a type like Llama.
std::unique_ptr<Model> SmallLlama(const std::string& type,
                                  const nlohmann::json& changes = nlohmann::json::object()) {
  nlohmann::json config = {{"model_type", type},
                           {"vocab_size", 5},
                           {"hidden_size", 12},
                           {"intermediate_size", 17},
                           {"num_hidden_layers", 2},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"head_dim", 8},
                           {"initializer_range", 0.6},
                           {"pad_token_id", nullptr},
                           {"max_position_embeddings", 24}};
  config.update(changes);
  auto model = BuildModel(config, {.seed = 1});
  EXPECT_TRUE(model.ok()) << Message(model.status());
  return *std::move(model);
}

// LongRoPE's factors change behind 16 tokens.
std::unique_ptr<Model> SmallPhi3() {
  return SmallLlama("phi3", {{"max_position_embeddings", 40},
                             {"original_max_position_embeddings", 16},
                             {"rope_scaling",
                              {{"type", "longrope"},
                               {"short_factor", {1.0, 1.1, 1.2, 1.3}},
                               {"long_factor", {4.0, 9.0, 20.0, 30.0}}}}});
}

Ids SomeIds(int64_t count) {
  Ids ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back((i * i + i / 3) % 5);
  return ids;
}

TEST(RereadingTest, EveryTokenIsThatOfAFullPass) {
  const auto model = SmallPhi3();
  // Of the rows some become long at different steps, two at the same, one never, and some are.
  std::vector<Ids> prompts;
  for (const int64_t count : {15, 3, 9, 16, 17, 9, 1, 22}) prompts.push_back(SomeIds(count));
  prompts[5][0] = 4;
  constexpr int64_t kNew = 14;
  std::vector<Ids> expected;
  for (const Ids& prompt : prompts) {
    Ids& text = expected.emplace_back(prompt);
    for (int64_t i = 0; i < kNew; ++i) {
      const std::vector<double> logits = FullPass(*model, text);
      text.push_back(std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
    text.erase(text.begin(), text.begin() + std::ssize(prompt));
  }
  for (const int64_t slots : {0, 1, 3}) {
    const auto results = Continue(*model, prompts, {.max_new_tokens = kNew}, {.slots = slots});
    for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(results[i].ids, expected[i]) << i;
  }
}

TEST(RereadingTest, BeamsAreThoseOfFullPasses) {
  const auto model = SmallPhi3();
  for (const int64_t count : {13, 14, 15, 16, 17}) {
    const Ids prompt = SomeIds(count);
    // Exhaustive: all texts of three tokens.
    std::vector<std::pair<double, Ids>> all;
    for (const auto& [ids, log_p] : TextsOfThree(*model, prompt)) {
      all.emplace_back(-log_p, Ids(ids.begin() + count, ids.end()));
    }
    std::sort(all.begin(), all.end());
    GenerationConfig config = {.max_new_tokens = 3, .num_beams = 25};
    config.num_return_sequences = 10;
    const auto texts = Continue(*model, {prompt}, config);
    ASSERT_EQ(texts.size(), 10u);
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(texts[i].ids, all[i].second) << count << " tokens, text " << i;
    }
  }
}

class BeamsTest : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Model> Make() const {
    const std::string& type = GetParam();
    if (type == "gpt2") return SmallModel(5);
    if (type == "gemma2") {
      return SmallLlama(type, {{"sliding_window", 2}, {"attn_logit_softcapping", 1.0}});
    }
    if (type == "smollm3") return SmallLlama(type, {{"no_rope_layer_interval", 2}});
    if (type == "chatglm") {
      return SmallLlama(type, {{"padded_vocab_size", 5},
                               {"num_layers", 2},
                               {"ffn_hidden_size", 17},
                               {"kv_channels", 8},
                               {"multi_query_attention", true},
                               {"multi_query_group_num", 2},
                               {"add_qkv_bias", true}});
    }
    return SmallLlama(type);
  }
};

INSTANTIATE_TEST_SUITE_P(Families, BeamsTest,
                         testing::Values("gpt2", "llama", "gemma2", "olmo2", "smollm3", "phi3",
                                         "glm4", "chatglm"),
                         [](const auto& info) { return info.param; });

TEST_P(BeamsTest, SeveralTextsOfBeamsAreTheBest) {
  const auto model = Make();
  // Exhaustive: all texts of two tokens by their likelihood.
  std::vector<std::pair<double, Ids>> all;
  for (int64_t code = 0; code < 25; ++code) {
    const Ids ids = {code / 5, code % 5};
    double log_p = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      Ids before = {1, 3};
      before.insert(before.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(i));
      std::vector<double> scores = FullPass(*model, before);
      LogSoftmaxInPlace(scores);
      log_p += scores[static_cast<size_t>(ids[i])];
    }
    all.emplace_back(-log_p, ids);
  }
  std::sort(all.begin(), all.end());
  GenerationConfig config = {.max_new_tokens = 2, .num_beams = 5};
  config.num_return_sequences = 4;
  const auto texts = Continue(*model, {{1, 3}, {2}}, config);
  ASSERT_EQ(texts.size(), 8u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(texts[i].ids, all[i].second) << i;
  EXPECT_EQ(Continue(*model, {{2}}, config)[3].ids, texts[7].ids);
  config.num_return_sequences = 6;
  EXPECT_EQ(FailureOf(*model, {1}, config),
            "num_return_sequences must be at most num_beams, 5, not 6");
  // One token each: there are no more texts than tokens.
  config = {.max_new_tokens = 1, .num_beams = 8};
  config.num_return_sequences = 7;
  EXPECT_EQ(FailureOf(*model, {1}, config),
            "num_return_sequences is 7, and there are only 5 texts");
}

TEST(GenerateTest, WhatCannotBeDoneIsRefused) {
  const auto model = SmallModel();
  const GenerationConfig plain = {.max_new_tokens = 4};
  EXPECT_EQ(FailureOf(*model, {1, 23}, plain),
            "token id 23 (row 0, position 1) is beyond the model's vocabulary of 23");
  EXPECT_NE(FailureOf(*model, {-1}, plain).find("token id -1"), std::string::npos);
  EXPECT_NE(FailureOf(*model, {}, plain).find("is empty"), std::string::npos);
  EXPECT_NE(FailureOf(*model, Ids(21, 1), plain).find("exceeds the model's 24 positions"),
            std::string::npos);
  EXPECT_NE(FailureOf(*model, Ids(24, 1), {}).find("the model has 24 positions"),
            std::string::npos);
  EXPECT_EQ(Continue(*model, {Ids(20, 1)}, {})[0].ids.size(), 4u);
  EXPECT_EQ(FailureOf(*model, {1}, {.top_p = 1.5}), "top_p must be at most 1, not 1.5");
  EXPECT_EQ(FailureOf(*model, {1}, {.max_new_tokens = 0}),
            "max_new_tokens must be at least 1, not 0");
  EXPECT_EQ(FailureOf(*model, {1}, {.presence_penalty = std::numeric_limits<double>::infinity()}),
            "presence_penalty must be at most 2, not inf");
  EXPECT_NE(FailureOf(*model, {1}, {.frequency_penalty = 1, .num_beams = 2}).find("num_beams"),
            std::string::npos);
  EXPECT_EQ(FailureOf(*model, {1}, {.logit_bias = {{-1, 0.5}}}), "logit_bias has -1 for an id");
  EXPECT_EQ(FailureOf(*model, {1}, {.logit_bias = {{1, 101}}}),
            "logit_bias of 1 must be at most 100, not 101");
  GenerationConfig config = plain;
  config.stop_strings = {"x"};
  EXPECT_EQ(FailureOf(*model, {1}, config), "stop strings need a tokenizer");
  GenerationConfig begins = plain;
  begins.bos_token_id = 5;
  EXPECT_EQ(Continue(*model, {{}}, begins)[0].prompt, Ids{5});
}

TEST(GenerateTest, ACallbackEndsTheGeneration) {
  const auto model = SmallModel();
  int calls = 0;
  const auto results = Generate(
      *model, {{1}}, {.max_new_tokens = 9}, {.on_token = [&](int64_t, int64_t, std::string_view) {
        return ++calls == 3 ? Failure(StatusCode::kCancelled, "enough") : OkStatus();
      }});
  EXPECT_EQ(results.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(calls, 3);
}

TEST(TokenChoiceTest, FiltersKeepWhatTheyShould) {
  const std::vector<double> logits = {std::log(0.1), std::log(0.4), std::log(0.2), std::log(0.3)};
  const auto reachable = [&](const GenerationConfig& config) {
    std::map<int64_t, int> counts;
    for (int i = 0; i < 1000; ++i) {
      std::vector<double> scores = logits;
      ++counts[SampleToken(config, (i + 0.5) / 1000, scores)];
    }
    return counts;
  };
  using Counts = std::map<int64_t, int>;
  EXPECT_EQ(reachable({}), (Counts{{0, 100}, {1, 400}, {2, 200}, {3, 300}}));
  EXPECT_EQ(reachable({.top_k = 2}), (Counts{{1, 571}, {3, 429}}));
  EXPECT_EQ(reachable({.top_k = 1}), (Counts{{1, 1000}}));
  EXPECT_EQ(reachable({.top_p = 0.65}), (Counts{{1, 571}, {3, 429}}));
  EXPECT_EQ(reachable({.top_p = 0.01}), (Counts{{1, 1000}}));
  EXPECT_EQ(reachable({.top_p = 0}), (Counts{{1, 1000}}));
  // Probabilities 0.1, 0.4, 0.2, 0.3: the least is a quarter of the greatest.
  EXPECT_EQ(reachable({.min_p = 0.24}), reachable({}));
  EXPECT_EQ(reachable({.min_p = 0.26}), (Counts{{1, 444}, {2, 223}, {3, 333}}));
  EXPECT_EQ(reachable({.min_p = 0.6}), (Counts{{1, 571}, {3, 429}}));
  EXPECT_EQ(reachable({.min_p = 1}), (Counts{{1, 1000}}));
  // Behind the temperature: a quarter squared.
  EXPECT_EQ(reachable({.temperature = 0.5, .min_p = 0.1}), (Counts{{1, 552}, {2, 138}, {3, 310}}));
  // Near 0 the likeliest is left, however near.
  for (const double temperature : {1e-3, 1e-300, 1e-310, 5e-324}) {
    EXPECT_EQ(reachable({.temperature = temperature}), (Counts{{1, 1000}})) << temperature;
  }
  // Probabilities go with the square: 1, 16, 4, 9 of 30.
  EXPECT_EQ(reachable({.temperature = 0.5}), (Counts{{0, 33}, {1, 534}, {2, 133}, {3, 300}}));
}

// The tokens that transformers 4.57 leaves: TypicalLogitsWarper, EpsilonLogitsWarper and
// EtaLogitsWarper.
TEST(TokenChoiceTest, CutoffsLeaveWhatTransformersLeaves) {
  const auto left = [](const GenerationConfig& config) {
    std::set<int64_t> ids;
    for (int i = 0; i < 4000; ++i) {
      std::vector<double> scores = {1.5, -0.3, 0.2, 2.7, 0.9, -2.0, 0.4, 1.1};
      ids.insert(SampleToken(config, (i + 0.5) / 4000, scores));
    }
    return ids;
  };
  using Left = std::set<int64_t>;
  EXPECT_EQ(left({}).size(), 8u);
  EXPECT_EQ(left({.typical_p = 0.2}), (Left{0, 7}));
  EXPECT_EQ(left({.typical_p = 0.5}), (Left{0, 3, 7}));
  EXPECT_EQ(left({.typical_p = 0.8}), (Left{0, 3, 4, 7}));
  EXPECT_EQ(left({.typical_p = 0.95}), (Left{0, 2, 3, 4, 6, 7}));
  EXPECT_EQ(left({.epsilon_cutoff = 0.05}), (Left{0, 3, 4, 6, 7}));
  EXPECT_EQ(left({.epsilon_cutoff = 0.1}), (Left{0, 3, 7}));
  EXPECT_EQ(left({.epsilon_cutoff = 0.9}), (Left{3}));
  EXPECT_EQ(left({.eta_cutoff = 0.05}), (Left{0, 3, 4, 6, 7}));
  EXPECT_EQ(left({.eta_cutoff = 0.1}), (Left{0, 3, 4, 7}));
  EXPECT_EQ(left({.eta_cutoff = 0.3}), (Left{0, 3}));
}

TEST(GenerateTest, ForcedTokensAreTheSecondAndTheLast) {
  const auto model = SmallModel();
  GenerationConfig config = {.max_new_tokens = 5};
  config.forced_bos_token_id = 4;
  config.forced_eos_token_ids = {9};
  for (const int64_t beams : {1, 3}) {
    config.num_beams = beams;
    const Ids first = Continue(*model, {{3}}, config)[0].ids;
    EXPECT_EQ(first.front(), 4);
    EXPECT_EQ(first.back(), 9);
    config.forced_bos_token_id = {};
    EXPECT_EQ(Continue(*model, {{3, 1}}, config)[0].ids.back(), 9);
    config.forced_bos_token_id = 4;
  }
  config.forced_bos_token_id = 23;
  EXPECT_EQ(FailureOf(*model, {3}, config),
            "token id 23 (a forced token) is beyond the model's vocabulary of 23");
}

TEST(GenerateTest, EncoderRepetitionPenaltyFavoursThePrompt) {
  const auto model = SmallModel();
  const Ids prompt = {3, 8, 11};
  const GenerationConfig config = {.max_new_tokens = 6, .encoder_repetition_penalty = 3};
  Ids expected = prompt;
  for (int i = 0; i < 6; ++i) {
    std::vector<double> logits = FullPass(*model, expected);
    for (const int64_t id : prompt) {
      double& score = logits[static_cast<size_t>(id)];
      score = score < 0 ? score / 3 : score * 3;
    }
    expected.push_back(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  const Ids written = Continue(*model, {prompt}, config)[0].ids;
  EXPECT_EQ(written, Ids(expected.begin() + 3, expected.end()));
  EXPECT_NE(written, Continue(*model, {prompt}, {.max_new_tokens = 6})[0].ids);
  // As transformers' EncoderRepetitionPenaltyLogitsProcessor of 1.5.
  std::vector<double> scores = {1.5, -0.3, 0.2, 2.7};
  PenaliseRepetition(1 / 1.5, Ids{1, 3, 3}, scores);
  EXPECT_NEAR(scores[1], -0.2, 1e-12);
  EXPECT_NEAR(scores[3], 4.05, 1e-12);
}

TEST(TokenChoiceTest, RepetitionPenaltyCountsATokenOnce) {
  std::vector<double> scores = {1, -1, 2, 3};
  PenaliseRepetition(2, Ids{1, 2, 2, 2}, scores);
  EXPECT_EQ(scores, (std::vector<double>{1, -2, 1, 3}));
  EXPECT_EQ(LikeliestToken(std::vector<double>{1, 5, 5, 2}), 1);
  for (size_t size : {1, 7, 8, 9, 50}) {
    std::vector<double> scores(size, -std::numeric_limits<double>::infinity());
    EXPECT_EQ(LikeliestToken(scores), 0);
    for (size_t i = size; i-- > 0;) {
      scores[i] = -3;  // as great as those behind it
      EXPECT_EQ(LikeliestToken(scores), static_cast<int64_t>(i)) << size;
    }
  }
}

// What was written counts, each as often as it was.
TEST(TokenChoiceTest, PresenceAndFrequencyAreSubtracted) {
  std::vector<double> scores = {1, -1, 2, 3};
  PenaliseWritten({.presence_penalty = 0.5, .frequency_penalty = 0.25, .logit_bias = {{3, -4.0}}},
                  Ids{1, 2, 2, 2}, scores);
  EXPECT_EQ(scores, (std::vector<double>{1, -1.75, 0.75, -1}));
  const auto model = SmallModel();
  GenerationConfig config = {.max_new_tokens = 6, .presence_penalty = 2};
  const Ids all = Continue(*model, {{3, 1}}, config)[0].ids;
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 6u);
  config = {.max_new_tokens = 3};
  config.logit_bias = {{9, 100.0}};
  EXPECT_EQ(Continue(*model, {{3, 1}}, config)[0].ids, (Ids{9, 9, 9}));
}

TEST(TokenChoiceTest, ScoresNameTheLikeliest) {
  const std::vector<double> log_p = {-3, -1, -2, -1, -5};
  const TokenScores scores = ScoresOf(4, 3, log_p);
  EXPECT_EQ(scores.id, 4);
  EXPECT_EQ(scores.log_p, -5);
  using Likeliest = std::vector<std::pair<int64_t, double>>;
  EXPECT_EQ(scores.likeliest, (Likeliest{{1, -1}, {3, -1}, {2, -2}}));
  EXPECT_EQ(ScoresOf(0, 1, log_p).likeliest, (Likeliest{{1, -1}}));
  EXPECT_TRUE(ScoresOf(0, -1, log_p).likeliest.empty());
  EXPECT_EQ(ScoresOf(0, 9, log_p).likeliest.size(), 5u);
}

TEST(StopStringsTest, HowTextIsCutDoesNotDependOnItsPieces) {
  const std::string text = "one two threefour";
  for (size_t size = 1; size <= text.size(); ++size) {
    StopStrings stop({"threes", "reef", "two four"});
    std::string got;
    for (size_t at = 0; at < text.size(); at += size) got += stop.Push(text.substr(at, size));
    got += stop.Finish();
    EXPECT_EQ(got, "one two th") << size;
    EXPECT_TRUE(stop.found());
  }
  StopStrings none({"xyz"});
  EXPECT_EQ(none.Push("abxy"), "ab");
  EXPECT_EQ(none.Finish(), "xy");
}

// GLM's special tokens behind the bytes.
class GlmTokenizer : public data::Tokenizer {
 public:
  GlmTokenizer() {
    set_special_tokens({{"<|endoftext|>", 256},
                        {"[CLS]", 257},
                        {"[MASK]", 258},
                        {"<|startofpiece|>", 259},
                        {"<|endofpiece|>", 260},
                        {"[gMASK]", 261}});
    eos_id_ = 256;
    cls_id_ = 257;
    mask_id_ = 258;
    set_rows(data::RowTemplate::Of({{cls_id_, 0}, {data::RowTemplate::kFirst, 0}, {eos_id_, 0}}),
             std::nullopt, /*of_prompts=*/true);
  }
  void EncodeTo(std::string_view text, const data::EncodeOptions&,
                std::vector<int32_t>* ids) const override {
    for (const char c : text) ids->push_back(c == '_' ? 258 : static_cast<uint8_t>(c));
  }
  std::string_view TokenBytes(int32_t) const override { return ""; }
  int64_t vocab_size() const override { return 262; }
  uint64_t Fingerprint() const override { return 1; }

 private:
  std::vector<data::TokenizerFile> Files() const override { return {}; }
};

TEST(SpecialTokensTest, WhatAConfigurationLeavesToTheTokenizer) {
  const GlmTokenizer tokenizer;
  const nlohmann::json hub = {
      {"model_type", "glm"}, {"mask_token_id", 7}, {"eop_token_id", nullptr}};
  EXPECT_TRUE(LacksTokenIds(hub));
  EXPECT_EQ(
      TokenIdsFromTokenizer(tokenizer, hub),
      (nlohmann::json{{"sop_token_id", 259}, {"eop_token_id", 260}, {"gmask_token_id", 261}}));
  EXPECT_FALSE(LacksTokenIds({{"model_type", "gpt2"}}));
  EXPECT_TRUE(TokenIdsFromTokenizer(tokenizer, {{"model_type", "gpt2"}}).empty());
}

TEST(SpecialTokensTest, PromptsOfGlmAreRowsWithABlank) {
  const GlmTokenizer glm;
  EXPECT_EQ(*EncodePrompt(glm, {{"model_type", "glm"}}, "a_b"), (Ids{257, 'a', 258, 'b', 256}));
  EXPECT_EQ(*EncodePrompt(glm, {{"model_type", "glm"}}, "ab"), (Ids{257, 'a', 'b', 261, 256}));
  EXPECT_EQ(*EncodePrompt(data::ByteTokenizer(), {{"model_type", "gpt2"}}, "ab"), (Ids{'a', 'b'}));
}

}  // namespace
}  // namespace tessera::models
