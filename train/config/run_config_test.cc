// SPDX-License-Identifier: Apache-2.0
#include "train/config/run_config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "base/options.h"
#include "nlohmann/json.hpp"
#include "train/config/comma_list.h"
#include "train/foreign/run_keys.h"

namespace tessera::train {
namespace {

TEST(CommaListTest, KeepsEmptyParts) {
  EXPECT_EQ(SplitAtCommas(""), std::vector<std::string>());
  EXPECT_EQ(SplitAtCommas("a"), std::vector<std::string>{"a"});
  EXPECT_EQ(SplitAtCommas("a,,b,"), (std::vector<std::string>{"a", "", "b", ""}));
}

TEST(RunConfigTest, UnknownKeysSuggestTheNearest) {
  RunConfig config;
  const auto unknown = ApplyRunConfigJson({{"weigth_decay", 0.1}}, "run.json", &config);
  EXPECT_EQ(Message(unknown), "run.json: unknown key 'weigth_decay'; did you mean 'weight_decay'?");
  EXPECT_FALSE(ApplyRunConfigJson({{"lr", "fast"}}, "run.json", &config).ok());
  EXPECT_FALSE(ApplyRunConfigJson({{"batch_size", 1.5}}, "run.json", &config).ok());
  EXPECT_TRUE(SetRunConfigField(&config, "betas", "0.8,0.9").ok());
  EXPECT_EQ(config.options["betas"], nlohmann::json({0.8, 0.9}));
  EXPECT_TRUE(SetRunConfigField(&config, "shuffle", "false").ok());
  EXPECT_FALSE(config.shuffle);
  EXPECT_EQ(Message(SetRunConfigField(&config, "batch_size", "many")),
            "--batch-size must be an integer, not \"many\"");
}

TEST(RunConfigTest, ValidatesAndRoundTrips) {
  const auto problem = [](auto change) {
    RunConfig config;
    change(config);
    return Message(config.Validate());
  };
  EXPECT_EQ(problem([](RunConfig&) {}), "");
  EXPECT_NE(problem([](RunConfig& c) { c.batch_size = 0; }).find("batch_size"), std::string::npos);
  EXPECT_EQ(problem([](RunConfig& c) { c.pp = 2; }), "");
  // Counts are no kinds: a configuration of many ranks serves one as well.
  EXPECT_EQ(problem([](RunConfig& c) {
              c.schedule = "gpipe";
              c.sequence_parallel = true;
              c.partition_activations = false;
              c.deterministic = true;
            }),
            "");
  EXPECT_NE(problem([](RunConfig& c) {
              c.pp = 2;
              c.schedule = "fastest";
            }).find("zb-h1"),
            std::string::npos);
  EXPECT_NE(problem([](RunConfig& c) {
              c.pp = 2;
              c.schedule = "interleaved";
              c.gradient_accumulation_steps = 3;
            }).find("3"),
            std::string::npos);
  EXPECT_EQ(problem([](RunConfig& c) { c.zero = 4; }), "zero must be at most 3, not 4");
  EXPECT_EQ(problem([](RunConfig& c) { c.cpu_offload = true; }),
            "cpu_offload is set, which needs zero 1, 2 or 3 (zero is 0)");
  EXPECT_EQ(problem([](RunConfig& c) {
              c.zero = 2;
              c.forward_prefetch = false;
            }),
            "forward_prefetch is set, which needs zero 3 (zero is 2)");
  EXPECT_EQ(problem([](RunConfig& c) {
              c.zero = 1;
              c.check_reduction = true;
            }),
            "check_reduction is set, which needs zero 0 (zero is 1)");
  EXPECT_NE(problem([](RunConfig& c) { c.hysteresis = 0; }).find("hysteresis"), std::string::npos);
  // What is set, and what neutral values are.
  EXPECT_EQ(problem([](RunConfig& c) { c.growth_factor = 4; }),
            "growth_factor is set, which needs dtype float16 or autocast float16 (dtype is "
            "float32)");
  EXPECT_EQ(problem([](RunConfig& c) {
              c.dtype = "float16";
              c.growth_factor = 4;
              c.loss_scale = 8;
            }),
            "growth_factor is set, which needs no loss_scale (loss_scale is 8)");
  EXPECT_EQ(problem([](RunConfig& c) { c.options["momentum"] = 0.5; }),
            "momentum is set, which needs optimizer muon or sgd (it is adamw)");
  EXPECT_EQ(problem([](RunConfig& c) { c.options["momentum"] = 0; }), "");
  EXPECT_EQ(problem([](RunConfig& c) { c.options["momentun"] = 0; }),
            "options: unknown key 'momentun'; did you mean 'momentum'?");
  EXPECT_EQ(problem([](RunConfig& c) {
              c.options["betas"] = {0.9, 1.5};
            }),
            "betas must be below 1, not 1.5");
  EXPECT_EQ(problem([](RunConfig& c) { (void)SetRunConfigField(&c, "momentum", "0.9"); }),
            "momentum is set, which needs optimizer muon or sgd (it is adamw)");
  EXPECT_EQ(problem([](RunConfig& c) { (void)SetRunConfigField(&c, "cpu_offload", "false"); }), "");
  // Overflows that are meant are no anomalies.
  const auto looking = [&](auto change) {
    return problem([&](RunConfig& c) {
      c.check_finite = true;
      change(c);
    });
  };
  EXPECT_EQ(looking([](RunConfig& c) { c.autocast = "bfloat16"; }), "");
  EXPECT_EQ(looking([](RunConfig& c) { c.autocast = "float16"; }),
            "check_finite is set, which needs no autocast or autocast bfloat16 (autocast is "
            "float16)");
  EXPECT_EQ(looking([](RunConfig& c) { c.dtype = "float16"; }),
            "check_finite is set, which needs dtype float32 or bfloat16 (dtype is float16)");
  EXPECT_EQ(looking([](RunConfig& c) { c.on_non_finite = "skip"; }),
            "check_finite is set, which needs on_non_finite stop (on_non_finite is skip)");
  const auto misfit = [](int world, auto change) {
    RunConfig config;
    change(config);
    return Message(config.ValidateFor(world));
  };
  EXPECT_EQ(misfit(6, [](RunConfig& c) { c.tp = 3; }), "");
  EXPECT_EQ(misfit(1, [](RunConfig& c) { c.gradient_accumulation_steps = 3; }), "");
  EXPECT_NE(misfit(4, [](RunConfig& c) { c.tp = 3; }).find("tp 3"), std::string::npos);
  EXPECT_EQ(misfit(8,
                   [](RunConfig& c) {
                     c.tp = 2;
                     c.ep = 4;
                   }),
            "");
  EXPECT_EQ(misfit(4,
                   [](RunConfig& c) {
                     c.tp = 2;
                     c.ep = 4;
                   }),
            "ep 4 does not divide the 2 data-parallel ranks");
  EXPECT_EQ(misfit(1, [](RunConfig& c) { c.ep = 2; }),
            "ep 2 does not divide the 1 data-parallel rank; start the command under mpirun or "
            "tessera launch");
  EXPECT_EQ(misfit(2,
                   [](RunConfig& c) {
                     c.env_type = "single";
                     c.ep = 2;
                   }),
            "env_type 'single' excludes more than one rank");
  EXPECT_NE(misfit(3, [](RunConfig& c) { c.deterministic = true; }).find("3 data-parallel ranks"),
            std::string::npos);
  EXPECT_NE(misfit(2, [](RunConfig& c) { c.env_type = "single"; }).find("more than one rank"),
            std::string::npos);
  EXPECT_NE(misfit(2,
                   [](RunConfig& c) {
                     c.env_type = "ddp";
                     c.tp = 2;
                   })
                .find("excludes tp"),
            std::string::npos);
  RunConfig config;
  config.lr = 0.1 + 0.2;
  config.gradient_accumulation_steps = 4;
  config.options["betas"] = {0.5, 0.75};
  RunConfig back;
  ASSERT_TRUE(
      ApplyRunConfigJson(nlohmann::json::parse(config.ToJson().dump()), "saved", &back).ok());
  EXPECT_EQ(back.ToJson(), config.ToJson());
  EXPECT_TRUE(back.Validate().ok());  // what does not apply is not among them
  EXPECT_EQ(back.gradient_accumulation_steps, 4);
  EXPECT_FALSE(config.ToJson().contains("momentum"));
  EXPECT_EQ(config.ToJson()["dropout"], nullptr);
}

TEST(RunConfigTest, ReportToTakesNamesAndLists) {
  using Json = nlohmann::json;
  const auto reports = [](const Json& value) {
    const Translation run = TranslateRunKeys({{"report_to", value}}, "run.json");
    EXPECT_TRUE(run.status().ok()) << run.status();
    return run.keys->value("report_to", Json());
  };
  EXPECT_EQ(reports("tensorboard"), Json::array({"tensorboard"}));
  EXPECT_EQ(reports({"csv", "tensorboard"}), Json({"csv", "tensorboard"}));
  for (const Json& all : {Json("all"), Json::array({"all"})}) {
    EXPECT_EQ(reports(all), Json({"tensorboard", "csv"})) << all;
  }
  for (const Json& none : {Json("none"), Json::array({"none"}), Json::array()}) {
    EXPECT_EQ(reports(none), Json::array()) << none;
  }
  for (const Json& other : {Json("wandb"), Json({"tensorboard", "wandb"}), Json({"none", "csv"})}) {
    EXPECT_FALSE(TranslateRunKeys({{"report_to", other}}, "run.json").status().ok()) << other;
  }
  EXPECT_EQ(Message(TranslateRunKeys({{"report_to", "wandb"}}, "run.json").status()),
            "run.json: 'report_to' 'wandb' is not known; use one of tensorboard, csv");
}

TEST(RunConfigTest, OneValueUnderTwoNamesIsOneValue) {
  using Json = nlohmann::json;
  for (const Json& given : {Json{{"autocast", "fp16"}, {"mixed_precision", "fp16"}},
                            Json{{"autocast", "float16"}, {"mixed_precision", "fp16"}},
                            Json{{"lr", 1e-3}, {"learning_rate", "1e-3"}}}) {
    const Translation run = TranslateRunKeys(given, "run.json");
    EXPECT_TRUE(run.status().ok()) << given << Message(run.status());
  }
  EXPECT_EQ(Message(TranslateRunKeys({{"lr", 1e-3}, {"learning_rate", 1e-4}}, "run.json").status()),
            "run.json: 'lr' and 'learning_rate' are one key (lr) with two values");
  // In the order of the file, whose names these are.
  const Translation wrong = TranslateRunKeys({{"lr", -1}, {"learning_rat", 1}}, "run.json");
  ASSERT_EQ(wrong.verdicts.size(), 2u);
  EXPECT_EQ(wrong.verdicts[0].key, "learning_rat");
  EXPECT_EQ(wrong.verdicts[1].reason, "must be at least 0, not -1");
}

TEST(RunConfigTest, DescribesWhatWasSetInAlignedLines) {
  RunConfig config;
  config.lr = 0.001;
  config.config_overrides = std::string(200, 'x');
  ASSERT_TRUE(SetRunConfigField(&config, "batch_size", "8").ok());
  const std::string text = config.Describe();
  EXPECT_NE(text.find("  batch_size        8"), std::string::npos) << text;
  EXPECT_NE(text.find("(the default)"), std::string::npos) << text;
  EXPECT_NE(text.find("  lr                0.001"), std::string::npos) << text;
  EXPECT_NE(text.find("(default 0.0003)"), std::string::npos) << text;
  EXPECT_EQ(text.find("epochs"), std::string::npos) << text;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u);
}

TEST(RunConfigTest, DataSourcesMayHaveWeights) {
  const std::string odd = testing::TempDir() + "/odd:0.5";
  std::ofstream(odd) << "text";
  RunConfig config;
  config.data = {"a.txt", "b.txt:0.3", odd, "c.txt:x", "d.txt:0"};
  const std::vector<DataSource> sources = config.Sources();
  const auto expect = [&](size_t i, const std::string& path, std::optional<double> weight) {
    EXPECT_EQ(sources[i].path, path);
    EXPECT_EQ(sources[i].weight, weight) << path;
  };
  expect(0, "a.txt", std::nullopt);
  expect(1, "b.txt", 0.3);
  expect(2, odd, std::nullopt);  // a path that exists as it stands
  expect(3, "c.txt:x", std::nullopt);
  expect(4, "d.txt:0", std::nullopt);
}

// Every key is declared once, under names that no other key has.
TEST(RunConfigTest, NamesAreKeysOnce) {
  std::map<std::string, std::string> owner;
  for (const Option* option : RunConfigKeys()) {
    std::vector<std::string> names = {option->key};
    for (const OptionAlias& alias : option->notes.aliases) names.push_back(alias.name);
    for (const std::string& name : names) {
      EXPECT_TRUE(owner.emplace(name, option->key).second)
          << name << " is " << option->key << " and " << owner[name];
      EXPECT_EQ(FindRunConfigKey(name), option);
    }
    EXPECT_TRUE(option->Check(option->default_value(), option->key).ok()) << option->key;
    for (const auto& [there, here] : option->notes.values) {
      EXPECT_TRUE(option->Convert(there, option->key).ok()) << option->key << " " << there;
    }
    for (const auto& need : option->notes.needs) {
      for (const OptionValue& value : need) EXPECT_NE(FindRunConfigKey(value.key), nullptr);
    }
  }
  // Parts that share a key agree on its kind.
  for (const OptionPart& part : OptionParts()) {
    for (const Option& option : part.table->options()) {
      EXPECT_EQ(RunConfig::Table().FindByAnyName(option.key), nullptr) << option.key;
      EXPECT_EQ(FindRunConfigKey(option.key)->kind, option.kind) << part.name << " " << option.key;
    }
  }
}

}  // namespace
}  // namespace tessera::train
