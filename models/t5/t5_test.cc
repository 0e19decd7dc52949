// SPDX-License-Identifier: Apache-2.0
// T5's parts against plain arithmetic, and the model against itself: one token at a time, padded,
// recomputed. tests/parity has it against transformers.
#include "models/t5/t5.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "autograd/autograd.h"
#include "models/family.h"
#include "models/generation/generate.h"
#include "models/model_keys.h"
#include "models/t5/t5_keys.h"
#include "nlohmann/json.hpp"
#include "nn/relative_position.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

using nlohmann::json;

json SmallConfig() {
  return {{"model_type", "t5"},
          {"vocab_size", 61},
          {"d_model", 24},
          {"d_kv", 5},
          {"d_ff", 29},
          {"num_layers", 2},
          {"num_decoder_layers", 3},
          {"num_heads", 3},
          {"relative_attention_num_buckets", 8},
          {"relative_attention_max_distance", 12},
          {"dropout_rate", 0.1},
          {"decoder_start_token_id", 2},
          {"eos_token_id", 1},
          {"initializer_factor", 0.3}};
}

std::unique_ptr<Model> Build(const json& config, const nn::BuildContext& build = {.seed = 5}) {
  auto model = BuildModel(config, build);
  EXPECT_TRUE(model.ok()) << Message(model.status());
  return *std::move(model);
}

// The buckets of the paper's implementation for 32 buckets up to 128, written out.
TEST(RelativePositionTest, Buckets) {
  const nn::RelativePositionBiasConfig both = {.num_buckets = 32, .max_distance = 128};
  const auto bucket = [&](int64_t d) { return nn::RelativePositionBucket(d, both); };
  for (int64_t d = 0; d < 8; ++d) {
    EXPECT_EQ(bucket(-d), d);
    EXPECT_EQ(bucket(d), d > 0 ? 16 + d : 0);
  }
  // 8 + floor(8 ln(d / 8) / ln 16).
  const std::pair<int64_t, int64_t> far[] = {{8, 8},   {11, 8},   {12, 9},   {15, 9},  {16, 10},
                                             {22, 10}, {23, 11},  {32, 12},  {64, 14}, {90, 14},
                                             {91, 15}, {128, 15}, {5000, 15}};
  for (const auto& [distance, expected] : far) {
    EXPECT_EQ(bucket(-distance), expected) << distance;
    EXPECT_EQ(bucket(distance), 16 + expected) << distance;
  }
  nn::RelativePositionBiasConfig back = both;
  back.bidirectional = false;
  EXPECT_EQ(nn::RelativePositionBucket(5, back), 0);  // a key ahead
  EXPECT_EQ(nn::RelativePositionBucket(-15, back), 15);
  EXPECT_EQ(nn::RelativePositionBucket(-16, back), 16);
  EXPECT_EQ(nn::RelativePositionBucket(-200, back), 31);
}

TEST(RelativePositionTest, RowsThatBeginElsewhere) {
  const nn::BuildContext context = {.seed = 3};
  nn::RelativePositionBias bias({.num_buckets = 8, .max_distance = 12, .num_heads = 2},
                                nn::Scope::Root(context));
  const Tensor whole = bias.Forward(9, 9);
  const Tensor parts = bias.Forward({0, 4}, 3, 9);
  for (int64_t row = 0; row < 2; ++row) {
    const Tensor expected = Slice(whole, 2, row * 4, 3).ContiguousCopy();
    EXPECT_EQ(Slice(parts, 0, row, 1).ContiguousCopy().ToVector<float>(),
              expected.ToVector<float>());
  }
}

Bundle Inputs() {
  return {{keys::kInputIds, RandomIndices({3, 7}, 61, 1)},
          {keys::kLabels, RandomIndices({3, 5}, 61, 2)}};
}

// Rows that are padded and masked equal the rows alone.
TEST(T5Test, PaddedSourcesEqualUnpaddedOnes) {
  const auto model = Build(SmallConfig());
  const Bundle in = Inputs();
  const Tensor plain = model->Run(in, {}).at(keys::kLogits);
  Bundle padded = in;
  padded.set(keys::kInputIds, Pad(in.at(keys::kInputIds), 1, 0, 3, 9.0));
  std::vector<int64_t> mask(30, 1);
  for (int row = 0; row < 3; ++row) std::fill_n(mask.begin() + row * 10 + 7, 3, 0);
  padded.set(keys::kAttentionMask, Tensor::FromVector(mask, {3, 10}));
  ExpectClose(model->Run(padded, {}).at(keys::kLogits), plain, 1e-6, "padded", 1.0);
}

