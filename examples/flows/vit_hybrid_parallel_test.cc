// SPDX-License-Identifier: Apache-2.0
// The flow on pictures that the test draws: one rank, and layouts of several under mpirun.
#include <gtest/gtest.h>
#include <png.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/process/process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Red and blue squares, brighter and darker.
void DrawClass(const std::string& folder, int channel, int pictures) {
  fs::create_directories(folder);
  for (int i = 0; i < pictures; ++i) {
    std::vector<png_byte> pixels(8 * 8 * 3, 20);
    for (size_t p = 0; p < 64; ++p) {
      pixels[3 * p + static_cast<size_t>(channel)] =
          static_cast<png_byte>(120 + (static_cast<size_t>(i) * 37 + p * 5) % 130);
    }
    png_image image = {};
    image.version = PNG_IMAGE_VERSION;
    image.width = image.height = 8;
    image.format = PNG_FORMAT_RGB;
    const std::string path = folder + "/" + std::to_string(i) + ".png";
    ASSERT_TRUE(png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr));
  }
}

class VitFlowTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/vit_flow_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    for (const auto& [part, pictures] : {std::pair("train", 24), std::pair("val", 10)}) {
      DrawClass(root_ + "/pictures/" + part + "/blue", 2, pictures);
      DrawClass(root_ + "/pictures/" + part + "/red", 0, pictures);
    }
    fs::create_directories(root_ + "/vit");
    std::ofstream(root_ + "/vit/config.json") << nlohmann::json({{"model_type", "vit"},
                                                                 {"architectures", {"ViTModel"}},
                                                                 {"hidden_size", 16},
                                                                 {"num_hidden_layers", 2},
                                                                 {"num_attention_heads", 2},
                                                                 {"intermediate_size", 32},
                                                                 {"hidden_act", "gelu"},
                                                                 {"initializer_range", 0.1},
                                                                 {"layer_norm_eps", 1e-12},
                                                                 {"image_size", 8},
                                                                 {"patch_size", 4},
                                                                 {"num_channels", 3},
                                                                 {"qkv_bias", true}});
  }

  std::string Run(int ranks, std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--data", root_ + "/pictures", "--model", root_ + "/vit", "--out",
                                 root_ + "/out", "--num_epoch", "6", "--learning_rate", "5e-3"});
    Process run(
        {{.ranks = ranks, .arguments = flags, .program = "examples/flows/vit_hybrid_parallel"}},
        root_ + "/log");
    EXPECT_EQ(run.ExitCode(), 0) << run.Errors();
    return run.Output();
  }

  // The loss falls, and the classes are told apart; once, by one rank.
  void ExpectLearns(const std::string& output) {
    std::vector<double> losses, accuracies;
    const std::regex line("epoch (\\d+): loss ([0-9.]+), accuracy ([0-9.]+)");
    for (std::sregex_iterator it(output.begin(), output.end(), line), end; it != end; ++it) {
      losses.push_back(std::stod((*it)[2]));
      accuracies.push_back(std::stod((*it)[3]));
    }
    ASSERT_EQ(losses.size(), 6u) << output;
    EXPECT_LT(losses.back(), 0.5 * losses.front()) << output;
    EXPECT_GE(accuracies.back(), 0.9) << output;
    const auto config = nlohmann::json::parse(ReadText(root_ + "/out/config.json"));
    EXPECT_EQ(config.at("id2label"), nlohmann::json({{"0", "blue"}, {"1", "red"}}));
    EXPECT_TRUE(fs::exists(root_ + "/out/model.safetensors"));
  }

  std::string root_;
};

TEST_F(VitFlowTest, OneRankInHalfPrecisionWithGemini) {
  ExpectLearns(Run(1, {"--plugin", "gemini", "--batch_size", "8"}));
}

TEST_F(VitFlowTest, TwoRanksWithLowLevelZero) {
  ExpectLearns(Run(2, {"--plugin", "low_level_zero", "--precision", "bf16", "--batch_size", "4"}));
}

TEST_F(VitFlowTest, DataTensorAndPipelineParallel) {
  const std::string output = Run(8, {"--precision", "fp32", "--tp_size", "2", "--pp_size", "2",
                                     "--num_microbatches", "2", "--batch_size", "4"});
  EXPECT_NE(output.find("48 pictures of 2 classes on 8 ranks: dp 2, tp 2, pp 2"),
            std::string::npos);
  ExpectLearns(output);
}

TEST_F(VitFlowTest, AMistakeIsOneLine) {
  Process run({{.ranks = 2,
                .arguments = {"--data", root_ + "/nothing"},
                .program = "examples/flows/vit_hybrid_parallel"}},
              root_ + "/log");
  EXPECT_NE(run.ExitCode(), 0);
  Process flag(
      {{.arguments = {"--plugin", "hybrid"}, .program = "examples/flows/vit_hybrid_parallel"}},
      root_ + "/log");
  EXPECT_EQ(flag.ExitCode(), 2);
  EXPECT_NE(flag.Errors().find("error: flags: 'plugin'"), std::string::npos) << flag.Errors();
}

}  // namespace
}  // namespace tessera
