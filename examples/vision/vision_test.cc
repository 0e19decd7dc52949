// ResNet and U-Net train on pictures made here; BatchNorm's running statistics on several layouts.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <stdexcept>

#include "core/thread_communicator.h"
#include "examples/vision/resnet.h"
#include "models/family.h"
#include "tests/process/process.h"
#include "train/engine/engine.h"

namespace tessera::examples {
namespace {

namespace fs = std::filesystem;

const nlohmann::json kTiny = {{"model_type", "torchvision-resnet"},
                              {"width", 4},
                              {"blocks_per_stage", 1},
                              {"num_channels", 1},
                              {"num_labels", 2}};

void Require(const Status& status) {
  if (!status.ok()) throw std::runtime_error(Message(status));
}

// Two pictures, bright above or below.
models::Bundle PicturesOf(int64_t micro_batch) {
  std::vector<float> pixels(2 * 16 * 16);
  for (size_t i = 0; i < pixels.size(); ++i) {
    const bool below = i % 256 >= 128;
    pixels[i] = (below == (i >= 256) ? 1.0f : 0.0f) +
                0.01f * static_cast<float>((i * 7 + static_cast<size_t>(micro_batch) * 13) % 31);
  }
  return {{keys::kPixelValues, Tensor::FromVector(pixels, {2, 1, 16, 16})},
          {keys::kLabels, Tensor::FromVector<int64_t>({0, 1}, {2})}};
}

struct Layout {
  int ranks = 1;
  int zero = 0;
  bool recompute = false;
};

using State = std::map<std::string, std::vector<double>>;

// All parameters after three steps of four micro-batches; those of every rank.
std::vector<State> Train(const Layout& layout) {
  std::vector<State> states(static_cast<size_t>(layout.ranks));
  RunRanks(layout.ranks, [&](const std::shared_ptr<Communicator>& world) {
    const dist::Mesh mesh(world, {});
    const auto model = models::BuildModel(kTiny, {.seed = 3});
    Require(model.status());
    (*model)->set_checkpoint_activations(layout.recompute);
    const auto rule = (*optim::FindOptimizerKind("sgd"))->Configure({}, "vision_test");
    Require(rule.status());
    train::Engine engine(**model, mesh,
                         {.rule = *rule, .store = {.stage = layout.zero, .deterministic = true}});
    engine.Start();
    const int64_t mine = 4 / layout.ranks;
    for (uint64_t step = 1; step <= 3; ++step) {
      std::vector<models::Bundle> batches;
      for (int64_t m = 0; m < mine; ++m) batches.push_back(PicturesOf(world->rank() * mine + m));
      models::RunOptions options;
      options.context.training = true;
      options.loss_reduction = LossReduction::kSum;
      engine.Step({.batches = batches,
                   .targets = 8,
                   .learning_rate = 0.01,
                   .number = step,
                   .options = [&](int64_t) { return options; }});
    }
    State& state = states[static_cast<size_t>(world->rank())];
    for (const auto& [name, t] : (*model)->StateDict()) state[name] = t.ToVector<double>();
    const auto before = (*model)->StateDict().at("bn1.running_mean").ToVector<double>();
    (*model)->Run(PicturesOf(0), {});
    EXPECT_EQ((*model)->StateDict().at("bn1.running_mean").ToVector<double>(), before);
  });
  return states;
}

void ExpectNear(const State& a, const State& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a) {
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], b.at(name)[i], tolerance) << name << " " << i;
    }
  }
}

TEST(ResNetTest, RunningStatisticsAreThoseOfAStepOnEveryLayout) {
  const State one = Train({})[0];
  EXPECT_NE(one.at("bn1.running_mean"), std::vector<double>(4, 0.0));
  EXPECT_NE(one.at("layer4.0.bn2.running_var"), std::vector<double>(32, 1.0));
  // A second run of each block in the backward pass adds nothing.
  EXPECT_EQ(Train({.recompute = true})[0], one);
  for (const int zero : {0, 1, 2}) {
    const std::vector<State> ranks = Train({.ranks = 2, .zero = zero});
    EXPECT_EQ(ranks[0], ranks[1]) << zero;
    ExpectNear(ranks[0], one, 1e-5);
  }
}

// By hand: 0.9 times the first value and 0.1 times the mean over micro-batches, the variance
// unbiased.
TEST(ResNetTest, RunningStatisticsByHand) {
  struct Net : nn::Module {
    explicit Net(const nn::Scope& scope) : Module(scope) {}
    nn::BatchNorm norm{{.channels = 1}, Child("norm")};
  } net(nn::Scope::Root({}));
  const auto pass = [&](const std::vector<float>& x) {
    net.norm.Forward(Tensor::FromVector<float>(x, {static_cast<int64_t>(x.size()), 1}),
                     {.training = true});
  };
  EXPECT_THROW(pass({1, 2}), Error);  // without a scope
  nn::RunningStatistics statistics;
  {
    const nn::RunningStatistics::Scope scope(&statistics);
    pass({1, 3});
    pass({2, 6});
    EXPECT_THROW(pass({1}), Error);
  }
  EXPECT_EQ(net.StateDict().at("norm.running_mean").Item(), 0);
  statistics.Apply();
  EXPECT_NEAR(net.StateDict().at("norm.running_mean").Item(), 0.1 * 3, 1e-6);
  EXPECT_NEAR(net.StateDict().at("norm.running_var").Item(), 0.9 + 0.1 * (2 + 8) / 2, 1e-6);
  statistics.Apply();  // nothing is left
  EXPECT_NEAR(net.StateDict().at("norm.running_mean").Item(), 0.1 * 3, 1e-6);
}

