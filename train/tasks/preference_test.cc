// SPDX-License-Identifier: Apache-2.0
// Preference runs: the loss beside its formula in plain arithmetic, the reference, metrics.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "autograd/autograd.h"
#include "base/file.h"
#include "data/preference/preference_dataset.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "train/preferences/preference_loss.h"
#include "train/testing/task_runs.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

double Sigmoid(double z) { return 1.0 / (1.0 + std::exp(-z)); }

double Member(const OrderedJsonMember& metrics, const std::string& name) {
  return metrics->at(name).get<double>();
}

class PreferenceTest : public TaskRuns {
 protected:
  // Twelve questions, to which the loud answer is preferred.
  std::string Pairs() const {
    std::string lines;
    for (int i = 0; i < 12; ++i) {
      lines +=
          Concat(R"({"prompt": "what is )", i * 7, R"(? ", "chosen": "it is )", i,
                 R"(!", "rejected": ")", std::string(static_cast<size_t>(i % 5), '.'), i, "\"}\n");
    }
    return Put("pairs.jsonl", lines);
  }
  RunConfig PreferenceRun() const {
    RunConfig config = Config("gpt-tiny", Pairs());
    config.task = "preference";
    config.adapter = "lora";
    config.target_modules = "all-linear";
    config.batch_size = 4;
    config.max_steps = 4;
    config.lr = 1e-3;
    config.log_interval = 1;
    config.val_fraction = 0.34;
    return config;
  }
  std::vector<nlohmann::json> Rows(const RunConfig& config) const {
    std::ifstream in(config.out + "/metrics.jsonl");
    std::vector<nlohmann::json> rows;
    for (std::string line; std::getline(in, line);) {
      rows.push_back(nlohmann::json::parse(line));
      for (const char* clock : {"tokens_per_second", "peak_bytes"}) rows.back().erase(clock);
    }
    return rows;
  }
  // A folder with random weights, of gpt-tiny's shape.
  std::string Folder(const std::string& name, int64_t seed,
                     const std::string& overrides = "") const {
    RunConfig config = Config("gpt-tiny", Put(name + ".txt", std::string(4000, 'x')));
    config.tokenizer = "byte";
    config.out = Path(name + "_made");
    config.seed = seed;
    config.config_overrides = overrides;
    config.max_steps = 1;
    RunSetup setup = *PrepareRun(config);
    Trainer trainer(setup.config, *setup.model, setup.data);
    EXPECT_TRUE(trainer.Train({.output = nullptr}).ok());
    EXPECT_TRUE(trainer.SaveModel(Path(name), setup.tokenizer.get()).ok());
    return Path(name);
  }
};

TEST_F(PreferenceTest, TheLossIsItsFormula) {
  const std::vector<double> log_p = {-3.25, -7.5, -12.125, -2.5, -1, -1, -40.5, -55.75};
  const std::vector<double> reference = {-4, -6, -10, -3.5, -1, -1, -41, -20};
  for (const double smoothing : {0.0, 0.2}) {
    for (const double beta : {0.1, 0.7}) {
      const Tensor x = Tensor::FromVector(log_p, {8});
      RequireGrad(x);
      const CountedLoss found = PreferenceLoss(x, Tensor::FromVector(reference, {8}),
                                               {.beta = beta, .label_smoothing = smoothing});
      Backward(found.loss);
      const std::vector<double> grad = Grad(x).ToVector<double>();
      double loss = 0;
      std::vector<double> counts(6, 0.0);
      for (size_t i = 0; i < 4; ++i) {
        const double chosen = beta * (log_p[2 * i] - reference[2 * i]);
        const double rejected = beta * (log_p[2 * i + 1] - reference[2 * i + 1]);
        const double z = chosen - rejected;
        loss -= (1 - smoothing) * std::log(Sigmoid(z)) + smoothing * std::log(Sigmoid(-z));
        const double slope = beta * (Sigmoid(z) - (1 - smoothing));
        EXPECT_NEAR(grad[2 * i], slope, 1e-14);
        EXPECT_NEAR(grad[2 * i + 1], -slope, 1e-14);
        const double terms[] = {
            1, chosen, rejected, z > 0 ? 1.0 : 0.0, log_p[2 * i], log_p[2 * i + 1]};
        for (size_t c = 0; c < 6; ++c) counts[c] += terms[c];
      }
      EXPECT_NEAR(found.loss.Item(), loss, 1e-12);
      const std::vector<double> actual = found.counts.ToVector<double>();
      ASSERT_EQ(actual.size(), counts.size());
      for (size_t c = 0; c < 6; ++c) EXPECT_NEAR(actual[c], counts[c], 1e-12) << c;
    }
  }
}

