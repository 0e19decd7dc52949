// SPDX-License-Identifier: Apache-2.0
// Engines from what users have: DeepSpeed's files, our own, models of every origin; and what is
// refused of them.
#include "train/loop/initialize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>

#include "core/thread_communicator.h"
#include "data/dataset/dataset.h"
#include "dist/pipeline/pipelined_model.h"
#include "models/family.h"
#include "models/hub/save_model.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "train/run/run_setup.h"

namespace tessera::train {
namespace {

const nlohmann::json kGpt = {{"model_type", "gpt2"}, {"vocab_size", 61}, {"n_positions", 12},
                             {"n_embd", 16},         {"n_layer", 2},     {"n_head", 2}};

StatusOr<std::unique_ptr<models::Model>> BuildGpt(const nn::BuildContext& build) {
  return models::BuildModel(kGpt, build);
}

std::string Write(const std::string& name, const nlohmann::json& content) {
  const std::string path = testing::TempDir() + "/initialize_" + name;
  std::ofstream(path) << content.dump();
  return path;
}

std::string Refusal(const StatusOr<std::unique_ptr<ConfiguredEngine>>& engine) {
  return engine.ok() ? "nothing was refused" : Message(engine.status());
}

// As Hugging Face's documentation publishes it, but for "auto".
const nlohmann::json kZero3 = {
    {"fp16", {{"enabled", true}, {"loss_scale", 0}, {"initial_scale_power", 12}}},
    {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 2e-3}, {"betas", {0.9, 0.98}}}}}},
    {"scheduler",
     {{"type", "WarmupLR"},
      {"params",
       {{"warmup_min_lr", 0},
        {"warmup_max_lr", 2e-3},
        {"warmup_num_steps", 4},
        {"warmup_type", "linear"}}}}},
    {"zero_optimization",
     {{"stage", 3},
      {"offload_optimizer", {{"device", "cpu"}}},
      {"offload_param", {{"device", "cpu"}}}}},
    {"gradient_accumulation_steps", 2},
    {"gradient_clipping", 1.0},
    {"steps_per_print", 2000},
    {"train_micro_batch_size_per_gpu", 3}};

TEST(InitializeTest, TakesADeepSpeedFile) {
  const std::string path = Write("zero3.json", kZero3);
  const auto engine = Initialize(BuildGpt, RunSources{.deepspeed = path});
  ASSERT_TRUE(engine.ok()) << Message(engine.status());
  const RunConfig& config = (*engine)->config();
  EXPECT_EQ(config.zero, 3);
  EXPECT_TRUE(config.cpu_offload && config.offload_parameters);
  EXPECT_EQ(config.batch_size, 3);
  EXPECT_EQ((*engine)->gradient_accumulation_steps(), 2);
  EXPECT_EQ((*engine)->loss_scale(), 4096);
  EXPECT_EQ((*engine)->model().build().dtype, DType::kFloat16);
  EXPECT_EQ((*engine)->warnings(),
            std::vector<std::string>({"'steps_per_print' means nothing to an engine "
                                      "(log_interval): it reports and keeps what its caller asks "
                                      "for"}));
  for (int step = 0; step < 4; ++step) {
    // As DeepSpeed's scheduler counts.
    EXPECT_DOUBLE_EQ((*engine)->learning_rate(), 2e-3 * std::max(0, step - 1) / 4) << step;
    for (int m = 0; m < 2; ++m) {
      const Tensor ids = Full({2, 12}, step + m, DType::kInt64);
      (*engine)->Backward((**engine)({{keys::kInputIds, ids}, {keys::kLabels, ids}}));
      (*engine)->Step();
    }
  }
  EXPECT_EQ((*engine)->global_steps(), 4);
}

TEST(InitializeTest, TakesAFileOfOursWithFlagsAndNames) {
  const std::string path =
      Write("ours.json", {{"optimizer", "sgd"}, {"lr", 0.5}, {"lr_schedule", "constant"}});
  const auto engine = Initialize(
      "gpt-tiny",
      RunSources{.config = path, .flags = {{"lr", 0.25}, {"config_overrides", "n_layer=1"}}});
  ASSERT_TRUE(engine.ok()) << Message(engine.status());
  EXPECT_EQ((*engine)->learning_rate(), 0.25);
  EXPECT_EQ((*engine)->model().num_blocks(), 3);
  // Its weights as a folder, from which another begins.
  const std::string folder = testing::TempDir() + "/initialize_folder";
  ASSERT_TRUE((*engine)->SaveModel(folder).ok());
  const auto again = Initialize(folder, RunSources{.config = path});
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ((*again)->model().StateDict().begin()->second.ToVector<float>(),
            (*engine)->model().StateDict().begin()->second.ToVector<float>());
}

