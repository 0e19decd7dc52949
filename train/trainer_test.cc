#include "train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "autograd/autograd.h"
#include "core/file.h"
#include "models/model_keys.h"
#include "train/run_setup.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

// A small text with structure, so that the loss falls.
std::string WriteText(const std::string& directory) {
  fs::create_directories(directory);
  const std::string path = directory + "/text.txt";
  std::ofstream out(path);
  for (int i = 0; i < 600; ++i)
    out << "line " << i % 17 << " of the song, sung " << i % 5 << " times\n";
  return path;
}

class TrainerTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/trainer_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    WriteText(root_);
  }

  RunConfig Config(const std::string& out) const {
    RunConfig config;
    config.model = "gpt-tiny";
    config.data = {root_ + "/text.txt"};
    config.out = root_ + "/" + out;
    config.seq_len = 24;
    config.batch_size = 4;
    config.max_steps = 8;
    config.lr = 1e-3;
    config.dropout = 0.1;
    config.log_interval = 3;
    config.threads = 2;
    return config;
  }

  // Trains and returns the final weights.
  static std::map<std::string, std::vector<float>> Train(const RunConfig& config,
                                                         bool resume = false,
                                                         TrainerCallback* callback = nullptr) {
    auto setup = PrepareRun(config);
    EXPECT_TRUE(setup.ok()) << Message(setup.status());
    if (!setup.ok()) return {};
    Trainer trainer(setup->config, *setup->model, setup->data);
    if (callback != nullptr) trainer.AddCallback(callback);
    const auto result = trainer.Train({.resume = resume, .output = nullptr});
    EXPECT_TRUE(result.ok()) << Message(result.status());
    std::map<std::string, std::vector<float>> weights;
    for (const auto& [name, tensor] : setup->model->StateDict()) {
      weights[name] = tensor.ToVector<float>();
    }
    return weights;
  }

  static std::vector<nlohmann::json> Rows(const RunConfig& config) {
    std::ifstream in(config.out + "/metrics.jsonl");
    std::vector<nlohmann::json> rows;
    for (std::string line; std::getline(in, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }

  // Rows without what depends on the clock or the allocator's history.
  static std::vector<nlohmann::json> Losses(const RunConfig& config) {
    std::vector<nlohmann::json> rows = Rows(config);
    for (auto& row : rows) {
      row.erase("tokens_per_second");
      row.erase("peak_bytes");
    }
    return rows;
  }

  std::string root_;
};

struct StopAt : TrainerCallback {
  explicit StopAt(int64_t step) : step(step) {}
  void OnStep(TrainState& state) override { state.should_stop = state.step == step; }
  int64_t step;
};

TEST_F(TrainerTest, LearnsAndWritesItsMetrics) {
  RunConfig config = Config("run");
  config.max_steps = 60;
  config.log_interval = 20;
  config.lr = 3e-3;
  Train(config);
  const auto rows = Rows(config);
  ASSERT_EQ(rows.size(), 4u);
  for (const char* key : {"step", "loss", "lr", "grad_norm", "tokens_per_second", "peak_bytes"}) {
    EXPECT_TRUE(rows[0].contains(key)) << key;
  }
  EXPECT_EQ(rows[0]["step"], 20);
  EXPECT_EQ(rows[3]["step"], 60);
  EXPECT_LT(rows[2]["loss"].get<double>(), 0.6 * rows[0]["loss"].get<double>());
  EXPECT_LT(rows[3]["val_loss"].get<double>(), rows[0]["loss"].get<double>());
  EXPECT_EQ(dist::ListCheckpoints(config.out), std::vector<int64_t>{60});
}

// What a run of `config` says.
std::string OutputOf(const RunConfig& config) {
  auto setup = PrepareRun(config);
  EXPECT_TRUE(setup.ok()) << Message(setup.status());
  if (!setup.ok()) return "";
  std::FILE* file = std::tmpfile();
  Trainer trainer(setup->config, *setup->model, setup->data);
  const auto result = trainer.Train({.output = file});
  EXPECT_TRUE(result.ok()) << Message(result.status());
  std::string text(static_cast<size_t>(std::ftell(file)), ' ');
  std::rewind(file);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  std::fclose(file);
  return text;
}

// float32 weights and states, products in half precision: near the float32 run and not equal to it,
// the same with recomputation, and after a resume.
TEST_F(TrainerTest, AutocastTrainsFloat32WeightsWithHalfPrecisionProducts) {
  RunConfig plain = Config("float32");
  Train(plain);
  const auto reference = Rows(plain);
  for (const char* half : {"bfloat16", "float16"}) {
    RunConfig config = Config(Concat("autocast_", half));
    config.autocast = half;
    const auto weights = Train(config);
    const auto rows = Rows(config);
    ASSERT_EQ(rows.size(), reference.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i].contains("loss")) continue;
      EXPECT_NE(rows[i]["loss"], reference[i]["loss"]);
      EXPECT_NEAR(rows[i]["loss"].get<double>(), reference[i]["loss"].get<double>(), 0.02);
    }
    RunConfig recomputed = config;
    recomputed.out += "_recomputed";
    recomputed.checkpoint_activations = true;
    EXPECT_EQ(Train(recomputed), weights);
    RunConfig resumed = config;
    resumed.out += "_resumed";
    StopAt stop(5);
    Train(resumed, false, &stop);
    EXPECT_EQ(Train(resumed, /*resume=*/true), weights);
  }
  plain.dtype = "bfloat16";
  plain.autocast = "bfloat16";
  const Status status = plain.Validate();
  EXPECT_EQ(Message(status), "autocast is set, which needs dtype float32 (dtype is bfloat16)");
}