// An adapter that adds nothing is the reference: no padding, batch or dtype of a loss in between.
TEST_F(PreferenceTest, BeginsAtTheLogarithmOfTwo) {
  const std::string folder = Folder("base", 3);
  const struct {
    const char* adapter;
    std::string model;
  } cases[] = {{"lora", "gpt-tiny"}, {"rslora", folder}, {"", folder}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.adapter);
    RunConfig config = PreferenceRun();
    config.adapter = c.adapter;
    if (config.adapter.empty()) config.target_modules.clear();
    config.model = c.model;
    config.max_steps = 1;
    config.out = Path(std::string("begin_") + c.adapter);
    Train(config);
    const nlohmann::json row = Rows(config).at(0);
    EXPECT_EQ(row.at("loss").get<double>(), std::log(2.0));
    EXPECT_EQ(row.at("rewards/margins").get<double>(), 0.0);
    EXPECT_EQ(row.at("rewards/chosen").get<double>(), 0.0);
    EXPECT_EQ(row.at("rewards/accuracies").get<double>(), 0.0);
    EXPECT_LT(row.at("logps/chosen").get<double>(), -1.0);
  }
}

// As TRL's disable_dropout, which the reference model's judgement has anyway.
TEST_F(PreferenceTest, TrainsWithoutDropout) {
  RunConfig config = PreferenceRun();
  config.model = Folder("dropping", 3, "resid_pdrop=0.5,embd_pdrop=0.5,attn_pdrop=0.5");
  config.dropout.reset();
  config.max_steps = 1;
  Train(config);
  EXPECT_EQ(Rows(config).at(0).at("loss").get<double>(), std::log(2.0));
  const auto refused = [&](const char* key) {
    return Concat(key, " is 0.2, and disable_dropout is true; give it false");
  };
  config.lora_dropout = 0.2;
  ExpectContains(Failure(config), refused("lora_dropout"));
  config.lora_dropout = 0;
  config.dropout = 0.2;
  ExpectContains(Failure(config), refused("dropout"));
  config.dropout.reset();
  config.options["disable_dropout"] = false;
  config.out = Path("with");
  Train(config);
  EXPECT_NE(Rows(config).at(0).at("loss").get<double>(), std::log(2.0));
}

// TRL computes its own loss, which transformers' Trainer divides by the micro-batches.
TEST_F(PreferenceTest, TheTrainersLossIsAMeanOfMicroBatches) {
  const auto loss = [&](const std::string& average) {
    RunConfig config = PreferenceRun();
    config.batch_size = 5;
    config.gradient_accumulation_steps = 2;
    config.join_epochs = false;  // of 8 pairs, the second micro-batch has three
    config.max_steps = 4;
    config.loss_average = average;
    config.out = Path("average");
    config.overwrite = true;
    return Train(config).loss;
  };
  EXPECT_EQ(loss("trainer"), loss("micro_batches"));
  EXPECT_NE(loss("trainer"), loss("targets"));
}