// T5EncoderModel is the encoder of the whole model.
TEST(T5Test, TheEncoderAlone) {
  const auto both = Build(SmallConfig());
  json config = SmallConfig();
  config["architectures"] = {"T5EncoderModel"};
  config["is_encoder_decoder"] = false;
  const auto encoder = Build(config);
  std::map<std::string, Tensor> weights;
  for (const nn::Parameter* p : both->Parameters()) weights[p->name] = p->tensor;
  size_t of_encoder = 0;
  for (const auto& [name, weight] : weights) {
    of_encoder += name == "shared.weight" || name.starts_with("encoder.") ? 1 : 0;
  }
  EXPECT_EQ(encoder->Parameters().size(), of_encoder);
  for (nn::Parameter* p : encoder->Parameters()) {
    ASSERT_EQ(weights.count(p->name), 1u) << p->name;
    CopyInto(p->tensor.Detach(), weights[p->name].Detach());
  }
  EXPECT_EQ(encoder->encoder_decoder(), nullptr);
  EXPECT_FALSE(encoder->Takes(keys::kDecoderInputIds));
  std::vector<int64_t> mask(21, 1);
  mask[5] = mask[6] = 0;
  Bundle in = Inputs();
  in.set(keys::kAttentionMask, Tensor::FromVector(mask, {3, 7}));
  const Bundle whole = both->Run(in, {.all_hidden_states = true});
  const Bundle alone = encoder->Run({{keys::kInputIds, in.at(keys::kInputIds)},
                                     {keys::kAttentionMask, in.at(keys::kAttentionMask)}},
                                    {.all_hidden_states = true});
  const auto floats = [](const Tensor& t) { return t.ContiguousCopy().ToVector<float>(); };
  EXPECT_EQ(floats(alone.at(keys::kLastHiddenState)),
            floats(whole.at(keys::kEncoderLastHiddenState)));
  for (const char* layer : {"hidden_states.0", "hidden_states.1", "hidden_states.2"}) {
    const Tensor* const state = alone.FindNamed(layer);
    const Tensor* const expected = whole.FindNamed(Concat("encoder_", layer));
    ASSERT_TRUE(state != nullptr && expected != nullptr) << layer;
    EXPECT_EQ(floats(*state), floats(*expected)) << layer;
  }
}

// Decoding with cached keys and values gives the logits of the whole text at once.
TEST(T5Test, GreedyDecodingFollowsTheWholeForwardPass) {
  const auto model = Build(SmallConfig());
  const std::vector<std::vector<int64_t>> sources = {{5, 6, 7, 8, 9, 1}, {11, 12, 1}};
  GenerationConfig config;
  config.max_new_tokens = 9;
  config.eos_token_ids = {1};
  const auto results = Generate(*model, sources, config);
  ASSERT_TRUE(results.ok()) << Message(results.status());
  config.decoder_start_token_id = 40;
  const auto others = Generate(*model, sources, config);
  ASSERT_TRUE(others.ok()) << Message(others.status());
  for (size_t row = 0; row < 2 * sources.size(); ++row) {
    const bool other = row >= sources.size();
    const std::vector<int64_t>& source = sources[row % sources.size()];
    const std::vector<int64_t>& got = (*(other ? others : results))[row % sources.size()].ids;
    ASSERT_FALSE(got.empty());
    std::vector<int64_t> text = {other ? 40 : 2};
    for (const int64_t id : got) {
      const Tensor logits =
          model
              ->Run({{keys::kInputIds, Tensor::FromVector(source, {1, std::ssize(source)})},
                     {keys::kDecoderInputIds, Tensor::FromVector(text, {1, std::ssize(text)})}},
                    {})
              .at(keys::kLogits);
      const std::vector<float> last =
          Slice(logits, 1, std::ssize(text) - 1, 1).ContiguousCopy().ToVector<float>();
      EXPECT_EQ(id, std::max_element(last.begin(), last.end()) - last.begin());
      text.push_back(id);
    }
  }
  config.decoder_start_token_id = 61;
  EXPECT_EQ(Message(Generate(*model, sources, config).status()),
            "token id 61 (decoder_start_token_id) is beyond the model's vocabulary of 61");
}