TEST_F(TrainerTest, ProfilesSomeStepsAndNeverLosesARunToIt) {
  RunConfig config = Config("profiled");
  config.max_steps = 4;
  config.profile = root_ + "/trace.json";
  config.profile_after = 1;
  EXPECT_NE(OutputOf(config).find("profile of 2 steps in " + config.profile), std::string::npos);
  const StatusOr<std::string> trace = ReadFile(config.profile);
  ASSERT_TRUE(trace.ok());
  const auto events = nlohmann::json::parse(*trace, nullptr, false);
  ASSERT_FALSE(events.is_discarded());

  config.out = root_ + "/unwritable";
  config.profile = root_ + "/no/such/folder/trace.json";
  EXPECT_NE(OutputOf(config).find("warning: profile: " + config.profile), std::string::npos);
  config.out = root_ + "/short";
  config.profile_after = 9;
  EXPECT_NE(OutputOf(config).find("warning: profile: nothing was profiled"), std::string::npos);
}

// What the trainer is to do, step by step: the schedule, dropout's keys, the sum over micro-batches
// and over the uses of a tied weight, clipping and the update, each by hand.
TEST_F(TrainerTest, StepsAreThoseOfThePlainLoop) {
  RunConfig config = Config("run");
  config.optimizer = "sgd";
  config.options["momentum"] = 0;
  config.weight_decay = 0;
  config.lr = 0.5;
  config.min_lr = 0.1;
  config.warmup_steps = 2;
  config.max_steps = 4;
  config.max_grad_norm = 0.5;
  config.gradient_accumulation_steps = 2;
  config.log_interval = 1;
  config.seed = 7;
  const auto trained = Train(config);
  const auto rows = Rows(config);

  auto setup = PrepareRun(config);
  ASSERT_TRUE(setup.ok()) << Message(setup.status());
  models::Model& model = *setup->model;
  const data::Sampler sampler({.num_samples = setup->data.train->size(),
                               .batch_size = config.batch_size,
                               .micro_batches = 2,
                               .seed = 7});
  const double rates[] = {0.25, 0.5, 0.1 + 0.4 * 0.5, 0.1};
  for (int64_t step = 0; step < 4; ++step) {
    double loss = 0;
    for (int64_t m = 0; m < 2; ++m) {
      const auto batch =
          setup->data.train->MakeBatch(sampler.Rows({.step = step, .micro_batch = m}));
      ASSERT_TRUE(batch.ok());
      models::RunOptions options;
      options.context = {.training = true,
                         .seed = 7,
                         .step = static_cast<uint64_t>(step + 1),
                         .micro_batch = static_cast<uint64_t>(m)};
      options.loss_reduction = LossReduction::kMean;  // every row is full: the mean of means
      const Tensor mean = model
                              .Run({{keys::kInputIds, batch->at(keys::kInputIds)},
                                    {keys::kTargets, batch->at(keys::kTargets)}},
                                   options)
                              .at(keys::kLoss);
      loss += 0.5 * mean.Item();
      Backward({mean}, {Full(mean.shape(), 0.5)});
    }
    std::map<const nn::Parameter*, std::vector<double>> grads;
    for (nn::Parameter* p : model.Parameters()) {
      std::vector<double>& sum = grads[p->tied_to != nullptr ? p->tied_to : p];
      const std::vector<double> mine = Grad(p->tensor).ToVector<double>();
      sum.resize(mine.size());
      for (size_t i = 0; i < mine.size(); ++i) sum[i] += mine[i];
    }
    double squares = 0;
    for (const auto& [p, grad] : grads) {
      for (const double g : grad) squares += g * g;
    }
    const double factor = std::min(1.0, 0.5 / (std::sqrt(squares) + 1e-6));
    for (const auto& [p, grad] : grads) {
      float* w = p->tensor.Detach().data<float>();
      for (size_t i = 0; i < grad.size(); ++i) {
        w[i] -= static_cast<float>(rates[step] * factor * grad[i]);
      }
    }
    model.ZeroGrad();
    const nlohmann::json& row = rows[static_cast<size_t>(step)];
    EXPECT_NEAR(row["lr"].get<double>(), rates[step], 1e-12);
    EXPECT_NEAR(row["loss"].get<double>(), loss, 1e-5 * loss);
    EXPECT_NEAR(row["grad_norm"].get<double>(), std::sqrt(squares), 1e-4 * std::sqrt(squares));
  }
  for (const auto& [name, tensor] : model.StateDict()) {
    const std::vector<float> expected = tensor.ToVector<float>();
    const std::vector<float>& actual = trained.at(name);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], 2e-5) << name << " element " << i;
    }
  }
}

