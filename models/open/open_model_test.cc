// SPDX-License-Identifier: Apache-2.0
#include "models/open/open_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/tar_archive.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "models/family.h"
#include "models/hub/save_model.h"
#include "models/open/describe_model.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Want = OpenOptions::Want;

const json kGpt = {{"model_type", "gpt2"}, {"vocab_size", 257}, {"n_positions", 16},
                   {"n_embd", 16},         {"n_layer", 1},      {"n_head", 2},
                   {"eos_token_id", 256}};
const json kVit = {{"model_type", "vit"},      {"image_size", 8},         {"patch_size", 4},
                   {"num_channels", 3},        {"hidden_size", 16},       {"num_hidden_layers", 1},
                   {"num_attention_heads", 2}, {"intermediate_size", 20}, {"num_labels", 3},
                   {"initializer_range", 0.2}};

class OpenModelTest : public testing::Test {
 protected:
  OpenModelTest()
      : root_(testing::TempDir() + "/open_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~OpenModelTest() override { fs::remove_all(root_); }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string Saved(const json& config, bool tokenizer = true, const json& generation = nullptr) {
    const std::string folder = Path("model");
    const auto model = BuildModel(config, {.seed = 3});
    EXPECT_TRUE(model.ok()) << model.status();
    const data::ByteTokenizer bytes;
    EXPECT_TRUE(
        SaveModel(**model, folder, tokenizer ? &bytes : nullptr, {.generation_config = generation})
            .ok());
    return folder;
  }

  const std::string root_;
};

// A type may have a padding token of its own where none is said, beyond a small vocabulary.
TEST_F(OpenModelTest, APresetTakesTheTokenizersVocabulary) {
  for (const char* preset : {"llama-tiny", "gemma-2-2b", "olmo-2-1b", "smollm3-3b", "phi-3-mini",
                             "glm-4-9b", "chatglm2-6b"}) {
    auto described = DescribeModel(preset);
    ASSERT_TRUE(described.ok()) << described.status();
    ASSERT_TRUE(described->FindTokenizer({.spec = "byte"}).ok());
    EXPECT_TRUE(described->config->value("pad_token_id", json()).is_null()) << preset;
    const auto model = BuildModel(described->config, {.device = Device::Meta()});
    ASSERT_TRUE(model.ok()) << preset << ": " << model.status();
    EXPECT_EQ((*model)->vocab_size(), 257) << preset;
  }
}

TEST_F(OpenModelTest, AFolderComesWithItsParts) {
  const std::string folder = Saved(kGpt, true, {{"top_k", 7}, {"penalty_alpha", 0.5}});
  std::vector<std::string> warnings;
  OpenOptions options;
  options.load.warn = [&](const std::string& line) { warnings.push_back(line); };
  options.settings = {{"temperature", 0.5}};
  const auto opened = OpenModel(folder, options);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->folder, folder);
  EXPECT_EQ(opened->tokenizer_folder, folder);
  ASSERT_NE(opened->tokenizer, nullptr);
  EXPECT_EQ(opened->tokenizer->vocab_size(), 257);
  EXPECT_EQ(opened->generation.top_k, 7);
  EXPECT_EQ(opened->generation.temperature, 0.5);
  EXPECT_TRUE(opened->generation.do_sample);
  EXPECT_EQ(opened->model->vocab_size(), 257);
  EXPECT_EQ(opened->config["model_type"], "gpt2");
  EXPECT_FALSE(opened->pictures.has_value());
  EXPECT_EQ(warnings, std::vector<std::string>{folder + "/generation_config.json: 'penalty_alpha': "
                                                        "0.5 is not supported, and not applied"});
}

TEST_F(OpenModelTest, PicturesComeWithTheirProcessor) {
  const auto opened = OpenModel(Saved(kVit, false), {.tokenizer = Want::kIfThere});
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->tokenizer, nullptr);
  ASSERT_TRUE(opened->pictures.has_value());
  EXPECT_EQ(opened->pictures->height(), 8);
}

