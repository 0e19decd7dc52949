// SPDX-License-Identifier: Apache-2.0
#include "models/vit/vit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "models/family.h"
#include "models/model_keys.h"
#include "models/vit/position_table.h"
#include "nlohmann/json.hpp"
#include "ops/testing/op_check.h"

namespace tessera::models {
namespace {

using nlohmann::json;

json SmallConfig() {
  return {{"model_type", "vit"},      {"hidden_size", 10},        {"num_hidden_layers", 1},
          {"num_attention_heads", 2}, {"intermediate_size", 14},  {"image_size", 8},
          {"patch_size", 4},          {"initializer_range", 0.3}, {"num_labels", 3}};
}

std::unique_ptr<Model> Build(const json& config, nn::BuildContext build = {}) {
  auto model = BuildModel(config, build);
  EXPECT_TRUE(model.ok()) << Message(model.status());
  return *std::move(model);
}

TEST(VitTest, ParameterNamesAndShapesAreHuggingFaces) {
  const auto model = Build(SmallConfig());
  const auto shape = [&](const char* name) { return model->FindParameter(name)->tensor.shape(); };
  EXPECT_EQ(shape("vit.embeddings.cls_token"), (Shape{1, 1, 10}));
  EXPECT_EQ(shape("vit.embeddings.position_embeddings"), (Shape{1, 5, 10}));
  EXPECT_EQ(shape("vit.embeddings.patch_embeddings.projection.weight"), (Shape{10, 3, 4, 4}));
  EXPECT_EQ(shape("vit.encoder.layer.0.attention.attention.value.weight"), (Shape{10, 10}));
  EXPECT_EQ(shape("vit.encoder.layer.0.layernorm_after.bias"), (Shape{10}));
  EXPECT_EQ(shape("classifier.weight"), (Shape{3, 10}));
}

// Order within a patch and of patches: a projection that picks one pixel shows where it came from.
TEST(VitTest, PatchesAreTakenRowByRow) {
  json config = SmallConfig();
  config["architectures"] = {"ViTModel"};
  config["num_channels"] = 2;
  const auto model = Build(config);
  // Only one pixel of the image differs; tokens are mixed by attention, so the embedding is asked.
  const auto embed = [&](int64_t pixel) {
    Tensor image = Zeros({1, 2, 8, 8});
    if (pixel >= 0) image.data<float>()[pixel] = 1;
    Bundle in = {{keys::kPixelValues, image}};
    return model->RunBlock(0, in, {}).at(keys::kHidden).ToVector<float>();
  };
  const std::vector<float> none = embed(-1);
  // Channel 1, row 6, column 1: patch 2 (second row of patches, first column), pixel (2, 1).
  const std::vector<float> one = embed(64 + 6 * 8 + 1);
  const Tensor weight =
      model->FindParameter("embeddings.patch_embeddings.projection.weight")->tensor;
  for (int64_t token = 0; token < 5; ++token) {
    for (int64_t c = 0; c < 10; ++c) {
      const auto at = static_cast<size_t>(token * 10 + c);
      const float expected =
          token == 1 + 2 ? weight.data<float>()[(c * 2 + 1) * 16 + 2 * 4 + 1] : 0.0f;
      EXPECT_NEAR(one[at] - none[at], expected, 1e-6) << "token " << token << " feature " << c;
    }
  }
}

TEST(VitTest, BicubicWeightsReproduceStraightLines) {
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{14, 24}, {14, 9}, {3, 3}, {2, 7}}) {
    const std::vector<double> w = BicubicWeights(from, to);
    for (int64_t i = 0; i < to; ++i) {
      double sum = 0;
      double line = 0;
      for (int64_t j = 0; j < from; ++j) {
        sum += w[static_cast<size_t>(i * from + j)];
        line += w[static_cast<size_t>(i * from + j)] * static_cast<double>(j);
      }
      EXPECT_NEAR(sum, 1, 1e-12);
      // Away from the border, at whole and half samples, a straight line comes back.
      const double centre =
          (static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to) -
          0.5;
      const bool symmetric = std::abs(centre * 2 - std::round(centre * 2)) < 1e-9;
      if (symmetric && centre >= 1 && centre <= static_cast<double>(from) - 2) {
        EXPECT_NEAR(line, centre, 1e-12) << from << " to " << to << " at " << i;
      }
    }
  }
}

TEST(VitTest, SidesOfASquare) {
  const auto read = [](const json& image, const json& patch) {
    return VitConfig::FromJson(
        {{"model_type", "vit"}, {"image_size", image}, {"patch_size", patch}});
  };
  const auto square = read({32, 32}, {8, 8});
  ASSERT_TRUE(square.ok()) << Message(square.status());
  EXPECT_EQ(square->image_size, 32);
  EXPECT_EQ(square->patch_size, 8);
  EXPECT_EQ(Message(read({32, 16}, 8).status()),
            "config of vit: 'image_size' must be a number or two equal ones, not [32,16]");
  EXPECT_NE(Message(read(32, {8, "8"}).status()).find("'patch_size'"), std::string::npos);
}

TEST(VitTest, RefusesConfigurationsByName) {
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, json>>{{"pooling", "max"},
                                                 {"architectures", {"ViTForMaskedImageModeling"}},
                                                 {"patch_size", 0},
                                                 {"image_size", 2},
                                                 {"hidden_size", 11},
                                                 {"hidden_act", "gelu9"},
                                                 {"pooler_act", "gelu9"},
                                                 {"qkv_bias", "yes"}}) {
    json config = SmallConfig();
    config[key] = value;
    const std::string message = Message(BuildModel(config, {.device = Device::Meta()}).status());
    EXPECT_NE(message.find(key), std::string::npos) << key << ": " << message;
  }
  EXPECT_THROW(Build(SmallConfig())->Run({{keys::kPixelValues, Zeros({1, 3, 8, 9})}}, {}), Error);
}

}  // namespace
}  // namespace tessera::models
