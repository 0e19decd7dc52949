// SPDX-License-Identifier: Apache-2.0
// tsr_train_*: the bits of the engine, what it writes, and calls that cannot be.
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "base/mounted_folder.h"
#include "dist/mesh/mesh.h"
#include "gtest/gtest.h"
#include "models/hub/convert_model.h"
#include "models/hub/gguf/convert_gguf.h"
#include "models/hub/load_model.h"
#include "models/model_keys.h"
#include "models/open/model_folder.h"
#include "nlohmann/json.hpp"
#include "optim/optimizer_kind.h"
#include "runtime/tessera_training.h"
#include "tests/inference/small_models.h"
#include "tests/runtime/model_folders.h"
#include "train/engine/engine.h"

namespace tessera {
namespace {

struct ReleaseTrainer {
  void operator()(tsr_trainer* trainer) const { EXPECT_EQ(CodeOf(tsr_train_release(trainer)), 0); }
};
using TrainerHandle = std::unique_ptr<tsr_trainer, ReleaseTrainer>;

tsr_train_options Options() {
  tsr_train_options options = {};
  options.size = sizeof(options);
  options.seed = 7;
  options.learning_rate = 0.01;
  options.weight_decay = 0.1;
  options.max_grad_norm = 1;
  return options;
}

TrainerHandle Trainer(const std::string& model, const tsr_train_options& options) {
  tsr_trainer* trainer = nullptr;
  std::string message;
  EXPECT_EQ(CodeOf(tsr_train_create(model.c_str(), &options, &trainer), &message), TSR_OK)
      << message;
  return TrainerHandle(trainer);
}

// Other tokens for each number; labels are the tokens.
Bundle GptBatch(int64_t number) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 2 * 9; ++i) ids.push_back((i * i + number * 31) % 200);
  const Tensor tensor = Tensor::FromVector(ids, {2, 9});
  return {{keys::kInputIds, tensor}, {keys::kLabels, tensor}};
}

// -1 of a call that fails, which sets no loss.
double Step(tsr_trainer* trainer, const Bundle& batch, int expected = TSR_OK) {
  const NamedTensors in(batch);
  double loss = -1;
  std::string message;
  EXPECT_EQ(CodeOf(tsr_train_step(trainer, in.tensors.data(), in.tensors.size(), &loss), &message),
            expected)
      << message;
  return loss;
}

double LossOf(tsr_trainer* trainer, const Bundle& batch) {
  const NamedTensors in(batch);
  double loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(CodeOf(tsr_train_evaluate(trainer, in.tensors.data(), in.tensors.size(), &loss)),
            TSR_OK);
  return loss;
}

tsr_train_info InfoOf(tsr_trainer* trainer) {
  tsr_train_info info = {};
  info.size = sizeof(info);
  EXPECT_EQ(CodeOf(tsr_train_describe(trainer, &info)), TSR_OK);
  return info;
}

// The same by the engine: two batches an update, whose means count alike.
std::vector<double> LossesOfTheEngine(const char* optimizer, int updates) {
  const auto model = models::LoadModel(SmallModelFolder("gpt2"), {}).value();
  const auto rule =
      optim::FindOptimizerKind(optimizer).value()->Configure(nlohmann::json::object(), "test");
  train::Engine engine(
      *model, dist::Mesh(),
      {.rule = rule.value(), .weight_decay = 0.1, .max_grad_norm = 1, .skip_non_finite = true});
  engine.Start();
  std::vector<double> losses;
  for (int update = 1; update <= updates; ++update) {
    const std::vector<models::Bundle> batches = {GptBatch(2 * update), GptBatch(2 * update + 1)};
    const auto options = [&](int64_t micro_batch) {
      models::RunOptions run;
      run.keep_logits = false;
      run.context = {.training = true};
      run.context.seed = 7;
      run.context.step = static_cast<uint64_t>(update);
      run.context.micro_batch = static_cast<uint64_t>(micro_batch);
      return run;
    };
    const auto done = engine.Step({.batches = batches,
                                   .targets = 2,
                                   .learning_rate = 0.01,
                                   .number = static_cast<uint64_t>(update),
                                   .options = options});
    losses.insert(losses.end(), done.losses.begin(), done.losses.end());
    losses.push_back(done.grad_norm);
  }
  return losses;
}

