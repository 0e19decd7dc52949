// SPDX-License-Identifier: Apache-2.0
// Generation settings: in files, asked for, as texts, and the tokens that they forbid.
#include "models/generation/generation_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/generation/token_choice.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using Ids = std::vector<int64_t>;

// The tokens, of ten with equal scores, that may follow `ids`. The last `written` ids are new.
Ids LeftOf(const char* settings, const Ids& ids = {1, 2, 3, 1, 2}, size_t written = 2) {
  GenerationConfig config;
  config.eos_token_ids = {0, 9};
  EXPECT_TRUE(ApplyGenerationJson(nlohmann::json::parse(settings), "g.json", &config).ok());
  std::vector<double> scores(10, 0.5);
  RemoveForbidden(config, ids, written, scores);
  Ids left;
  for (size_t id = 0; id < scores.size(); ++id) {
    if (scores[id] == 0.5) left.push_back(static_cast<int64_t>(id));
  }
  return left;
}

TEST(GenerationConfigTest, ForbiddenTokensAreThoseOfTransformers) {
  EXPECT_EQ(LeftOf("{}").size(), 10u);
  EXPECT_EQ(LeftOf(R"({"suppress_tokens": [1, 5, 12, -1]})"), (Ids{0, 2, 3, 4, 6, 7, 8, 9}));
  EXPECT_EQ(LeftOf(R"({"begin_suppress_tokens": [4, 5]})").size(), 10u);
  EXPECT_EQ(LeftOf(R"({"begin_suppress_tokens": [4, 5]})", {1, 2}, 0),
            (Ids{0, 1, 2, 3, 6, 7, 8, 9}));
  // A token that is forced behind a single one does not count as the first.
  const char* const kForced = R"({"begin_suppress_tokens": [4, 5], "forced_bos_token_id": 7})";
  EXPECT_EQ(LeftOf(kForced, {1}, 0).size(), 10u);
  EXPECT_EQ(LeftOf(kForced, {1, 7}, 1), (Ids{0, 1, 2, 3, 6, 7, 8, 9}));
  EXPECT_EQ(LeftOf(kForced, {1, 7, 8}, 2).size(), 10u);
  EXPECT_EQ(LeftOf(kForced, {1, 2}, 0), (Ids{0, 1, 2, 3, 6, 7, 8, 9}));
  // Ends of text: by new tokens, else by all of them.
  EXPECT_EQ(LeftOf(R"({"min_new_tokens": 3})"), (Ids{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(LeftOf(R"({"min_new_tokens": 2})").size(), 10u);
  EXPECT_EQ(LeftOf(R"({"min_length": 6})"), (Ids{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(LeftOf(R"({"min_length": 5})").size(), 10u);
  EXPECT_EQ(LeftOf(R"({"min_length": 6, "min_new_tokens": 1})").size(), 10u);
  // A bad word of one token is never written; of a longer one, its last token is not written behind
  // its first ones. A word longer than the text, and the end of text, are not removed.
  EXPECT_EQ(LeftOf(R"({"bad_words_ids": [[7], [0], [1, 2, 8], [2, 2, 6]]})"),
            (Ids{0, 1, 2, 3, 4, 5, 6, 9}));
  EXPECT_EQ(LeftOf(R"({"bad_words_ids": [[1, 2, 8]]})", {1, 2}, 1).size(), 10u);
  // Runs: 1 2 was followed by 3, 2 by 3; of one token, all that came.
  EXPECT_EQ(LeftOf(R"({"no_repeat_ngram_size": 3})"), (Ids{0, 1, 2, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(LeftOf(R"({"no_repeat_ngram_size": 2})"), (Ids{0, 1, 2, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(LeftOf(R"({"no_repeat_ngram_size": 1})"), (Ids{0, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(LeftOf(R"({"no_repeat_ngram_size": 7})").size(), 10u);
}

// Every surface asks by the same keys.
TEST(GenerationConfigTest, WhatIsAskedForGoesOverTheDefaults) {
  GenerationConfig file;
  file.temperature = 0.6;
  file.do_sample = true;
  file.top_k = 20;
  const auto with = [&](const char* text) {
    auto config = WithSettings(file, nlohmann::json::parse(text));
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? *config : GenerationConfig();
  };
  EXPECT_EQ(with("{}").temperature, 0.6);
  EXPECT_TRUE(with("{}").do_sample);
  // A temperature of 0 is the likeliest token, whatever else asks for sampling.
  EXPECT_FALSE(with(R"({"temperature": 0})").do_sample);
  EXPECT_EQ(with(R"({"temperature": 0})").temperature, 0.6);
  EXPECT_FALSE(with(R"({"temperature": 0, "do_sample": true, "top_k": 5})").do_sample);
  file.temperature = 0;  // the file's, too
  EXPECT_FALSE(with(R"({"do_sample": true})").do_sample);
  EXPECT_TRUE(with(R"({"temperature": 0.5})").do_sample);
  EXPECT_TRUE(with("{}").Validate().ok());
  file.temperature = 0.6;
  EXPECT_FALSE(with(R"({"top_k": 5, "do_sample": false})").do_sample);
  EXPECT_EQ(with(R"({"top_k": null})").top_k, 20);
  // Beams do without the file's sampling, not without what is asked for.
  EXPECT_FALSE(with(R"({"num_beams": 3, "length_penalty": 2})").do_sample);
  const auto failure = [&](const char* text) {
    return Message(WithSettings(file, nlohmann::json::parse(text)).status());
  };
  EXPECT_EQ(failure(R"({"num_beams": 3, "temperature": 1})"),
            "num_beams above 1 searches for the likeliest text and does not sample");
  EXPECT_EQ(failure(R"({"length_penalty": 2})"),
            "length_penalty is for a search with num_beams above 1");
  EXPECT_EQ(failure(R"({"early_stopping": true})"),
            "early_stopping is for a search with num_beams above 1");
  // At their defaults these ask for nothing.
  EXPECT_EQ(with(R"({"length_penalty": 1, "early_stopping": false})").num_beams, 1);
  EXPECT_EQ(failure(R"({"top_p": 2})"), "generation: 'top_p' must be at most 1, not 2");
  EXPECT_EQ(failure(R"({"tpo_p": 1})"), "generation: unknown key 'tpo_p'; did you mean 'top_p'?");
  EXPECT_EQ(failure(R"({"logit_bias": {"x": 1}})"), "generation: 'logit_bias' has 'x' for an id");
  EXPECT_EQ(with(R"({"logit_bias": {"7": 1.5, "10": -2}})").logit_bias,
            (std::map<int64_t, double>{{7, 1.5}, {10, -2}}));
  // A file's number of texts counts as far as there may be several.
  file.num_return_sequences = 3;
  EXPECT_EQ(with("{}").num_return_sequences, 3);
  EXPECT_EQ(with(R"({"temperature": 0})").num_return_sequences, 1);
  EXPECT_EQ(with(R"({"num_beams": 2})").num_return_sequences, 2);
  EXPECT_EQ(with(R"({"num_beams": 8})").num_return_sequences, 3);
  EXPECT_EQ(failure(R"({"num_beams": 2, "num_return_sequences": 3})"),
            "num_return_sequences must be at most num_beams, 2, not 3");
  EXPECT_EQ(failure(R"({"temperature": 0, "num_return_sequences": 2})"),
            "num_return_sequences above 1 needs sampling, or num_beams above 1: there is one "
            "likeliest text");
  file.do_sample = false;
  EXPECT_TRUE(with(R"({"top_p": 0.5})").do_sample);
}

// The texts of flags and of the C library are those of files.
TEST(GenerationConfigTest, SettingsAsTexts) {
  const auto read = [](const char* key, const char* text) {
    return GenerationConfig::Table().Find(key)->FromText(text);
  };
  using nlohmann::json;
  EXPECT_EQ(read("bad_words_ids", "7;1,2"), (json{{7}, {1, 2}}));
  EXPECT_EQ(read("bad_words_ids", "[[7]]"), json::parse("[[7]]"));
  EXPECT_EQ(read("suppress_tokens", "5"), json::parse("[5]"));
  EXPECT_EQ(read("logit_bias", "15:-1,27:0.5"), (json{{"15", -1}, {"27", 0.5}}));
  EXPECT_EQ(read("logit_bias", "15"), json("15"));  // refused as a text
  EXPECT_EQ(read("temperature", "1e-3"), json(1e-3));
  for (const Option& option : GenerationConfig::Table().options()) {
    const json& value = option.default_value();
    if (value.is_null() || value.empty()) continue;
    EXPECT_EQ(*option.Convert(option.FromText(option.ToText(value)), option.key), value)
        << option.key;
  }
}

TEST(GenerationConfigTest, FilesGiveDefaultsAndWhatIsUnknownIsNamed) {
  GenerationConfig config;
  const auto apply = [&](const char* text) {
    return ApplyGenerationJson(nlohmann::json::parse(text), "g.json", &config);
  };
  ASSERT_TRUE(apply(R"({"temperature": 0.7, "top_k": 50, "do_sample": true, "eos_token_id": [1, 2],
                        "bos_token_id": null, "min_length": 0, "num_beam_groups": 1,
                        "suppress_tokens": [], "transformers_version": "4"})")
                  .ok());
  EXPECT_EQ(config.temperature, 0.7);
  EXPECT_EQ(config.top_k, 50);
  EXPECT_TRUE(config.do_sample);
  EXPECT_EQ(config.eos_token_ids, (Ids{1, 2}));
  EXPECT_FALSE(config.bos_token_id.has_value());
  EXPECT_EQ(NotApplied("dir", config), "");
  const auto& unsupported = UnsupportedSettings();
  const auto contrastive =
      std::ranges::find(unsupported, "penalty_alpha", &UnsupportedSetting::key);
  ASSERT_NE(contrastive, unsupported.end());
  EXPECT_EQ(contrastive->Reason(), "contrastive search is not supported");
  // A key that is not supported does not stop the model from loading.
  ASSERT_TRUE(apply(R"({"diversity_penalty": 0.9, "num_beam_groups": 1, "early_stopping": "never",
                        "guidance_scale": 1.5, "constraints": [], "min_length": 3})")
                  .ok());
  EXPECT_EQ(config.min_length, 3);
  EXPECT_EQ(NotApplied("dir", config),
            "dir/generation_config.json: 'diversity_penalty': 0.9, 'guidance_scale': 1.5, "
            "'early_stopping': \"never\" are not supported, and not applied");
  EXPECT_EQ(Message(apply(R"({"bad_words_ids": [[1], []]})")),
            "g.json: 'bad_words_ids' must be a list of lists of integers, not [[1],[]]");
  EXPECT_EQ(Message(apply(R"({"top_k": "many"})")),
            "g.json: 'top_k' must be an integer, not \"many\"");
  EXPECT_FALSE(apply("[]").ok());
  GenerationConfig other;
  ASSERT_TRUE(ApplyGenerationJson({{"top_h", 0.4}}, "g.json", &other).ok());
  EXPECT_EQ(NotApplied("dir", other),
            "dir/generation_config.json: 'top_h': 0.4 is not supported, and not applied");
}

// What transformers takes of the two files of a folder. `file`: generation_config.json; nullptr:
// there is none.
StatusOr<GenerationConfig> ReadFolder(const char* model, const char* file) {
  const std::string folder = testing::TempDir() + "/generation_config";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  if (file != nullptr) std::ofstream(folder + "/generation_config.json") << file;
  auto config = ReadGenerationConfig(folder, nlohmann::json::parse(model));
  EXPECT_TRUE(config.ok()) << Message(config.status());
  return config;
}

TEST(GenerationConfigTest, SettingsOfConfigJsonCountWhereThereIsNoOtherFile) {
  const char* const kModel = R"({"num_beams": 3, "min_length": 4, "eos_token_id": 7, "top_h": 0.4,
                                 "bos_token_id": 1, "temperature": null, "hidden_size": 8})";
  const auto alone = ReadFolder(kModel, nullptr);
  EXPECT_EQ(alone->num_beams, 3);
  EXPECT_EQ(alone->min_length, 4);
  EXPECT_EQ(alone->eos_token_ids, Ids{7});
  EXPECT_EQ(NotApplied("dir", *alone),
            "dir/config.json: 'top_h': 0.4 is not supported, and not applied");
  for (const char* file : {R"({"top_k": 5})", R"({"top_k": 5, "eos_token_id": null})"}) {
    const auto with = ReadFolder(kModel, file);
    EXPECT_EQ(with->num_beams, 1);
    EXPECT_EQ(with->eos_token_ids, Ids{7});
    EXPECT_EQ(with->bos_token_id, 1);  // that of an empty prompt
    EXPECT_EQ(NotApplied("dir", *with), "");
  }
  // A file that was made of config.json, which is the newer one.
  const auto made = ReadFolder(kModel, R"({"_from_model_config": true, "eos_token_id": 9})");
  EXPECT_EQ(made->num_beams, 3);
  EXPECT_EQ(made->eos_token_ids, Ids{9});
  // A preset has no folder.
  const auto preset = ReadGenerationConfig("", nlohmann::json::parse(kModel));
  EXPECT_EQ(preset->num_beams, 1);
  EXPECT_EQ(preset->eos_token_ids, Ids{7});
  const auto wrong = ReadGenerationConfig(testing::TempDir(), {{"num_beams", "x"}});
  EXPECT_EQ(Message(wrong.status()),
            testing::TempDir() + "config.json: 'num_beams' must be an integer, not \"x\"");
}

TEST(GenerationConfigTest, WhereADecodersTextBegins) {
  const auto start = [](const char* model, const char* file) {
    return ReadFolder(model, file)->decoder_start_token_id;
  };
  const char* const kModel = R"({"decoder_start_token_id": 0})";
  EXPECT_EQ(start(kModel, nullptr), 0);
  EXPECT_EQ(start(kModel, R"({"decoder_start_token_id": 7, "bos_token_id": 9})"), 7);
  EXPECT_EQ(start(kModel, R"({"bos_token_id": 9, "decoder_start_token_id": null})"), 9);
  EXPECT_EQ(start(kModel, R"({"eos_token_id": 9})"), 0);
  EXPECT_EQ(start("{}", R"({"eos_token_id": 9})"), std::nullopt);
}

}  // namespace
}  // namespace tessera::models