TEST(InitializeTest, RefusesWhatMeansNothingToAnEngine) {
  const struct {
    const char* key;
    nlohmann::json value;
    const char* why;
  } cases[] = {
      {"data", {"book.txt"}, "it is given its batches"},
      {"tokenizer", "byte", "it is given its batches"},
      {"reset_at_documents", true, "tasks are a run's"},
      {"out", "run", "the loop is the caller's"},
      {"epochs", 3, "the loop is the caller's"},
      {"schedule_by_epoch", true, "it does not know what an epoch is"},
      {"log_interval", 5, "it reports and keeps what its caller asks for"},
      {"save_interval", 5, "it reports and keeps what its caller asks for"},
  };
  for (const auto& c : cases) {
    const std::string path = Write(Concat(c.key, ".json"), {{c.key, c.value}, {"max_steps", 5}});
    const auto engine = Initialize(BuildGpt, RunSources{.config = path});
    EXPECT_EQ(Refusal(engine), Concat(c.key, " is set, which means nothing to an engine: ", c.why));
  }
  RunConfig config;
  config.max_steps = 5;
  config.time_limit = 60;
  EXPECT_EQ(Refusal(Initialize(BuildGpt, config)),
            "time_limit is set, which means nothing to an engine: the loop is the caller's");
}

// What a dialect says of a run's reports and passes is nobody's wish.
TEST(InitializeTest, TakesTheDefaultsOfADialect) {
  for (const char* dialect : {"hugging-face", "deepspeed", "flagai", "megatron"}) {
    const std::string path =
        Write(Concat(dialect, ".json"), {{"dialect", dialect}, {"max_steps", 5}});
    EXPECT_EQ(Refusal(Initialize(BuildGpt, RunSources{.config = path})), "nothing was refused")
        << dialect;
  }
}

TEST(InitializeTest, RefusesAnotherSystemsKeysAsARunDoes) {
  nlohmann::json ds = kZero3;
  ds["zero_optimization"]["stag"] = 2;
  EXPECT_NE(Refusal(Initialize(BuildGpt, RunSources{.deepspeed = Write("typo.json", ds)}))
                .find("'zero_optimization.stag'"),
            std::string::npos);
  const std::string path = Write("resume.json", {{"resume_from_checkpoint", "runs/a"}});
  EXPECT_EQ(Refusal(Initialize(BuildGpt, RunSources{.config = path})),
            "resume is set, which means nothing to an engine: call LoadCheckpoint");
}

TEST(InitializeTest, ASchedulesEndMustBeKnown) {
  RunConfig config;
  EXPECT_EQ(Refusal(Initialize(BuildGpt, config)),
            "lr_schedule cosine needs max_steps or schedule_steps: an engine does not know how "
            "many steps its caller will take");
  config.lr_schedule = "constant";
  config.warmup_steps = 0.1;
  EXPECT_EQ(Refusal(Initialize(BuildGpt, config)),
            "warmup_steps 0.1 needs max_steps: an engine does not know how many steps its caller "
            "will take");
  config.max_steps = 100;
  EXPECT_EQ((*Initialize(BuildGpt, config))->learning_rate(), config.lr / 10);
  const auto rate = [](int64_t step) { return 0.5 * static_cast<double>(step); };
  EXPECT_EQ(Refusal(Initialize(BuildGpt, config, {.learning_rate = rate})),
            "warmup_steps is set, but the caller gives the learning rate");
  config.Unset("warmup_steps");
  config.collective_timeout = 5;
  const auto engine =
      Initialize(BuildGpt, config, {.world = SingleProcessCommunicator(), .learning_rate = rate});
  ASSERT_TRUE(engine.ok()) << Message(engine.status());
  EXPECT_EQ((*engine)->learning_rate(), 0.5);
  EXPECT_EQ((*engine)->warnings(),
            std::vector<std::string>(
                {"'collective_timeout' has no effect: the caller opened the ranks' world"}));
}