// The evaluation of a trained adapter, from logits of single rows without padding.
TEST_F(PreferenceTest, MetricsAreThoseOfTheLogits) {
  RunConfig config = PreferenceRun();
  config.options["beta"] = 0.3;
  config.label_smoothing = 0.1;
  config.lr = 1e-2;
  RunSetup setup;
  const TrainState state = Train(config, &setup);
  const data::Dataset& pairs = *setup.data.validation;
  double loss = 0, chosen = 0, rejected = 0, won = 0, log_p = 0;
  for (int64_t i = 0; i < pairs.size(); ++i) {
    const std::vector<data::Sample> sample = {{.index = i}};
    const data::Batch batch = *pairs.MakeBatch(sample);
    const int64_t length = batch.at(keys::kInputIds).size(1);
    std::vector<double> rewards;
    for (int64_t r = 0; r < 2; ++r) {
      double sums[2];
      for (const int adapter : {0, nn::ForwardContext::kNoAdapter}) {
        models::RunOptions options;
        options.context.adapter = adapter;
        const NoGrad no_grad;
        const Tensor ids = batch.at(keys::kInputIds);
        const Tensor logits =
            setup.model
                ->Run({{keys::kInputIds, ids.AsStrided({1, length}, {length, 1}, r * length)}},
                      options)
                .at(keys::kLogits);
        const int64_t words = logits.size(2);
        const std::vector<float> values = logits.ToVector<float>();
        const std::vector<int64_t> targets = batch.at(keys::kTargets).ToVector<int64_t>();
        double& sum = sums[adapter == 0 ? 0 : 1] = 0;
        for (int64_t t = 0; t < length; ++t) {
          const int64_t target = targets[static_cast<size_t>(r * length + t)];
          if (target < 0) continue;
          double total = 0;
          const float* const row = values.data() + t * words;
          for (int64_t w = 0; w < words; ++w) total += std::exp(static_cast<double>(row[w]));
          sum += static_cast<double>(row[target]) - std::log(total);
        }
      }
      rewards.push_back(0.3 * (sums[0] - sums[1]));
      if (r == 0) log_p += sums[0];
    }
    const double z = rewards[0] - rewards[1];
    loss -= 0.9 * std::log(Sigmoid(z)) + 0.1 * std::log(Sigmoid(-z));
    chosen += rewards[0];
    rejected += rewards[1];
    won += z > 0 ? 1 : 0;
  }
  const auto size = static_cast<double>(pairs.size());
  ASSERT_EQ(size, 4);
  EXPECT_NEAR(state.val_loss.value(), loss / size, 1e-5);
  EXPECT_NEAR(Member(state.val_metrics, "rewards/chosen"), chosen / size, 1e-5);
  EXPECT_NEAR(Member(state.val_metrics, "rewards/rejected"), rejected / size, 1e-5);
  EXPECT_NEAR(Member(state.val_metrics, "rewards/margins"), (chosen - rejected) / size, 1e-5);
  EXPECT_EQ(Member(state.val_metrics, "rewards/accuracies"), won / size);
  EXPECT_NEAR(Member(state.val_metrics, "logps/chosen"), log_p / size, 1e-4);
  EXPECT_NE(Member(state.val_metrics, "rewards/margins"), 0.0);
}

TEST_F(PreferenceTest, LearnsWhatIsPreferred) {
  RunConfig config = PreferenceRun();
  config.max_steps = 30;
  config.lr = 1e-2;
  const TrainState state = Train(config);
  EXPECT_EQ(Member(state.val_metrics, "rewards/accuracies"), 1.0);
  EXPECT_GT(Member(state.val_metrics, "rewards/margins"), 0.5);
  EXPECT_LT(state.val_loss.value(), 0.5);
}