TEST(TrainingTest, HasTheBitsOfTheEngine) {
  for (const char* optimizer : {"adamw", "sgd", "lion", "adafactor"}) {
    tsr_train_options options = Options();
    options.optimizer = optimizer;
    options.accumulation_steps = 2;
    options.threads = 3;
    const TrainerHandle trainer = Trainer(SmallModelFolder("gpt2"), options);
    std::vector<double> losses;
    for (int update = 1; update <= 4; ++update) {
      losses.push_back(Step(trainer.get(), GptBatch(2 * update)));
      EXPECT_EQ(InfoOf(trainer.get()).accumulated, 1);
      losses.push_back(Step(trainer.get(), GptBatch(2 * update + 1)));
      losses.push_back(InfoOf(trainer.get()).grad_norm);
    }
    EXPECT_EQ(losses, LossesOfTheEngine(optimizer, 4)) << optimizer;
    EXPECT_EQ(InfoOf(trainer.get()).updates, 4u);
  }
}

// What is cancelled leaves no trace: the parameters are those of the updates that were done.
TEST(TrainingTest, AStepIsCancelledFromAnotherThread) {
  const TrainerHandle trainer = Trainer(SmallModelFolder("gpt2"), Options());
  EXPECT_EQ(CodeOf(tsr_train_cancel(trainer.get())), TSR_OK);  // nothing runs: nothing happens
  std::atomic<int64_t> steps = 0;
  std::atomic<int> code = -1;
  std::thread running([&] {
    int last = TSR_OK;
    while (last == TSR_OK) {
      const Bundle batch = GptBatch(steps);
      const NamedTensors in(batch);
      double loss = 0;
      last = CodeOf(tsr_train_step(trainer.get(), in.tensors.data(), in.tensors.size(), &loss));
      if (last == TSR_OK) ++steps;
    }
    code = last;
  });
  while (steps < 2) std::this_thread::yield();
  while (code == -1) EXPECT_EQ(CodeOf(tsr_train_cancel(trainer.get())), TSR_OK);
  running.join();
  EXPECT_EQ(code, TSR_CANCELLED);
  const tsr_train_info info = InfoOf(trainer.get());
  EXPECT_EQ(info.updates, static_cast<uint64_t>(steps));
  EXPECT_EQ(info.accumulated, 0);

  const TrainerHandle undisturbed = Trainer(SmallModelFolder("gpt2"), Options());
  for (int64_t i = 0; i < steps; ++i) Step(undisturbed.get(), GptBatch(i));
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(Step(trainer.get(), GptBatch(steps + i)),
              Step(undisturbed.get(), GptBatch(steps + i)));
  }
}

// With dropout, whose bits are a function of seed and update.
TEST(TrainingTest, GoesOnFromACheckpoint) {
  tsr_train_options options = Options();
  options.config_changes = R"({"resid_pdrop": 0.2, "embd_pdrop": 0.2, "attn_pdrop": 0.2})";
  const std::string path = testing::TempDir() + "/training_checkpoint";
  std::vector<double> whole;
  {
    const TrainerHandle trainer = Trainer(SmallModelFolder("gpt2"), options);
    for (int i = 0; i < 6; ++i) {
      whole.push_back(Step(trainer.get(), GptBatch(i)));
      if (i != 2) continue;
      EXPECT_EQ(CodeOf(tsr_train_set_learning_rate(trainer.get(), 0.02)), TSR_OK);
      EXPECT_EQ(CodeOf(tsr_train_save_checkpoint(trainer.get(), path.c_str())), TSR_OK);
    }
  }
  options.seed = 8;  // the checkpoint's counts
  const TrainerHandle trainer = Trainer(SmallModelFolder("gpt2"), options);
  Step(trainer.get(), GptBatch(9));
  ASSERT_EQ(CodeOf(tsr_train_load_checkpoint(trainer.get(), path.c_str())), TSR_OK);
  EXPECT_EQ(InfoOf(trainer.get()).updates, 3u);
  EXPECT_EQ(InfoOf(trainer.get()).learning_rate, 0.02);
  for (int i = 3; i < 6; ++i) EXPECT_EQ(Step(trainer.get(), GptBatch(i)), whole[i]) << i;
}