TEST_F(OpenModelTest, AnArchiveIsOpenedLikeItsFolder) {
  const std::string folder = Saved(kGpt);
  const std::string tar = Path("model.tar");
  const std::string command = "tar cf " + tar + " -C " + folder + " .";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const auto whole = OpenModel(folder, {});
  const auto opened = OpenModel(tar, {});
  ASSERT_TRUE(opened.ok()) << opened.status();
  auto mounted = MountTar(tar);
  ASSERT_TRUE(mounted.ok());
  const auto given = OpenModel(*std::move(mounted), {});
  ASSERT_TRUE(given.ok()) << given.status();
  for (const OpenedModel* one : {&*opened, &*given}) {
    EXPECT_TRUE(one->archive.has_value());
    EXPECT_NE(one->tokenizer, nullptr);
    for (const nn::Parameter* p : one->model->Parameters()) {
      EXPECT_EQ(p->tensor.ToVector<float>(),
                whole->model->FindParameter(p->name)->tensor.ToVector<float>());
    }
  }
  // The tokenizer may lie in another one.
  const auto other = OpenModel(Saved(kGpt, false), {.tokenizer_folder = tar});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE(other->tokenizer_archive.has_value());
  EXPECT_EQ(other->tokenizer->vocab_size(), 257);
}

TEST_F(OpenModelTest, TheTokenizerIsReadWhereItIsWanted) {
  const std::string folder = Saved(kGpt, false);
  EXPECT_FALSE(OpenModel(folder, {}).ok());
  const auto none = OpenModel(folder, {.tokenizer = Want::kIfThere});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->tokenizer, nullptr);
  EXPECT_TRUE(OpenModel(folder, {.tokenizer = Want::kNo}).ok());
  // Texts that end a text are looked for in text.
  EXPECT_FALSE(
      OpenModel(folder, {.tokenizer = Want::kNo, .settings = {{"stop_strings", {"x"}}}}).ok());
  const auto bytes = OpenModel(folder, {.tokenizer = Want::kIfThere, .tokenizer_folder = "byte"});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_NE(bytes->tokenizer, nullptr);
}

TEST_F(OpenModelTest, APoolingThatIsNotSupportedFailsWhereItIsAskedFor) {
  const std::string folder = Saved(kGpt);
  ASSERT_TRUE(MakeDirectories(folder + "/1_Pooling").ok());
  ASSERT_TRUE(
      WriteFileAtomically(folder + "/1_Pooling/config.json", R"({"pooling_mode": "median"})").ok());
  for (const bool hides : {false, true}) {
    const auto opened = OpenModel(folder, {.hides_paths = hides});
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(Message(opened->encoder.status()),
              Concat(hides ? "" : folder + "/",
                     "1_Pooling/config.json: 'pooling_mode' 'median' is not supported"));
  }
}

TEST_F(OpenModelTest, APresetWinsOverAFileOfItsName) {
  const fs::path before = fs::current_path();
  fs::current_path(root_);
  ASSERT_TRUE(WriteFileAtomically("gpt2", "no archive").ok());
  ASSERT_TRUE(WriteFileAtomically("byte", "nor this").ok());
  auto described = DescribeModel("gpt2");
  const Status found = described.ok() ? described->FindTokenizer({.spec = "byte"}) : OkStatus();
  fs::current_path(before);
  ASSERT_TRUE(described.ok()) << described.status();
  EXPECT_NE(described->preset, nullptr);
  ASSERT_TRUE(found.ok()) << found;
  EXPECT_EQ(described->tokenizer->vocab_size(), 257);
  EXPECT_EQ(described->config["vocab_size"], 257);
}

TEST_F(OpenModelTest, WhatIsWrongIsSaidBeforeTheWeightsAreRead) {
  const std::string folder = Saved(kGpt);
  int64_t read = 0;
  OpenOptions options;
  options.load.progress = [&](int64_t done, int64_t) {
    read = done;
    return true;
  };
  options.settings = {{"top_p", 2}};
  EXPECT_EQ(Message(OpenModel(folder, options).status()),
            "generation: 'top_p' must be at most 1, not 2");
  options.settings = json::object();
  options.before_weights = [&](const OpenedModel& opened) {
    EXPECT_NE(opened.tokenizer, nullptr);
    EXPECT_EQ(opened.model, nullptr);
    return InvalidArgument("no");
  };
  EXPECT_EQ(Message(OpenModel(folder, options).status()), "no");
  EXPECT_EQ(read, 0);
  options.before_weights = nullptr;
  EXPECT_TRUE(OpenModel(folder, options).ok());
  EXPECT_GT(read, 0);
  EXPECT_EQ(Message(OpenModel(Path("none"), {}).status()),
            "'" + Path("none") +
                "' is neither a folder nor a preset (`tessera models` lists the "
                "presets)");
}

}  // namespace
}  // namespace tessera::models