// The run's own first weights, the same from a folder, and those of another one.
TEST_F(PreferenceTest, TheReferenceMayBeAFolder) {
  const std::string folder = Folder("base", 3);
  RunConfig config = PreferenceRun();
  config.model = folder;
  config.adapter.clear();
  config.target_modules.clear();
  Train(config);
  const std::vector<nlohmann::json> own = Rows(config);
  EXPECT_NE(own.at(1).at("loss"), own.at(0).at("loss"));
  for (const int64_t zero : {0, 3}) {
    config.zero = zero;
    config.out = Path(Concat("named", zero));
    config.options["reference_model"] = folder;
    Train(config);
    EXPECT_EQ(Rows(config), own) << zero;
  }
  // A file that holds the folder, as the model and as the reference.
  const std::string archive = Path("base.tar");
  ASSERT_EQ(std::system(("tar cf " + archive + " -C " + folder + " .").c_str()), 0);
  config.model = archive;
  for (const std::string& reference : {std::string(), archive}) {
    config.out = Path(Concat("archive", reference.size()));
    config.options["reference_model"] = reference;
    Train(config);
    EXPECT_EQ(Rows(config), own) << reference;
  }
  config.model = folder;
  // The folder's weights as they were, under another configuration: nothing kept is taken.
  config.out = Path("named3");
  config.options["reference_model"] = folder;
  config.overwrite = true;
  auto edited = nlohmann::json::parse(*ReadFile(folder + "/config.json"));
  edited["layer_norm_epsilon"] = 0.5;
  ASSERT_TRUE(WriteFileAtomically(folder + "/config.json", edited.dump()).ok());
  config.model = Folder("base_again", 3);
  Train(config);
  EXPECT_NE(Rows(config).at(0).at("loss"), own.at(0).at("loss"));
  config.out = Path("other");
  config.options["reference_model"] = Folder("other_base", 4);
  Train(config);
  EXPECT_NE(Rows(config).at(0).at("loss"), own.at(0).at("loss"));
}

// Full training moves the weights that the reference came from.
TEST_F(PreferenceTest, ARunThatGoesOnKeepsItsReference) {
  RunConfig config = PreferenceRun();
  config.model = Folder("base", 3);
  config.adapter.clear();
  config.target_modules.clear();
  config.max_steps = 6;
  config.log_interval = 4;
  config.val_data =
      Put("more.jsonl", "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}");
  config.val_fraction = 0;
  Train(config);
  const std::vector<nlohmann::json> whole = Rows(config);
  class Stop : public TrainerCallback {
    void OnStepEnd(const TrainState& state, TrainControl& control) override {
      control.stop = state.step == 3;
    }
  } stop;
  for (const bool removed : {false, true}) {
    config.out = Path(removed ? "removed" : "kept");
    auto first = PrepareRun(config);
    Trainer trainer(first->config, *first->model, first->data);
    trainer.AddCallback(&stop);
    ASSERT_EQ(trainer.Train({.output = nullptr})->state.step, 3);
    const std::string file = config.out + "/data/train.reference.safetensors";
    const auto time = fs::last_write_time(file);
    if (removed) fs::remove(file);
    auto second = PrepareRun(config);
    Trainer rest(second->config, *second->model, second->data);
    const auto done = rest.Train({.resume = true, .output = nullptr});
    ASSERT_TRUE(done.ok()) << Message(done.status());
    EXPECT_EQ(Rows(config), whole);
    EXPECT_EQ(fs::last_write_time(file) == time, !removed);
  }
  // Of other data, or another model, the numbers are others.
  const std::string file = config.out + "/data/val.reference.safetensors";
  const auto size = fs::file_size(file);
  Put("more.jsonl",
      "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n"
      "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}");
  config.overwrite = true;
  Train(config);
  EXPECT_NE(fs::file_size(file), size);
}

// A look at other pairs with the adapter that was trained.
TEST_F(PreferenceTest, AnEvaluationFindsWhatTheRunFound) {
  RunConfig config = PreferenceRun();
  config.model = Folder("base", 3);
  config.val_data = config.data[0];
  config.val_fraction = 0;
  RunSetup setup = *PrepareRun(config);
  Trainer trainer(setup.config, *setup.model, setup.data);
  ASSERT_TRUE(trainer.Train({.output = nullptr}).ok());
  ASSERT_TRUE(trainer.SaveModel(Path("adapter"), nullptr).ok());
  RunConfig look = Config(config.model, config.data[0]);
  look.task = "preference";
  look.adapter = Path("adapter");
  look.batch_size = 4;
  const auto opened = PrepareEvaluation(look, {}, {.cache = Path("look")});
  ASSERT_TRUE(opened.ok()) << Message(opened.status());
  Trainer eval(opened->config, *opened->model, opened->data);
  const auto found = eval.Evaluate(*opened->data.validation, 0);
  ASSERT_TRUE(found.ok()) << Message(found.status());
  EXPECT_EQ(found->loss, trainer.state().val_loss.value());
  EXPECT_EQ(*found->metrics, *trainer.state().val_metrics);
  look.adapter.clear();
  ExpectContains(Message(PrepareEvaluation(look, {}, {.cache = Path("look")}).status()),
                 "reference_model is missing: the folder of the model that was trained on");
}