TEST(TrainingTest, WritesAFolderThatIsLoaded) {
  const std::string folder = testing::TempDir() + "/trained";
  const TrainerHandle trainer = Trainer(SmallModelFolder("gpt2"), Options());
  const double before = LossOf(trainer.get(), GptBatch(1));
  for (int i = 0; i < 8; ++i) Step(trainer.get(), GptBatch(1));
  const double after = LossOf(trainer.get(), GptBatch(1));
  EXPECT_LT(after, before);
  ASSERT_EQ(CodeOf(tsr_train_save(trainer.get(), folder.c_str())), TSR_OK);
  const auto model = models::LoadModel(folder, {.require_weights = true});
  ASSERT_TRUE(model.ok()) << Message(model.status());
  EXPECT_EQ((*model)->Run(GptBatch(1), {.keep_logits = false}).at(keys::kLoss).Item(), after);
  EXPECT_TRUE(PathExists(folder + "/tokenizer_config.json"));  // kept
  const ModelHandle loaded = LoadHandle(folder);
  EXPECT_FALSE(GenerateWith(ContextOf(loaded).get(), {5, 8}).ids.empty());
}

TEST(TrainingTest, PresetsAreNewModels) {
  tsr_train_options options = Options();
  options.config_changes = R"({"n_layer": 1, "n_embd": 16, "n_head": 2})";
  const TrainerHandle trainer = Trainer("gpt-tiny", options);
  EXPECT_NE(std::string(InfoOf(trainer.get()).config).find("\"vocab_size\":257"),
            std::string::npos);
  EXPECT_GT(Step(trainer.get(), GptBatch(0)), 0);
}

TEST(TrainingTest, EveryPrecisionLearns) {
  for (const auto& [dtype, products] :
       std::vector<std::pair<tsr_dtype, tsr_dtype>>{{TSR_BFLOAT16, TSR_DTYPE_DEFAULT},
                                                    {TSR_FLOAT32, TSR_BFLOAT16},
                                                    {TSR_FLOAT32, TSR_FLOAT16}}) {
    tsr_train_options options = Options();
    options.dtype = dtype;
    options.products = products;
    const TrainerHandle trainer = Trainer(SmallModelFolder("gpt2"), options);
    const double first = LossOf(trainer.get(), GptBatch(1));
    for (int i = 0; i < 20; ++i) Step(trainer.get(), GptBatch(1));
    EXPECT_LT(LossOf(trainer.get(), GptBatch(1)), first) << dtype << " " << products;
    EXPECT_EQ(InfoOf(trainer.get()).updates, 20u);
  }
}

// Labels of a classifier, over a head that the folder lacks.
TEST(TrainingTest, GivesAnEncoderANewHead) {
  tsr_train_options options = Options();
  options.config_changes = R"({"architectures": ["BertForSequenceClassification"],
                               "id2label": {"0": "no", "1": "yes"},
                               "label2id": {"no": 0, "yes": 1}})";
  options.new_head = 1;
  const TrainerHandle trainer = Trainer(SmallModelFolder("bert"), options);
  Bundle batch = SmallInputs("bert");
  batch.set(keys::kLabels, Tensor::FromVector<int64_t>({1, 0}, {2}));
  const double first = Step(trainer.get(), batch);
  for (int i = 0; i < 10; ++i) Step(trainer.get(), batch);
  EXPECT_LT(LossOf(trainer.get(), batch), first);
}

