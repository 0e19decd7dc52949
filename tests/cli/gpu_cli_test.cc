// SPDX-License-Identifier: Apache-2.0
// A model trained, resumed and used on cuda:0 by the program, against the CPU. Runs where the
// program has a GPU, be it the emulated one.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/running_serve.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

class GpuCliTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    root_ = new std::string(testing::TempDir() + "/gpu_cli");
    fs::remove_all(*root_);
    fs::create_directories(*root_);
    std::ofstream text(*root_ + "/text.txt");
    for (int i = 0; i < 200; ++i) text << "line " << i << " of the text: " << i * i % 97 << "\n";
  }

  static std::string Path(const std::string& name) { return *root_ + "/" + name; }
  static std::string Read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  // What the program prints; the test fails where it ends with an error.
  static std::string Run(const Arguments& arguments) {
    std::string command = "tools/tessera";
    for (const std::string& a : arguments) command += " '" + a + "'";
    const int status =
        std::system((command + " > " + Path("stdout") + " 2> " + Path("stderr")).c_str());
    EXPECT_EQ(status, 0) << command << "\n" << Read(Path("stderr"));
    return Read(Path("stdout"));
  }

  static void Train(const std::string& run, const Arguments& more) {
    Arguments arguments = {"train",
                           "gpt2",
                           "--data",
                           Path("text.txt"),
                           "--tokenizer",
                           "byte",
                           "--out",
                           Path(run),
                           "--config-overrides",
                           "n_embd=32,n_layer=2,n_head=2,n_positions=32",
                           "--seq-len",
                           "32",
                           "--batch-size",
                           "2",
                           "--max-steps",
                           "6",
                           "--lr",
                           "3e-3",
                           "--eval-batches",
                           "2",
                           "--save-interval",
                           "3",
                           "--log-interval",
                           "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Run(arguments);
  }
  // Losses by step, then the one of the validation.
  static std::vector<double> Losses(const std::string& run) {
    std::vector<double> losses;
    std::ifstream rows(Path(run) + "/metrics.jsonl");
    for (std::string row; std::getline(rows, row);) {
      const auto json = nlohmann::json::parse(row, nullptr, false);
      losses.push_back(json.contains("loss") ? json.value("loss", 0.0)
                                             : json.value("val_loss", 0.0));
    }
    EXPECT_EQ(losses.size(), 7u) << run;
    losses.resize(7);
    return losses;
  }
  static void ExpectNear(const std::vector<double>& actual, const std::vector<double>& expected,
                         double tolerance) {
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(actual[i], expected[i], tolerance) << "row " << i + 1;
    }
  }

  static std::string* root_;
};

std::string* GpuCliTest::root_ = nullptr;

TEST_F(GpuCliTest, DescribesTheGpu) {
  EXPECT_NE(Run({"inspect", "--devices"}).find("cuda:0: "), std::string::npos);
}

TEST_F(GpuCliTest, TrainsLikeTheCpu) {
  Train("cpu", {"--dropout", "0.1"});
  Train("gpu", {"--device", "cuda:0", "--dropout", "0.1"});
  const std::vector<double> expected = Losses("cpu");
  const std::vector<double> losses = Losses("gpu");
  EXPECT_LT(expected[5], expected[0] - 0.3);
  ExpectNear(losses, expected, 2e-4);

  // Captured and not, the same bits.
  Train("eager", {"--device", "cuda:0", "--dropout", "0.1", "--cuda-graph=false"});
  EXPECT_EQ(Losses("eager"), losses);

  // From the third step on once more, the same bits.
  fs::copy(Path("gpu"), Path("resumed"), fs::copy_options::recursive);
  Train("resumed",
        {"--device", "cuda:0", "--dropout", "0.1", "--resume", Path("resumed/checkpoint-3")});
  EXPECT_EQ(Losses("resumed"), losses);

  // What was trained there continues here, and is used on both.
  fs::copy(Path("gpu"), Path("moved"), fs::copy_options::recursive);
  Train("moved", {"--dropout", "0.1", "--resume", Path("moved/checkpoint-3")});
  ExpectNear(Losses("moved"), losses, 2e-4);
  const Arguments generate = {"generate", "--model",      Path("gpu/model"),
                              "--prompt", "line 7 of th", "--max-new-tokens",
                              "8"};
  Arguments on_gpu = generate;
  on_gpu.insert(on_gpu.end(), {"--device", "cuda:0"});
  const std::string text = Run(on_gpu);
  EXPECT_EQ(text, Run(generate));

  // A server's texts, of prompts with and without a beginning in common.
  const RunningServe server(Path("gpu/model"), Path("serve"), {"--device", "cuda:0"});
  Arguments on_server = {"generate", "--server", server.url()};
  on_server.insert(on_server.end(), generate.begin() + 3, generate.end());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Run(on_server), text);
}

TEST_F(GpuCliTest, TrainsInHalfPrecision) {
  Train("wide", {"--device", "cuda:0", "--dropout", "0"});
  for (const char* dtype : {"bfloat16", "float16"}) {
    Train(dtype, {"--device", "cuda:0", "--dropout", "0", "--dtype", dtype});
    ExpectNear(Losses(dtype), Losses("wide"), 0.05);
  }
}

}  // namespace
}  // namespace tessera