TEST_F(TrainerTest, EvaluationIsWithoutDropout) {
  RunConfig config = Config("run");
  config.dropout = 0.5;
  auto setup = PrepareRun(config);
  ASSERT_TRUE(setup.ok()) << Message(setup.status());
  Trainer trainer(setup->config, *setup->model, setup->data);
  const auto with = trainer.Evaluate(*setup->data.validation, 0);
  setup->model->SetDropout(0);
  const auto without = trainer.Evaluate(*setup->data.validation, 0);
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_EQ(with->loss, without->loss);
}

TEST_F(TrainerTest, AResumedRunIsTheUninterruptedOne) {
  for (const char* dtype : {"float32", "bfloat16", "float16"}) {
    RunConfig whole = Config(std::string("whole_") + dtype);
    whole.dtype = dtype;
    whole.save_interval = 4;
    const auto expected = Train(whole);
    RunConfig parts = whole;
    parts.out = Config(std::string("parts_") + dtype).out;
    StopAt stop(5);  // between two rows of metrics
    Train(parts, false, &stop);
    EXPECT_EQ(dist::ListCheckpoints(parts.out), (std::vector<int64_t>{4, 5}));
    EXPECT_EQ(Train(parts, /*resume=*/true), expected) << dtype;
    EXPECT_EQ(Losses(parts), Losses(whole)) << dtype;
    EXPECT_EQ(Train(parts, /*resume=*/true), expected) << "a finished run stays as it is";
    EXPECT_EQ(Losses(parts), Losses(whole)) << dtype;
  }
}