// Beside the weights of the very file that is run: a GGUF file of blocks.
TEST(TrainingTest, AnAdapterTrainsOnAGgufFile) {
  const std::string quantised = testing::TempDir() + "/quantised";
  const std::string file = testing::TempDir() + "/adapted.gguf";
  std::filesystem::remove_all(quantised);
  ASSERT_TRUE(
      models::ConvertModel(SmallModelFolder("gpt2"), quantised, {.quantize = QuantType::kQ8_0})
          .ok());
  const Status written = models::ConvertToGguf(quantised, file);
  ASSERT_TRUE(written.ok()) << Message(written);
  tsr_train_options options = Options();
  options.adapter = R"({"r": 4, "lora_alpha": 8, "target_modules": ["c_attn", "c_fc"]})";
  const std::string saved = testing::TempDir() + "/adapter";
  double after = 0;
  {
    const TrainerHandle trainer = Trainer(file, options);
    const double before = LossOf(trainer.get(), GptBatch(1));
    for (int i = 0; i < 20; ++i) Step(trainer.get(), GptBatch(1));
    after = LossOf(trainer.get(), GptBatch(1));
    EXPECT_LT(after, before - 0.1);
    ASSERT_EQ(CodeOf(tsr_train_save(trainer.get(), saved.c_str())), TSR_OK);
    // A trainer that loads the checkpoint computes the same bits.
    const std::string checkpoint = testing::TempDir() + "/adapter_checkpoint";
    std::filesystem::remove_all(checkpoint);
    ASSERT_EQ(CodeOf(tsr_train_save_checkpoint(trainer.get(), checkpoint.c_str())), TSR_OK);
    Step(trainer.get(), GptBatch(2));
    const TrainerHandle again = Trainer(file, options);
    ASSERT_EQ(CodeOf(tsr_train_load_checkpoint(again.get(), checkpoint.c_str())), TSR_OK);
    EXPECT_EQ(LossOf(again.get(), GptBatch(1)), after);
    Step(again.get(), GptBatch(2));
    EXPECT_EQ(LossOf(again.get(), GptBatch(3)), LossOf(trainer.get(), GptBatch(3)));
  }
  const auto config = ReadJsonFile(saved + "/adapter_config.json");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ((*config)["base_model_name_or_path"], file);
  EXPECT_FALSE(PathExists(saved + "/model.safetensors"));
  std::optional<MountedFolder> mounted;
  const auto folder = models::ModelFolderAt(file, &mounted);
  const auto model = models::LoadModel(*folder, {.require_weights = true, .adapters = {saved}});
  ASSERT_TRUE(model.ok()) << Message(model.status());
  EXPECT_EQ((*model)->Run(GptBatch(1), {.keep_logits = false}).at(keys::kLoss).Item(), after);
  const char* const adapters[] = {saved.c_str()};
  tsr_load_options load = {};
  load.size = sizeof(load);
  load.adapters = adapters;
  load.num_adapters = 1;
  EXPECT_FALSE(GenerateWith(ContextOf(LoadHandle(file, &load)).get(), {5, 8}).ids.empty());
  // Without an adapter such weights do not train.
  tsr_trainer* none = nullptr;
  std::string message;
  options.adapter = nullptr;
  EXPECT_EQ(CodeOf(tsr_train_create(file.c_str(), &options, &none), &message),
            TSR_INVALID_ARGUMENT);
  EXPECT_NE(message.find("is quantised and cannot train; train an adapter (tsr_train_options: "
                         "adapter)"),
            std::string::npos)
      << message;
  for (const auto& [adapter, says] : std::vector<std::pair<const char*, const char*>>{
           {"[]", "tsr_train_options: adapter: not a JSON object"},
           {R"({"r": 0})", "tsr_train_options: adapter"},
           {R"({"target_modules": ["nothing"]})", "name no linear layer of this model"},
           {R"({"init_lora_weights": "pissa"})", "'init_lora_weights' is \"pissa\""},
           {R"({"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 3})", "a prefix is for"}}) {
    options.adapter = adapter;
    EXPECT_EQ(CodeOf(tsr_train_create(file.c_str(), &options, &none), &message),
              TSR_INVALID_ARGUMENT)
        << adapter;
    EXPECT_NE(message.find(says), std::string::npos) << message;
  }
}

TEST(TrainingTest, AnUpdateThatIsNotFiniteIsLeftOut) {
  const TrainerHandle trainer = Trainer(SmallModelFolder("vit"), Options());
  Bundle batch = SmallInputs("vit");
  const int64_t rows = batch.at(keys::kPixelValues).size(0);
  batch.set(keys::kLabels, Tensor::FromVector(std::vector<int64_t>(rows, 1), {rows}));
  const double before = LossOf(trainer.get(), batch);
  Bundle broken = batch;
  broken.set(keys::kPixelValues,
             Full(batch.at(keys::kPixelValues).shape(), std::numeric_limits<double>::infinity(),
                  DType::kFloat32, Device::Cpu()));
  EXPECT_EQ(Step(trainer.get(), broken, TSR_ABORTED), -1);
  EXPECT_EQ(InfoOf(trainer.get()).skipped, 1u);
  EXPECT_EQ(LossOf(trainer.get(), batch), before);
  Step(trainer.get(), batch);
  EXPECT_LT(LossOf(trainer.get(), batch), before);
}