TEST(InitializeTest, ABuiltModelMustBeBuiltAsTheConfigurationSays) {
  const auto model = BuildGpt({});
  ASSERT_TRUE(model.ok());
  const auto refusal = [&](const std::function<void(RunConfig&)>& change) {
    RunConfig config;
    config.lr_schedule = "constant";
    change(config);
    return Refusal(Initialize(**model, config));
  };
  EXPECT_EQ(refusal([](RunConfig& c) { c.dtype = "bfloat16"; }),
            "the model was built with dtype float32, the configuration says bfloat16");
  EXPECT_EQ(refusal([](RunConfig& c) { c.model = "gpt2"; }),
            "model is set, but the model is built already");
  EXPECT_EQ(refusal([](RunConfig& c) { c.config_overrides = "n_layer=3"; }),
            "config_overrides is set, but the model is built already");
  // What a key says beside what the model does anyway, or was told to.
  struct GradCase {
    DType dtype;
    std::optional<DType> built;
    const char* wanted;
    const char* refusal;
  };
  for (const GradCase& c :
       {GradCase{DType::kFloat32, std::nullopt, "float32", ""},
        {DType::kBFloat16, std::nullopt, "float32", ""},
        {DType::kBFloat16, DType::kBFloat16, "bfloat16", ""},
        {DType::kFloat16, DType::kFloat32, "float32", ""},
        {DType::kBFloat16, std::nullopt, "bfloat16",
         "the model was built with grad_dtype float32, the configuration says bfloat16"},
        {DType::kFloat16, DType::kFloat16, "float32",
         "the model was built with grad_dtype float16, the configuration says float32"}}) {
    const auto built = BuildGpt({.dtype = c.dtype, .grad_dtype = c.built});
    ASSERT_TRUE(built.ok());
    RunConfig said;
    said.lr_schedule = "constant";
    said.dtype = Concat(c.dtype);
    said.grad_dtype = c.wanted;
    const auto made = Initialize(**built, said);
    EXPECT_EQ(made.ok() ? "" : Message(made.status()), c.refusal) << c.dtype << " " << c.wanted;
  }
  RunConfig config;
  config.lr_schedule = "constant";
  config.zero = 3;
  config.checkpoint_activations = true;
  const auto engine = Initialize(**model, config);
  ASSERT_TRUE(engine.ok()) << Message(engine.status());
  EXPECT_EQ(&(*engine)->model(), model->get());
  EXPECT_TRUE((*model)->checkpoint_activations());
  config.model = "bert-tiny";
  EXPECT_EQ(Refusal(Initialize("gpt-tiny", config)),
            "model is 'bert-tiny', but 'gpt-tiny' is to be initialized");
  EXPECT_EQ(Refusal(Initialize(BuildGpt, config)), "model is set, but a function builds the model");
}

TEST(InitializeTest, EveryRankGetsItsPartAndEveryFailure) {
  RunConfig config;
  config.lr_schedule = "constant";
  config.tp = 2;
  config.pp = 2;
  config.threads = 1;
  RunRanks(4, [&](const std::shared_ptr<Communicator>& world) {
    const auto mesh = MakeMesh(config, world);
    ASSERT_TRUE(mesh.ok());
    const auto engine = Initialize("gpt-tiny", config, {.mesh = *mesh});
    ASSERT_TRUE(engine.ok()) << Message(engine.status());
    EXPECT_NE((*engine)->model().stage(), nullptr);
    EXPECT_EQ((*engine)->model().build().tensor_parallel->size(), 2);
    // One rank's builder fails.
    const auto fails = [&](const nn::BuildContext& build) {
      return world->rank() == 2 ? NotFound("no weights here") : BuildGpt(build);
    };
    EXPECT_EQ(Refusal(Initialize(fails, config, {.mesh = *mesh})), "rank 2: no weights here");
    RunConfig other = config;
    other.tp = 4;
    other.pp = 1;
    EXPECT_EQ(Refusal(Initialize(BuildGpt, other, {.mesh = *mesh})),
              "the mesh has tp 2 and pp 2, the configuration says 4 and 1");
  });
}

TEST(InitializeTest, RanksShareExpertsAsTheConfigurationSays) {
  RunConfig config;
  config.lr_schedule = "constant";
  config.ep = 2;
  config.threads = 1;
  RunRanks(4, [&](const std::shared_ptr<Communicator>& world) {
    const auto mesh = MakeMesh(config, world);
    ASSERT_TRUE(mesh.ok());
    EXPECT_EQ(mesh->ep()->size(), 2);
    EXPECT_EQ(mesh->edp()->size(), 2);
    EXPECT_EQ(mesh->dp()->size(), 4);
    RunConfig other = config;
    other.ep = 4;
    EXPECT_EQ(Refusal(Initialize(BuildGpt, other, {.mesh = *mesh})),
              "the mesh has ep 2, the configuration says 4");
    auto built = BuildGpt({});
    ASSERT_TRUE(built.ok());
    EXPECT_EQ(Refusal(Initialize(**built, config, {.mesh = *mesh})),
              "the model was built with ep 1, the configuration says 2");
    RunConfig exact = config;
    exact.deterministic = true;
    auto shared = BuildGpt({.expert_parallel = mesh->ep()});
    ASSERT_TRUE(shared.ok());
    EXPECT_EQ(Refusal(Initialize(**shared, exact, {.mesh = *mesh})),
              "the model was built without deterministic, which deterministic needs with ep "
              "2");
  });
}

