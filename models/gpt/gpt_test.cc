// SPDX-License-Identifier: Apache-2.0
#include "models/gpt/gpt.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "autograd/gradcheck.h"
#include "core/allocator.h"
#include "models/family.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

nlohmann::json SmallConfig() {
  return {{"model_type", "gpt2"}, {"vocab_size", 23}, {"n_positions", 12}, {"n_embd", 10},
          {"n_layer", 2},         {"n_head", 2},      {"n_inner", 14},     {"resid_pdrop", 0.1},
          {"embd_pdrop", 0.1},    {"attn_pdrop", 0.1}};
}

std::unique_ptr<Model> Build(const nlohmann::json& config, nn::BuildContext build = {}) {
  auto model = BuildModel(config, build);
  EXPECT_TRUE(model.ok()) << Message(model.status());
  return *std::move(model);
}

Bundle Inputs(uint64_t seed, int64_t batch = 2, int64_t tokens = 7) {
  return {{keys::kInputIds, RandomIndices({batch, tokens}, 23, seed)},
          {keys::kLabels, RandomIndices({batch, tokens}, 23, seed + 1)}};
}

TEST(GptTest, CountsOfThePresets) {
  // 124M, 355M, 774M, 1558M: the counts of the published models.
  const std::pair<const char*, int64_t> counts[] = {{"gpt2", 124439808},
                                                    {"gpt2-medium", 354823168},
                                                    {"gpt2-large", 774030080},
                                                    {"gpt2-xl", 1557611200}};
  for (const auto& [name, count] : counts) {
    const auto model = Build(FindPreset(name)->config, {.device = Device::Meta()});
    EXPECT_EQ(model->ParameterCount(), count) << name;
  }
}

TEST(GptTest, ParameterNamesAndShapesAreHuggingFaces) {
  const auto model = Build(SmallConfig());
  const auto shape = [&](const char* name) { return model->FindParameter(name)->tensor.shape(); };
  EXPECT_EQ(shape("transformer.wte.weight"), (Shape{23, 10}));
  EXPECT_EQ(shape("transformer.wpe.weight"), (Shape{12, 10}));
  EXPECT_EQ(shape("transformer.h.1.attn.c_attn.weight"), (Shape{10, 30}));
  EXPECT_EQ(shape("transformer.h.1.mlp.c_proj.weight"), (Shape{14, 10}));
  EXPECT_EQ(shape("transformer.ln_f.bias"), (Shape{10}));
  EXPECT_EQ(model->FindParameter("lm_head.weight")->tied_to,
            model->FindParameter("transformer.wte.weight"));
}

TEST(GptTest, GradientsAgainstFiniteDifferences) {
  const auto model = Build(SmallConfig(), {.dtype = DType::kFloat64});
  const Bundle inputs = Inputs(1);
  RunOptions options{
      .context = {.training = true, .seed = 5, .step = 1}};  // training: dropout is on
  for (nn::Parameter* p : model->Parameters()) {
    if (p->tied_to != nullptr) continue;
    const Tensor original = CastCopy(p->tensor, DType::kFloat64);
    // The tied head sees the same elements, through a leaf of its own.
    const GradCheckResult result = GradCheck(
        [&](const std::vector<Tensor>& in) {
          p->tensor = in[0];
          for (nn::Parameter* q : model->Parameters()) {
            if (q->tied_to == p) q->tensor = in[0];
          }
          return std::vector<Tensor>{model->Run(inputs, options).at(keys::kLoss)};
        },
        {original}, {.tolerance = 1e-6, .max_elements = 12});
    EXPECT_TRUE(result.ok) << p->name << ": " << result.message << " (seed " << FreshSeed() << ")";
  }
}

TEST(GptTest, RecomputationKeepsEveryBit) {
  const auto gradients = [](bool recompute) {
    const auto model = Build(SmallConfig());
    model->set_checkpoint_activations(recompute);
    const Bundle out = model->Run(Inputs(1), {.context = {.training = true, .seed = 5, .step = 1}});
    Backward(out.at(keys::kLoss));
    std::vector<std::vector<float>> all = {{static_cast<float>(out.at(keys::kLoss).Item())}};
    for (nn::Parameter* p : model->Parameters()) all.push_back(Grad(p->tensor).ToVector<float>());
    return all;
  };
  EXPECT_EQ(gradients(true), gradients(false));
}

TEST(GptTest, ConsumingTheLogitsKeepsEveryBit) {
  const auto run = [](bool keep) {
    const auto model = Build(SmallConfig());
    const Bundle out = model->Run(
        Inputs(1), {.context = {.training = true, .seed = 5, .step = 1}, .keep_logits = keep});
    EXPECT_EQ(out.has(keys::kLogits), keep);
    Backward(out.at(keys::kLoss));
    return Grad(model->FindParameter("transformer.wte.weight")->tensor).ToVector<float>();
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(GptTest, PaddingOnEitherSideChangesNothing) {
  const auto model = Build(SmallConfig());
  const Tensor ids = RandomIndices({1, 5}, 23, 3);
  const Tensor plain = model->Run({{keys::kInputIds, ids}}, {}).at(keys::kLogits);
  for (const int64_t left : {0, 2}) {
    const int64_t right = 2 - left;
    const Tensor padded = Pad(ids, 1, left, right, 1);
    const Tensor mask = Pad(Full({1, 5}, 1, DType::kInt64), 1, left, right, 0);
    const Tensor positions = Pad(Reshape(Arange(5), {1, 5}), 1, left, right, 0);
    const Tensor logits = model
                              ->Run({{keys::kInputIds, padded},
                                     {keys::kAttentionMask, mask},
                                     {keys::kPositionIds, positions}},
                                    {})
                              .at(keys::kLogits);
    ExpectClose(Slice(logits, 1, left, 5), plain, 1e-6, "padded");
  }
}

TEST(GptTest, CachedDecodingEqualsTheFullPass) {
  const auto model = Build(SmallConfig());
  const NoGrad no_grad;
  const Tensor ids = RandomIndices({2, 6}, 23, 3);
  const std::vector<float> full =
      model->Run({{keys::kInputIds, ids}}, {}).at(keys::kLogits).ToVector<float>();
  nn::KeyValueCache cache(model->num_cache_layers());
  std::vector<float> last;
  for (int64_t t = 0; t < 6; ++t) {
    cache.BeginStep({1, 1});
    const Tensor out =
        model
            ->Run({{keys::kInputIds, Slice(ids, 1, t, 1)},
                   {keys::kPositionIds, Full({2, 1}, static_cast<double>(t), DType::kInt64)}},
                  {.cache = &cache})
            .at(keys::kLogits);
    cache.EndStep();
    last = out.ToVector<float>();
  }
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t v = 0; v < 23; ++v) {
      EXPECT_EQ(last[static_cast<size_t>(b * 23 + v)],
                full[static_cast<size_t>((b * 6 + 5) * 23 + v)]);
    }
  }
}