TEST(T5Test, RecomputationHasTheSameBits) {
  const auto run = [](bool recompute) {
    const auto model = Build(SmallConfig());
    model->set_checkpoint_activations(recompute);
    RunOptions options;
    options.context = {.training = true, .seed = 1, .step = 2};
    const Tensor loss = model->Run(Inputs(), options).at(keys::kLoss);
    Backward(loss);
    std::map<std::string, std::vector<float>> grads = {{"loss", loss.ToVector<float>()}};
    for (nn::Parameter* p : model->Parameters()) grads[p->name] = Grad(p->tensor).ToVector<float>();
    return grads;
  };
  EXPECT_TRUE(run(false) == run(true));
}

// As T5Config of transformers 4 and 5.
TEST(T5Test, KeysThatSayTheSame) {
  const auto read = [](json keys) {
    keys["model_type"] = "t5";
    const auto config = T5Config::FromJson(keys);
    EXPECT_TRUE(config.ok()) << Message(config.status());
    return *config;
  };
  EXPECT_EQ(read({{"feed_forward_proj", "gated-gelu"}}).dense_act, "gelu_new");
  EXPECT_EQ(read({{"feed_forward_proj", "gated-gelu"}, {"dense_act_fn", "gelu"}}).dense_act,
            "gelu");
  const T5Config gated = read({{"feed_forward_proj", "relu"}, {"is_gated_act", true}});
  EXPECT_TRUE(gated.gated);
  EXPECT_EQ(gated.dense_act, "relu");
  // attribute_map's names count where a file has both; the decoder's layers follow num_layers.
  const T5Config named = read({{"num_heads", 8},
                               {"num_attention_heads", 4},
                               {"hidden_size", 32},
                               {"head_dim", 16},
                               {"num_hidden_layers", 2}});
  EXPECT_EQ(named.num_heads, 4);
  EXPECT_EQ(named.d_model, 32);
  EXPECT_EQ(named.d_kv, 16);
  EXPECT_EQ(named.num_layers, 2);
  EXPECT_EQ(named.num_decoder_layers, 6);
}

TEST(T5Test, ConfigurationsAreCheckedByName) {
  const auto problem = [](const char* key, const json& value) {
    json config = SmallConfig();
    config[key] = value;
    return Message(BuildModel(config, {}).status());
  };
  EXPECT_NE(problem("feed_forward_proj", "swoosh").find("'feed_forward_proj': activation 'swoosh'"),
            std::string::npos);
  EXPECT_NE(problem("dense_act_fn", "swoosh").find("'dense_act_fn': activation 'swoosh'"),
            std::string::npos);
  EXPECT_NE(problem("is_causal", false).find("'is_causal': false"), std::string::npos);
  EXPECT_NE(problem("d_kv", 0).find("'d_kv'"), std::string::npos);
  EXPECT_NE(problem("relative_attention_num_buckets", 6).find("num_buckets"), std::string::npos);
  EXPECT_NE(problem("decoder_start_token_id", 61).find("decoder_start_token_id"),
            std::string::npos);
  EXPECT_NE(problem("is_encoder_decoder", false).find("is_encoder_decoder"), std::string::npos);
}

TEST(T5Test, PresetsHaveTheirSizes) {
  // transformers' counts of T5ForConditionalGeneration.
  const std::pair<const char*, int64_t> counts[] = {{"t5-small", 60506624},
                                                    {"t5-base", 222903552},
                                                    {"t5-v1_1-small", 76961152},
                                                    {"t5-v1_1-base", 247577856}};
  for (const auto& [name, count] : counts) {
    const auto model = Build(FindPreset(name)->config, {.device = Device::Meta(DeviceType::kCpu)});
    EXPECT_EQ(model->ParameterCount(), count) << name;
  }
}

}  // namespace
}  // namespace tessera::models