// Saving replaces a model, and nothing else.
TEST(TrainingTest, SavingReplacesNobodysFiles) {
  const std::string folder = SmallModelFolder("gpt2");
  const TrainerHandle trainer = Trainer(folder, Options());
  const std::string root = testing::TempDir() + "/saving";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root + "/photos/a");
  std::ofstream(root + "/photos/a/1.jpg") << "a picture";
  std::ofstream(root + "/program.c") << "int main;";
  const auto refused = [&](tsr_status* status, const std::string& says) {
    std::string message;
    EXPECT_EQ(CodeOf(status, &message), TSR_INVALID_ARGUMENT);
    EXPECT_NE(message.find(says), std::string::npos) << message;
  };
  for (const auto save : {tsr_train_save, tsr_train_save_checkpoint}) {
    refused(save(trainer.get(), (root + "/program.c").c_str()), "program.c: is a file, no folder");
    refused(save(trainer.get(), (root + "/photos").c_str()), "'a' in it would be lost");
    const std::string fresh = root + (save == tsr_train_save ? "/model" : "/checkpoint");
    std::filesystem::create_directories(fresh);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(CodeOf(save(trainer.get(), fresh.c_str())), TSR_OK);
  }
  // One is not the other.
  refused(tsr_train_save(trainer.get(), (root + "/checkpoint").c_str()), "has no config.json");
  refused(tsr_train_save_checkpoint(trainer.get(), (root + "/model").c_str()),
          "has no checkpoint.json");
  EXPECT_TRUE(std::filesystem::exists(root + "/photos/a/1.jpg"));
  EXPECT_TRUE(std::filesystem::is_regular_file(root + "/program.c"));
}

struct Refused {
  const char* says;
  void (*change)(tsr_train_options* options);
};

TEST(TrainingTest, OptionsThatCannotBeAreNamed) {
  const std::string folder = SmallModelFolder("gpt2");
  for (const Refused& refused : std::vector<Refused>{
           {"size is 3", [](auto* o) { o->size = 3; }},
           {"unknown optimizer 'adan'", [](auto* o) { o->optimizer = "adan"; }},
           {"optimizer_options", [](auto* o) { o->optimizer_options = "{\"betas\": "; }},
           {"not a JSON object", [](auto* o) { o->optimizer_options = "[1]"; }},
           {"beta", [](auto* o) { o->optimizer_options = "{\"beta\": 1}"; }},
           {"learning_rate is nan", [](auto* o) { o->learning_rate = std::nan(""); }},
           {"weight_decay is -1", [](auto* o) { o->weight_decay = -1; }},
           {"max_grad_norm", [](auto* o) { o->max_grad_norm = -2; }},
           {"accumulation_steps is -1", [](auto* o) { o->accumulation_steps = -1; }},
           {"label_smoothing is 1", [](auto* o) { o->label_smoothing = 1; }},
           {"dtype 99", [](auto* o) { o->dtype = 99; }},
           {"dtype int64: models compute in", [](auto* o) { o->products = TSR_INT64; }},
           {"config_changes", [](auto* o) { o->config_changes = "nonsense"; }},
           {"n_embd", [](auto* o) { o->config_changes = "{\"n_embd\": -5}"; }},
           {"no key 'n_hed'; did you mean 'n_head'?",
            [](auto* o) { o->config_changes = "{\"n_hed\": 2}"; }},
           {"adapter: there is no 'lora_alfa'; did you mean 'lora_alpha'?",
            [](auto* o) { o->adapter = "{\"r\": 2, \"lora_alfa\": 64}"; }},
           {"adapter: there is no 'lora_rank'", [](auto* o) { o->adapter = "{\"lora_rank\": 4}"; }},
           {"new_head is 2", [](auto* o) { o->new_head = 2; }},
           {"/nowhere", [](auto* o) { o->tokenizer = "/nowhere"; }},
           {"threads is -1", [](auto* o) { o->threads = -1; }},
           {"memory of the trainer", [](auto* o) { o->memory_limit = 1000; }}}) {
    tsr_train_options options = Options();
    refused.change(&options);
    tsr_trainer* trainer = nullptr;
    std::string message;
    EXPECT_NE(CodeOf(tsr_train_create(folder.c_str(), &options, &trainer), &message), TSR_OK)
        << refused.says;
    EXPECT_NE(message.find(refused.says), std::string::npos) << message;
    EXPECT_EQ(trainer, nullptr);
  }
  tsr_trainer* trainer = nullptr;
  EXPECT_EQ(CodeOf(tsr_train_create("/nowhere", nullptr, &trainer)), TSR_NOT_FOUND);
  EXPECT_EQ(CodeOf(tsr_train_create(nullptr, nullptr, &trainer)), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(tsr_train_create(folder.c_str(), nullptr, nullptr)), TSR_INVALID_ARGUMENT);
}