TEST_F(TrainerTest, DamagedCheckpointsArePassedOver) {
  RunConfig config = Config("run");
  config.save_interval = 2;
  config.num_checkpoints = 3;
  const auto expected = Train(config);
  EXPECT_EQ(dist::ListCheckpoints(config.out), (std::vector<int64_t>{4, 6, 8}));
  // A flipped bit in the newest, the one before cut short.
  const std::string newest = config.out + "/checkpoint-8/tensors-00000-of-00001.safetensors";
  std::fstream file(newest, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1000, std::ios::end);
  const char byte = static_cast<char>(file.get() ^ 4);
  file.seekp(-1000, std::ios::end);
  file.put(byte);
  file.close();
  fs::resize_file(config.out + "/checkpoint-6/tensors-00000-of-00001.safetensors", 5000);
  const auto damaged = dist::Checkpoint::Open(config.out + "/checkpoint-8");
  ASSERT_FALSE(damaged.ok());
  EXPECT_NE(Message(damaged.status()).find("checkpoint-8/tensors-00000-of-00001.safetensors"),
            std::string::npos);
  std::vector<std::string> warnings;
  const auto found =
      dist::FindNewestCheckpoint(config.out, [&](const std::string& w) { warnings.push_back(w); });
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step(), 4);
  EXPECT_EQ(warnings.size(), 2u);
  EXPECT_EQ(Train(config, /*resume=*/true), expected);
}

TEST_F(TrainerTest, AccumulationEqualsTheLargeBatch) {
  RunConfig large = Config("large");
  large.dropout = 0;  // its bits belong to the micro-batch
  // Many short documents, whose borders have no target: micro-batches differ in their number.
  large.options["reset_at_documents"] = true;
  large.data = {root_ + "/documents.jsonl"};
  std::ofstream documents(large.data[0]);
  for (int i = 0; i < 300; ++i) {
    documents << "{\"text\": \"" << std::string(static_cast<size_t>(3 + i * 7 % 23), 'a' + i % 26)
              << "\"}\n";
  }
  documents.close();
  large.batch_size = 8;
  RunConfig small = large;
  small.out = Config("small").out;
  small.batch_size = 2;
  small.gradient_accumulation_steps = 4;
  Train(large);
  Train(small);
  const auto a = Rows(large);
  const auto b = Rows(small);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    for (const char* key : {"loss", "grad_norm", "val_loss"}) {
      if (!a[i].contains(key)) continue;
      EXPECT_NEAR(b[i][key].get<double>(), a[i][key].get<double>(), 2e-5 * a[i][key].get<double>())
          << key;
    }
  }
}

TEST_F(TrainerTest, ASignalSavesAndStops) {
  RunConfig config = Config("run");
  config.max_steps = 1000;
  struct Raise : TrainerCallback {
    void OnStep(TrainState& state) override {
      if (state.step == 3) std::raise(SIGTERM);
    }
  } raise;
  auto setup = PrepareRun(config);
  ASSERT_TRUE(setup.ok()) << Message(setup.status());
  Trainer trainer(setup->config, *setup->model, setup->data);
  trainer.AddCallback(&raise);
  const auto result = trainer.Train({.output = nullptr});
  ASSERT_TRUE(result.ok()) << Message(result.status());
  EXPECT_EQ(result->stopped_by, "SIGTERM");
  EXPECT_EQ(dist::ListCheckpoints(config.out), std::vector<int64_t>{3});
}

TEST_F(TrainerTest, RefusesWhatWouldNotResume) {
  RunConfig config = Config("run");
  config.max_steps = 2;
  Train(config);
  auto again = PrepareRun(config);
  ASSERT_TRUE(again.ok());
  Trainer fresh(again->config, *again->model, again->data);
  const auto refused = fresh.Train({.output = nullptr});
  EXPECT_NE(Message(refused.status()).find("--resume"), std::string::npos);

  RunConfig other = config;
  other.model = "gpt-mini";
  auto wrong = PrepareRun(other);
  ASSERT_TRUE(wrong.ok());
  Trainer mini(wrong->config, *wrong->model, wrong->data);
  const auto mismatch = mini.Train({.resume = true, .output = nullptr});
  EXPECT_NE(Message(mismatch.status()).find("expected float32"), std::string::npos)
      << Message(mismatch.status());
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
  const auto misfit = [](int world, auto change) {
    RunConfig config;
    change(config);
    return Message(config.ValidateFor(world));
  };
  EXPECT_EQ(misfit(6, [](RunConfig& c) { c.tp = 3; }), "");
  EXPECT_EQ(misfit(1, [](RunConfig& c) { c.gradient_accumulation_steps = 3; }), "");
  EXPECT_NE(misfit(4, [](RunConfig& c) { c.tp = 3; }).find("tp 3"), std::string::npos);
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