void WriteBigEndian(std::ofstream& file, std::initializer_list<uint32_t> words) {
  for (const uint32_t word : words) {
    for (int shift = 24; shift >= 0; shift -= 8) file.put(static_cast<char>(word >> shift));
  }
}

// IDX files: class 0 is bright above, class 1 below.
std::string WritePictures(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const char* part : {"train", "t10k"}) {
    const uint32_t count = part[1] == 'r' ? 64 : 16;
    std::ofstream images(Concat(folder, "/", part, "-images-idx3-ubyte"), std::ios::binary);
    std::ofstream labels(Concat(folder, "/", part, "-labels-idx1-ubyte"), std::ios::binary);
    WriteBigEndian(images, {0x803, count, 28, 28});
    WriteBigEndian(labels, {0x801, count});
    for (uint32_t n = 0; n < count; ++n) {
      labels.put(static_cast<char>(n % 2));
      for (uint32_t i = 0; i < 28 * 28; ++i) {
        const bool bright = (i >= 14 * 28) == (n % 2 == 1);
        images.put(static_cast<char>((bright ? 150 : 50) + (i * 31 + n * 17) % 40));
      }
    }
  }
  return folder;
}

Process Vision(int ranks, std::vector<std::string> arguments, const std::string& log) {
  return Process({{.ranks = ranks, .arguments = std::move(arguments),
                   .program = "examples/vision/vision"}},
                 log);
}

TEST(VisionTest, ResNetTrainsResumesAndIsEvaluated) {
  const std::string root = WritePictures("vision_resnet");
  const std::string config = root + "/tiny.json";
  std::ofstream(config) << R"({"model_type": "torchvision-resnet", "architectures": ["ResNet"],
      "width": 8, "blocks_per_stage": 1, "num_channels": 1, "image_size": 28, "num_labels": 10})";
  const auto train = [&](const std::string& out, const char* steps, const char* resume) {
    return std::vector<std::string>{
        "train",          config, "--task",     "image_classification", "--data",
        root,             "--out", out,         "--batch-size",         "16",
        "--max-steps",    steps,  "--lr",       "0.005",                "--schedule-steps",
        "30",             "--log-interval", "5", "--resume",            resume};
  };
  Process whole = Vision(1, train(root + "/whole", "30", "false"), root + "/whole.log");
  ASSERT_EQ(whole.ExitCode(), 0) << whole.Errors();
  const nlohmann::json last = Metrics(root + "/whole").back();
  EXPECT_GT(last.at("val_accuracy").get<double>(), 0.9) << last;
  for (const char* steps : {"15", "30"}) {
    const char* const resume = steps[0] == '1' ? "false" : "true";
    Process part = Vision(1, train(root + "/parts", steps, resume), root + "/part.log");
    ASSERT_EQ(part.ExitCode(), 0) << part.Errors();
  }
  EXPECT_EQ(Metrics(root + "/parts").back().at("val_loss"), last.at("val_loss"));
}

// One clear line, not statistics that stay as they were.
TEST(VisionTest, LayoutsWithoutRunningStatisticsSayso) {
  const std::string root = WritePictures("vision_layouts");
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"--pp", "2"}, {"--zero", "3"}}) {
    std::vector<std::string> arguments = {"train",        "resnet18-mnist", "--task",
                                          "image_classification", "--data",  root,
                                          "--out",        root + "/run" + layout[0],
                                          "--batch-size", "4",              "--max-steps",
                                          "2"};
    arguments.insert(arguments.end(), layout.begin(), layout.end());
    Process run = Vision(2, arguments, root + "/log" + layout[0]);
    EXPECT_NE(run.ExitCode(), 0);
    EXPECT_NE(run.Errors().find("running statistics have no place to go"), std::string::npos)
        << run.Errors();
  }
}

TEST(VisionTest, UNetTakesNoiseOut) {
  const std::string root = WritePictures("vision_unet");
  Process run({{.ranks = 1, .arguments = {root, "60"}, .program = "examples/vision/denoise"}},
              root + "/log");
  ASSERT_EQ(run.ExitCode(), 0) << run.Errors();
  const std::string output = run.Output();
  const size_t last = output.rfind("loss ");
  ASSERT_NE(last, std::string::npos) << output;
  EXPECT_LT(std::atof(output.c_str() + last + 5), 0.15) << output;
}

}  // namespace
}  // namespace tessera::examples