// Its biases are the trained ones, also where the adapter does not count.
TEST_F(PreferenceTest, AnAdapterInPlaceOfParametersNeedsAReference) {
  RunConfig config = PreferenceRun();
  config.model = Folder("base", 3);
  config.adapter_bias = "all";
  config.max_steps = 1;
  RunSetup setup = *PrepareRun(config);
  Trainer trainer(setup.config, *setup.model, setup.data);
  ASSERT_TRUE(trainer.Train({.output = nullptr}).ok());
  ASSERT_TRUE(trainer.SaveModel(Path("adapter"), nullptr).ok());
  RunConfig more = Config(config.model, config.data[0]);
  more.task = "preference";
  more.adapter = Path("adapter");
  ExpectContains(Failure(more), "reference_model is missing: the adapter '" + more.adapter +
                                    "' replaces parameters of the model");
  ExpectContains(Message(PrepareEvaluation(more, {}, {.cache = Path("look")}).status()),
                 "reference_model is missing: the adapter");
  more.options["reference_model"] = config.model;
  const auto named = PrepareRun(more);
  EXPECT_TRUE(named.ok()) << Message(named.status());
}

TEST_F(PreferenceTest, AProgramMayBringItsOwnLoss) {
  const RunConfig config = PreferenceRun();
  RunSetup setup = *PrepareRun(config);
  TrainerParts parts;
  parts.step.loss.run = [](const models::Bundle& outputs, const models::Bundle&) {
    return outputs.at(keys::kLoss);
  };
  Trainer trainer(setup.config, *setup.model, setup.data, {}, std::move(parts));
  const auto done = trainer.Train({.output = nullptr});
  ASSERT_TRUE(done.ok()) << Message(done.status());
  EXPECT_TRUE(trainer.state().val_loss.has_value());
  for (const nlohmann::json& row : Rows(config)) {
    EXPECT_FALSE(row.contains("rewards/margins") || row.contains("val_rewards/margins")) << row;
  }
}

TEST_F(PreferenceTest, RefusesInOneLine) {
  RunConfig config = PreferenceRun();
  config.label_smoothing = 0.5;
  EXPECT_EQ(Failure(config),
            "label_smoothing is 0.5; of preferences it is the share that is the wrong way round, "
            "below 0.5");
  config = PreferenceRun();
  config.adapter.clear();
  config.target_modules.clear();
  EXPECT_EQ(Failure(config),
            "reference_model is missing: 'gpt-tiny' begins with random weights, and there is no "
            "adapter beside a model to hold on to");
  config = PreferenceRun();
  config.seq_len = 12;
  ExpectContains(Failure(config),
                 "pairs.jsonl:1: the prompt and a completion are 20 tokens, more than the 12 of a "
                 "row");
  config = PreferenceRun();
  config.options["reference_model"] = Path("nowhere");
  RunSetup setup = *PrepareRun(config);
  Trainer trainer(setup.config, *setup.model, setup.data);
  EXPECT_EQ(Message(trainer.Train({.output = nullptr}).status()),
            "reference_model: '" + Path("nowhere") + "' is no folder of a model");
  const std::string narrow = Folder("narrow", 3, "n_positions=16");
  config.options["reference_model"] = narrow;
  config.out = Path("narrow_run");
  RunSetup again = *PrepareRun(config);
  Trainer other(again.config, *again.model, again.data);
  EXPECT_EQ(
      Message(other.Train({.output = nullptr}).status()),
      "reference_model: '" + narrow + "' has 16 positions, the longest pair 22 tokens in a row");
}

}  // namespace
}  // namespace tessera::train