// The loss some tokens at a time, without the logits: the same but for the order of sums, with the
// head tied to the embedding, whose gradient it shares.
TEST(GptTest, LossByChunksIsTheLoss) {
  const auto run = [](int64_t chunk_tokens) {
    const auto model = Build(SmallConfig());
    const Bundle out = model->Run(Inputs(1, 3, 9), {.context = {.training = true, .step = 1},
                                                    .keep_logits = false,
                                                    .loss_chunk_tokens = chunk_tokens});
    EXPECT_FALSE(out.has(keys::kLogits));
    Backward(out.at(keys::kLoss));
    std::vector<float> values = out.at(keys::kLoss).ToVector<float>();
    for (const nn::Parameter* p : model->Parameters()) {
      const std::vector<float> grad = Grad(p->tensor).ToVector<float>();
      values.insert(values.end(), grad.begin(), grad.end());
    }
    return values;
  };
  const std::vector<float> whole = run(0);
  EXPECT_EQ(run(-1), whole);  // the CPU's way
  const std::vector<float> chunked = run(4);
  ASSERT_EQ(chunked.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(chunked[i], whole[i], 2e-6) << i;
}

TEST(GptTest, AnInputThatNoBlockTakesIsRefusedByName) {
  const TensorKey misspelt{"document_idz", KeyElements::kInt32, "[B, T]", "of this test"};
  Bundle inputs = Inputs(1);
  inputs.set(misspelt, Zeros({2, 7}, DType::kInt32));
  try {
    (void)Build(SmallConfig())->Run(inputs, {});
    FAIL() << "the mask was dropped";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("'document_idz'"), std::string::npos) << what;
    EXPECT_NE(what.find("document_ids"), std::string::npos) << what;
  }
}

TEST(GptTest, DryRunOnMetaCountsTheRealStep) {
  const auto peak = [](Device device) {
    Allocator& allocator = Allocator::For(device);
    const auto model = Build(SmallConfig(), {.device = device});
    Bundle inputs = Inputs(1, 3, 9);
    for (const TensorKey& key : {keys::kInputIds, keys::kLabels}) {
      Tensor t = inputs.at(key);
      if (device.is_meta()) t = Empty(t.shape(), t.dtype(), device);
      inputs.set(key, t);
    }
    const int64_t before = allocator.stats().current_bytes;
    allocator.ResetPeak();
    Backward(model->Run(inputs, {.context = {.training = true, .step = 1}, .keep_logits = false})
                 .at(keys::kLoss));
    return allocator.stats().peak_bytes - before;
  };
  EXPECT_EQ(peak(Device::Meta()), peak(Device::Cpu()));
}

// As GPT2Config of transformers: by its attribute_map, whose names count where a file has both.
TEST(GptTest, NamesOfOtherModels) {
  const auto config = GptConfig::FromJson({{"n_head", 12},
                                           {"num_attention_heads", 3},
                                           {"hidden_size", 24},
                                           {"num_hidden_layers", 5},
                                           {"max_position_embeddings", 7}});
  ASSERT_TRUE(config.ok()) << Message(config.status());
  EXPECT_EQ(config->n_head, 3);
  EXPECT_EQ(config->n_embd, 24);
  EXPECT_EQ(config->n_layer, 5);
  EXPECT_EQ(config->n_positions, 7);
}

TEST(GptTest, RefusesConfigurationsByName) {
  const auto problem = [](const char* key, nlohmann::json value) {
    nlohmann::json config = SmallConfig();
    config[key] = std::move(value);
    return Message(BuildModel(config, {.device = Device::Meta()}).status());
  };
  EXPECT_NE(problem("n_head", 3).find("n_embd"), std::string::npos);
  EXPECT_NE(problem("n_layer", "two").find("'n_layer' must be an integer"), std::string::npos);
  EXPECT_NE(problem("add_cross_attention", true).find("add_cross_attention"), std::string::npos);
  EXPECT_NE(problem("is_causal", false).find("'is_causal': false"), std::string::npos);
  EXPECT_NE(
      problem("activation_function", "gelu9").find("'activation_function': activation 'gelu9'"),
      std::string::npos);
  EXPECT_NE(problem("hidden_size", -4).find("'hidden_size'"), std::string::npos);
  EXPECT_NE(problem("vocab_size", -4).find("vocab_size"), std::string::npos);
  EXPECT_NE(problem("model_type", "gpt9").find("gpt9"), std::string::npos);
}

}  // namespace
}  // namespace tessera::models