// Sample i is the number i.
class Numbers : public data::Dataset {
 public:
  int64_t size() const override { return 10; }
  StatusOr<data::Batch> MakeBatch(std::span<const data::Sample> samples) const override {
    std::vector<int64_t> numbers;
    for (const data::Sample& sample : samples) numbers.push_back(sample.index);
    data::Batch batch;
    batch.rows = std::ssize(numbers);
    batch.tensors.set(keys::kInputIds, Tensor::FromVector(numbers, {batch.rows, 1}));
    return batch;
  }
};

TEST(InitializeTest, ALoaderGivesEveryRankItsShareAndGoesOnWhereTheEngineIs) {
  RunConfig config;
  config.lr_schedule = "constant";
  config.batch_size = 1;
  config.gradient_accumulation_steps = 2;
  config.shuffle = false;
  config.threads = 1;
  const Numbers numbers;
  RunRanks(2, [&](const std::shared_ptr<Communicator>& world) {
    const auto mesh = MakeMesh(config, world);
    const auto engine = Initialize(BuildGpt, config, {.mesh = *mesh});
    ASSERT_TRUE(engine.ok()) << Message(engine.status());
    const auto take = [&](BatchLoader& loader, int count) {
      std::vector<int64_t> taken;
      for (int i = 0; i < count; ++i) {
        taken.push_back(loader.Next()->at(keys::kInputIds).ToVector<int64_t>()[0]);
      }
      return taken;
    };
    const auto loader = (*engine)->MakeLoader(numbers);
    EXPECT_EQ(loader->steps_per_epoch(), 3);
    EXPECT_EQ(take(*loader, 6), world->rank() == 0 ? std::vector<int64_t>({0, 1, 4, 5, 8, 9})
                                                   : std::vector<int64_t>({2, 3, 6, 7, 0, 1}));
    const Tensor ids = Full({1, 4}, 3, DType::kInt64);
    for (int m = 0; m < 2; ++m) {
      (*engine)->Backward((**engine)({{keys::kInputIds, ids}, {keys::kLabels, ids}}));
      (*engine)->Step();
    }
    RunConfig whole = config;  // epochs of whole steps: 2 of 4 rows
    whole.drop_last = true;
    const auto dropping = Initialize(BuildGpt, whole, {.mesh = *mesh});
    ASSERT_TRUE(dropping.ok()) << Message(dropping.status());
    const auto steps = (*dropping)->MakeLoader(numbers);
    EXPECT_EQ(steps->steps_per_epoch(), 2);
    EXPECT_EQ(take(*steps, 6), world->rank() == 0 ? std::vector<int64_t>({0, 1, 4, 5, 0, 1})
                                                  : std::vector<int64_t>({2, 3, 6, 7, 2, 3}));
    const auto later = (*engine)->MakeLoader(numbers);
    EXPECT_EQ(take(*later, 2),
              world->rank() == 0 ? std::vector<int64_t>({4, 5}) : std::vector<int64_t>({6, 7}));
  });
}

TEST(InitializeTest, LabelsAreSmoothed) {
  RunConfig config;
  config.max_steps = 5;
  config.label_smoothing = 0.25;
  config.threads = 1;
  const auto engine = Initialize(BuildGpt, config);
  ASSERT_TRUE(engine.ok()) << Message(engine.status());
  const Tensor ids = Tensor::FromVector<int64_t>({3, 1, 4, 1, 5, 9}, {1, 6});
  const models::Bundle batch = {{keys::kInputIds, ids}, {keys::kLabels, ids}};
  const NoGrad no_grad;
  models::RunOptions options;
  const double plain = (*engine)->model().Run(batch, options).at(keys::kLoss).Item();
  options.label_smoothing = 0.25;
  const double smooth = (*engine)->model().Run(batch, options).at(keys::kLoss).Item();
  EXPECT_NE(smooth, plain);
  EXPECT_EQ((**engine)(batch).Item(), smooth);
}

}  // namespace
}  // namespace tessera::train