TEST(TrainingTest, AFamilyOfTheHostsDoesNotTrain) {
  const tsr_family family = {
      .size = sizeof(family),
      .model_type = "hosts",
      .architecture = "Hosts",
      .build = [](void*, tsr_blueprint*, void**) { return tsr_status_create(TSR_OK, ""); },
      .forward = [](void*, void*, const tsr_pass*) { return tsr_status_create(TSR_OK, ""); },
      .release = nullptr,
      .user = nullptr};
  ASSERT_EQ(CodeOf(tsr_register_family(&family)), TSR_OK);
  const std::string folder = testing::TempDir() + "/hosts_family";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << R"({"model_type": "hosts"})";
  tsr_trainer* trainer = nullptr;
  std::string message;
  EXPECT_EQ(CodeOf(tsr_train_create(folder.c_str(), nullptr, &trainer), &message),
            TSR_INVALID_ARGUMENT);
  EXPECT_EQ(message, "tsr_train_create: models of family 'hosts' do not train");
  EXPECT_EQ(trainer, nullptr);
}

TEST(TrainingTest, CallsThatCannotBeChangeNothing) {
  const std::string folder = SmallModelFolder("gpt2");
  const TrainerHandle owner = Trainer(folder, Options());
  tsr_trainer* const trainer = owner.get();
  const double before = LossOf(trainer, GptBatch(1));
  const NamedTensors batch(GptBatch(1));
  double loss = -1;
  const auto* const in = batch.tensors.data();
  EXPECT_EQ(CodeOf(tsr_train_step(nullptr, in, 2, &loss)), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(tsr_train_step(trainer, in, 2, nullptr)), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(tsr_train_step(trainer, nullptr, 2, &loss)), TSR_INVALID_ARGUMENT);
  std::string message;
  EXPECT_EQ(CodeOf(tsr_train_step(trainer, in, 1, &loss), &message), TSR_INVALID_ARGUMENT);
  EXPECT_NE(message.find("labels"), std::string::npos) << message;
  Bundle beyond = GptBatch(1);
  beyond.set(keys::kInputIds, Tensor::FromVector(std::vector<int64_t>(18, 1 << 20), {2, 9}));
  Step(trainer, beyond, TSR_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(tsr_train_set_learning_rate(trainer, -1)), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(tsr_train_set_learning_rate(trainer, std::nan(""))), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(tsr_train_describe(trainer, nullptr)), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(tsr_train_save(trainer, nullptr)), TSR_INVALID_ARGUMENT);
  EXPECT_NE(CodeOf(tsr_train_save(trainer, "/proc/nowhere")), TSR_OK);
  EXPECT_NE(CodeOf(tsr_train_load_checkpoint(trainer, "/nowhere")), TSR_OK);
  EXPECT_NE(CodeOf(tsr_train_load_checkpoint(trainer, folder.c_str())), TSR_OK);
  // A handle of another kind, and one that is gone.
  const ModelHandle model = LoadHandle(folder);
  auto* const other = reinterpret_cast<tsr_trainer*>(model.get());
  EXPECT_EQ(CodeOf(tsr_train_step(other, in, 2, &loss)), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(tsr_train_release(other)), TSR_INVALID_ARGUMENT);
  tsr_trainer* const stale = Trainer(folder, Options()).get();
  EXPECT_EQ(CodeOf(tsr_train_step(stale, in, 2, &loss)), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(loss, -1);
  EXPECT_EQ(InfoOf(trainer).updates, 0u);
  EXPECT_EQ(LossOf(trainer, GptBatch(1)), before);
  EXPECT_EQ(CodeOf(tsr_train_release(nullptr)), TSR_OK);
}

}  // namespace
}  // namespace tessera
