// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/convert_gguf.h"

#include <cmath>
#include <cstring>

#include "models/hub/convert_model.h"
#include "models/hub/gguf/gguf_config.h"
#include "models/hub/gguf/gguf_test_models.h"
#include "nlohmann/json.hpp"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

using nlohmann::json;

class RoundTripTest : public GgufTest, public testing::WithParamInterface<int> {};

TEST_P(RoundTripTest, GivesTheSameBytes) {
  const json config = GetParam() % 3 == 0   ? SmallGpt()
                      : GetParam() % 3 == 1 ? SmallLlama()
                                            : SmallQwen();
  const std::string folder = Saved("m", config);
  if (GetParam() >= 6) {
    QuantizeFolder(folder, QuantType::kQ4_0);
  } else if (GetParam() >= 3) {
    QuantizeFolder(folder, QuantType::kQ8_0);
  }
  ExpectRoundTrip(folder);
  // What the configuration says is the same to the model.
  const json back = *ReadJsonFile(Path("back/config.json"));
  for (const auto& [key, value] : config.items()) EXPECT_EQ(back[key], value) << key;
  EXPECT_EQ(back.contains("quantization_config"), GetParam() >= 3);
  if (GetParam() < 3) {
    const auto model = LoadModel(Path("back"), {.require_weights = true});
    EXPECT_TRUE(model.ok()) << Message(model.status());
  }
  const GgufFile file = Opened(Path("a.gguf"));
  int64_t type = 0;
  ASSERT_TRUE(file.Read("general.file_type", &type).ok());
  EXPECT_EQ(type, GetParam() >= 6 ? 2 : GetParam() >= 3 ? 7 : 1);
  EXPECT_EQ(file.Find("output.weight") == nullptr, config.value("tie_word_embeddings", true));
}

INSTANTIATE_TEST_SUITE_P(Families, RoundTripTest, testing::Range(0, 9));

std::vector<float> Values(const GgufFile& file, const std::string& name) {
  const GgufTensor& tensor = **file.Get(name);
  std::vector<float> values;
  const std::byte* const bytes = file.BytesOf(tensor);
  const bool half = tensor.type.number == kGgufF16.number;
  for (int64_t at = 0; at < tensor.nbytes; at += half ? 2 : 4) {
    Float16 narrow;
    float wide = 0;
    if (half) {
      std::memcpy(&narrow.bits, bytes + at, 2);
      wide = narrow;
    } else {
      std::memcpy(&wide, bytes + at, 4);
    }
    values.push_back(wide);
  }
  return values;
}

TEST_F(GgufTest, LayoutsAreLlamaCpps) {
  const std::string gpt = Saved("gpt", SmallGpt());
  ASSERT_TRUE(ConvertToGguf(gpt, Path("gpt.gguf")).ok());
  const GgufFile file = Opened(Path("gpt.gguf"));
  const auto weights = WeightFiles::Open(gpt);
  const Tensor c_attn = *weights->Read("transformer.h.1.attn.c_attn.weight");  // [64, 192]
  EXPECT_EQ((*file.Get("blk.1.attn_qkv.weight"))->shape, (std::vector<int64_t>{192, 64}));
  EXPECT_EQ((*file.Get("blk.1.attn_qkv.weight"))->type.name, "F16");
  EXPECT_EQ(Values(file, "blk.1.attn_qkv.weight"),
            Transpose(c_attn, 0, 1).ContiguousCopy().ToVector<float>());
  for (const char* wide : {"position_embd.weight", "output_norm.bias", "blk.0.ffn_up.bias"}) {
    EXPECT_EQ((*file.Get(wide))->type.name, "F32") << wide;
  }
  EXPECT_EQ((*file.Get("token_embd.weight"))->type.name, "F16");

  const std::string llama = Saved("llama", SmallLlama());
  ASSERT_TRUE(ConvertToGguf(llama, Path("llama.gguf")).ok());
  const std::string qwen = Saved("qwen", SmallQwen());
  ASSERT_TRUE(ConvertToGguf(qwen, Path("qwen.gguf")).ok());
  const GgufFile rotated = Opened(Path("llama.gguf")), plain = Opened(Path("qwen.gguf"));
  const auto llama_weights = WeightFiles::Open(llama), qwen_weights = WeightFiles::Open(qwen);
  for (const auto& [theirs, ours, heads] :
       {std::tuple("attn_q", "q_proj", 4), {"attn_k", "k_proj", 2}}) {
    const std::string entry = Concat("model.layers.0.self_attn.", ours, ".weight");
    const std::string name = Concat("blk.0.", theirs, ".weight");
    const auto before = llama_weights->Read(entry)->ToVector<float>();
    const auto after = Values(rotated, name);
    ASSERT_EQ(before.size(), after.size());
    // [head, half, pair] becomes [head, pair, half].
    for (int h = 0; h < heads; ++h) {
      for (int half = 0; half < 2; ++half) {
        for (int pair = 0; pair < 8; ++pair) {
          const size_t from = static_cast<size_t>(h * 16 + half * 8 + pair) * 64;
          const size_t to = static_cast<size_t>(h * 16 + pair * 2 + half) * 64;
          EXPECT_EQ(before[from], after[to]);
          EXPECT_EQ(before[from + 63], after[to + 63]);
        }
      }
    }
    EXPECT_EQ(qwen_weights->Read(entry)->ToVector<float>(), Values(plain, name));
  }
  EXPECT_EQ(llama_weights->Read("model.layers.0.self_attn.v_proj.weight")->ToVector<float>(),
            Values(rotated, "blk.0.attn_v.weight"));
}

TEST_F(GgufTest, BlocksKeepTheirBytes) {
  const std::string folder = Saved("m", SmallGpt());
  QuantizeFolder(folder, QuantType::kQ4_0);
  ASSERT_TRUE(ConvertToGguf(folder, Path("m.gguf")).ok());
  const GgufFile file = Opened(Path("m.gguf"));
  const Tensor blocks = *WeightFiles::Open(folder)->Read("transformer.h.0.attn.c_attn.weight.q4_0");
  const GgufTensor& tensor = **file.Get("blk.0.attn_qkv.weight");
  EXPECT_EQ(tensor.shape, (std::vector<int64_t>{192, 64}));
  ASSERT_EQ(tensor.nbytes, blocks.nbytes());
  EXPECT_EQ(
      std::memcmp(file.BytesOf(tensor), blocks.raw_data(), static_cast<size_t>(blocks.nbytes())),
      0);
}

TEST_F(GgufTest, WiderNumbersBecomeFloat16OrAreNamed) {
  const std::string folder = Saved("m", SmallLlama());
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  Rewrite(folder, [&](Tensors& tensors) {
    tensors[name] = CastCopy(tensors[name], DType::kFloat32);
    Tensor& other = tensors["model.layers.1.mlp.up_proj.weight"];
    other = CastCopy(other, DType::kBFloat16);
  });
  ExpectRoundTrip(folder);
  Rewrite(folder, [&](Tensors& tensors) { tensors[name].data<float>()[5] = 70000; });
  EXPECT_EQ(
      Refusal(ConvertToGguf(folder, Path("c.gguf"))),
      folder + "/model.safetensors: tensor '" + name + "' has numbers that are beyond float16");
  EXPECT_FALSE(PathExists(Path("c.gguf")));
}

TEST_F(GgufTest, PositionsAndWindows) {
  json config = SmallLlama();
  config["rope_theta"] = 500000.0;
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 64}};
  ExpectRoundTrip(Saved("llama3", config));
  EXPECT_EQ((*ReadJsonFile(Path("back/config.json")))["rope_scaling"], config["rope_scaling"]);
  const std::vector<float> factors = Values(Opened(Path("a.gguf")), "rope_freqs.weight");
  ASSERT_EQ(factors.size(), 8u);
  // Wavelengths: 6.3 (below 64 / 4), 32.40 (a share of 0.3251 is kept), 167 and more (above 64).
  EXPECT_EQ(factors[0], 1);
  EXPECT_NEAR(factors[1], 1 / ((1 - 0.32508) / 8 + 0.32508), 1e-3);
  EXPECT_EQ(factors[2], 8);
  EXPECT_EQ(factors[7], 8);

  // Other factors stand for themselves.
  std::filesystem::remove_all(Path("back"));
  const json list = {1.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0};
  config["rope_scaling"] = {{"rope_type", "longrope"}, {"factor", 1.0},
                            {"attention_factor", 1.0}, {"original_max_position_embeddings", 64},
                            {"short_factor", list},    {"long_factor", list}};
  ExpectRoundTrip(Saved("factors", config));
  EXPECT_EQ((*ReadJsonFile(Path("back/config.json")))["rope_scaling"], config["rope_scaling"]);
  EXPECT_EQ(Values(Opened(Path("a.gguf")), "rope_freqs.weight"), list.get<std::vector<float>>());

  std::filesystem::remove_all(Path("back"));
  json yarn = SmallQwen();
  yarn["rope_scaling"] = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  ExpectRoundTrip(Saved("yarn", yarn));
  EXPECT_EQ((*ReadJsonFile(Path("back/config.json")))["rope_scaling"], yarn["rope_scaling"]);

  std::filesystem::remove_all(Path("back"));
  yarn["rope_scaling"]["beta_fast"] = 24.0;
  yarn["rope_scaling"]["beta_slow"] = 2.0;
  yarn["rope_scaling"]["attention_factor"] = 1.25;
  ExpectRoundTrip(Saved("betas", yarn));
  EXPECT_EQ((*ReadJsonFile(Path("back/config.json")))["rope_scaling"], yarn["rope_scaling"]);

  std::filesystem::remove_all(Path("back"));
  ExpectRoundTrip(Saved("qwen3", SmallQwen3()));
  EXPECT_EQ(BuildModel(*ReadJsonFile(Path("back/config.json")), {})->get()->ParameterCount(),
            BuildModel(SmallQwen3(), {})->get()->ParameterCount());

  std::filesystem::remove_all(Path("back"));
  json mistral = SmallLlama();
  mistral["model_type"] = "mistral";
  mistral["sliding_window"] = 16;
  ExpectRoundTrip(Saved("mistral", mistral));
  EXPECT_EQ((*ReadJsonFile(Path("back/config.json")))["sliding_window"], 16);

  std::filesystem::remove_all(Path("back"));
  json biased = SmallLlama();
  biased["attention_bias"] = biased["mlp_bias"] = true;
  biased["head_dim"] = 32;
  ExpectRoundTrip(Saved("biased", biased));
}

// Keys as llama.cpp reads them.
TEST_F(GgufTest, ScalingOfPositions) {
  ASSERT_TRUE(ConvertToGguf(Saved("m", SmallLlama()), Path("m.gguf")).ok());
  const GgufFile file = Opened(Path("m.gguf"));
  const auto config = [&](const GgufMetadata& keys) {
    GgufMetadata metadata = file.metadata();
    for (const auto& [key, value] : keys) metadata.emplace_back("llama.rope." + key, value);
    return ConfigOfGguf(Opened(WithMetadata(file, metadata, "x.gguf")));
  };
  const auto scaling = [&](const GgufMetadata& keys) {
    const auto read = config(keys);
    EXPECT_TRUE(read.ok()) << Message(read.status());
    return read.ok() ? read->value("rope_scaling", json()) : json();
  };
  const std::string yarn = "yarn", linear = "linear", none = "none";
  const json by_four = {{"rope_type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(scaling({}), json());
  EXPECT_EQ(scaling({{"scale_linear", 4.0f}}), by_four);
  EXPECT_EQ(scaling({{"scaling.factor", 4.0f}}), by_four);
  EXPECT_EQ(scaling({{"scale_linear", 2.0f}, {"scaling.factor", 4.0f}}), by_four);
  EXPECT_EQ(scaling({{"scaling.type", linear}, {"scaling.factor", 4.0f}}), by_four);
  EXPECT_EQ(scaling({{"scaling.type", none}, {"scaling.factor", 4.0f}}), json());
  EXPECT_EQ(scaling({{"scaling.type", linear}, {"scaling.factor", 0.0f}}), json());
  // Without an original length it is the model's.
  EXPECT_EQ(scaling({{"scaling.type", yarn}, {"scaling.factor", 4.0f}}),
            (json{{"rope_type", "yarn"}, {"factor", 4.0}}));
  const json whole = scaling({{"scaling.type", yarn},
                              {"scaling.factor", 4.0f},
                              {"scaling.original_context_length", uint32_t{16}},
                              {"scaling.attn_factor", 2.0f},
                              {"scaling.yarn_attn_factor", 0.5f},
                              {"scaling.yarn_beta_slow", 2.0f},
                              {"scaling.yarn_ext_factor", -1.0f}});
  EXPECT_EQ(whole, (json{{"rope_type", "yarn"},
                         {"factor", 4.0},
                         {"beta_slow", 2.0},
                         {"original_max_position_embeddings", 16}}));
  const json attention =
      scaling({{"scaling.type", yarn}, {"scaling.factor", 4.0f}, {"scaling.attn_factor", 2.0f}});
  EXPECT_NEAR(attention["attention_factor"].get<double>(), 2 * (0.1 * std::log(4.0) + 1), 1e-6);
  EXPECT_TRUE(Refusal(config({{"scaling.type", std::string("longrope")}}).status())
                  .ends_with(": key 'llama.rope.scaling.type' is not none, linear or yarn"));
  EXPECT_TRUE(Refusal(config({{"scaling.attn_factor", 2.0f}}).status())
                  .ends_with("'llama.rope.scaling.attn_factor' is not 1, as it must be without "
                             "YaRN"));
  EXPECT_NE(Refusal(config({{"scaling.type", yarn}, {"scaling.yarn_ext_factor", 0.5f}}).status())
                .find("yarn_ext_factor' is not 1"),
            std::string::npos);
}

// As llama.cpp reads them: one for all layers, or one for each.
TEST_F(GgufTest, NumbersOfLayers) {
  ASSERT_TRUE(ConvertToGguf(Saved("m", SmallLlama()), Path("m.gguf")).ok());
  const GgufFile file = Opened(Path("m.gguf"));
  const auto config = [&](const std::string& key, const std::vector<int32_t>& numbers) {
    GgufMetadata metadata = file.metadata();
    std::erase_if(metadata, [&](const auto& v) { return v.first == key; });
    metadata.emplace_back(key, GgufArray(numbers));
    return ConfigOfGguf(Opened(WithMetadata(file, metadata, "x.gguf")));
  };
  const auto same = config("llama.attention.head_count_kv", {2, 2});
  ASSERT_TRUE(same.ok()) << Message(same.status());
  EXPECT_EQ((*same)["num_key_value_heads"], 2);
  EXPECT_TRUE(config("llama.feed_forward_length", {96, 96}).ok());
  EXPECT_EQ(Refusal(config("llama.attention.head_count_kv", {2, 1}).status()),
            Path("x.gguf") +
                ": key 'llama.attention.head_count_kv' differs between layers, which "
                "is not supported");
}

// llama.cpp multiplies by W + alpha / rank B A: that is the merged model's matrix, in every layer's
// own rank, scale and order of rows.
class AdapterTest : public GgufTest, public testing::WithParamInterface<double> {};

TEST_P(AdapterTest, IsTheFilesOwn) {
  const std::string base = Saved("base", SmallLlama());
  Rewrite(base, [](Tensors& tensors) {
    for (auto& [name, t] : tensors) t = CastCopy(t, DType::kFloat32);
  });
  const std::string adapter = Path("adapter");
  std::filesystem::create_directories(adapter);
  ASSERT_TRUE(WriteFileAtomically(adapter + "/adapter_config.json",
                                  json{{"peft_type", "LORA"},
                                       {"r", 4},
                                       {"lora_alpha", GetParam()},
                                       {"target_modules", {"q_proj", "k_proj", "up_proj"}},
                                       {"rank_pattern", {{"up_proj", 3}}},
                                       {"alpha_pattern", {{"k_proj", 10}}}}
                                      .dump())
                  .ok());
  Tensors matrices;
  for (int layer = 0; layer < 2; ++layer) {
    for (const auto& [name, rank, out] : {std::tuple("self_attn.q_proj", 4, 64),
                                          {"self_attn.k_proj", 4, 32},
                                          {"mlp.up_proj", 3, 96}}) {
      const std::string begin = Concat("base_model.model.model.layers.", layer, ".", name);
      const auto seed = static_cast<uint64_t>(100 * layer + out);
      matrices[begin + ".lora_A.weight"] =
          CastCopy(RandomTensor({rank, 64}, seed), DType::kFloat32);
      matrices[begin + ".lora_B.weight"] =
          CastCopy(RandomTensor({out, rank}, seed + 1), DType::kFloat32);
    }
  }
  WriteTensors(matrices, adapter + "/adapter_model.safetensors");

  const Status status = ConvertAdapterToGguf(adapter, base, Path("lora.gguf"));
  ASSERT_TRUE(status.ok()) << Message(status);
  ASSERT_TRUE(ConvertModel(base, Path("merged"), {.adapter = adapter}).ok());
  ASSERT_TRUE(ConvertToGguf(base, Path("base.gguf")).ok());
  ASSERT_TRUE(ConvertToGguf(Path("merged"), Path("merged.gguf")).ok());
  const GgufFile lora = Opened(Path("lora.gguf")), plain = Opened(Path("base.gguf")),
                 merged = Opened(Path("merged.gguf"));
  double alpha = 0;
  ASSERT_TRUE(lora.Read("adapter.lora.alpha", &alpha).ok());
  EXPECT_NE(alpha, 0) << "llama.cpp takes 0 for none";
  EXPECT_EQ(lora.tensors().size(), matrices.size());
  for (const GgufTensor& a : lora.tensors()) {
    if (!a.name.ends_with(".lora_a")) continue;
    const std::string name = a.name.substr(0, a.name.size() - std::string(".lora_a").size());
    const std::vector<float> as = Values(lora, a.name), bs = Values(lora, name + ".lora_b"),
                             before = Values(plain, name), after = Values(merged, name);
    const auto rank = static_cast<size_t>(a.shape[0]), columns = static_cast<size_t>(a.shape[1]);
    ASSERT_EQ(before.size(), bs.size() / rank * columns) << name;
    for (size_t i = 0; i < before.size(); ++i) {
      double sum = 0;
      for (size_t k = 0; k < rank; ++k) {
        sum += double{bs[i / columns * rank + k]} * as[k * columns + i % columns];
      }
      // Matrices are float16 in the files.
      EXPECT_NEAR(after[i], before[i] + alpha / static_cast<double>(rank) * sum, 0.02) << name;
    }
  }
  // Over half precision, a sum in float32 is not rounded to half.
  ASSERT_TRUE(ConvertModel(base, Path("half"), {.dtype = DType::kFloat16}).ok());
  ASSERT_TRUE(
      ConvertModel(Path("half"), Path("wide"), {.dtype = DType::kFloat32, .adapter = adapter})
          .ok());
  const std::string up = "model.layers.0.mlp.up_proj";
  const auto weight = [&](const std::string& folder) {
    const auto files = WeightFiles::Open(Path(folder));
    return files->Read(up + ".weight")->ToVector<float>();
  };
  const std::vector<float> half = weight("half"), wide = weight("wide");
  const std::vector<float> as =
      matrices["base_model.model." + up + ".lora_A.weight"].ToVector<float>();
  const std::vector<float> bs =
      matrices["base_model.model." + up + ".lora_B.weight"].ToVector<float>();
  for (size_t i = 0; i < half.size(); ++i) {
    double sum = half[i];
    for (size_t k = 0; k < 3; ++k) {
      sum += GetParam() / 3 * double{bs[i / 64 * 3 + k]} * as[k * 64 + i % 64];
    }
    EXPECT_NEAR(wide[i], sum, 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Alphas, AdapterTest, testing::Values(6.0, 0.0));

// llama.cpp looks rows of the first matrix up, and multiplies by the second.
TEST_F(GgufTest, AnAdapterOfTheTokenTable) {
  const std::string base = Saved("base", SmallLlama());
  const auto table = LoadModel(base);
  ASSERT_TRUE(table.ok());
  const Shape shape = (*table)->FindParameter("model.embed_tokens.weight")->tensor.shape();
  const std::string adapter = Path("adapter");
  std::filesystem::create_directories(adapter);
  Write("adapter/adapter_config.json",
        R"({"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["embed_tokens"]})");
  const Tensor a = CastCopy(RandomTensor({2, shape[0]}, 1), DType::kFloat32);
  const Tensor b = CastCopy(RandomTensor({shape[1], 2}, 2), DType::kFloat32);
  const std::string begin = "base_model.model.model.embed_tokens.";
  Tensors tensors = {{begin + "lora_embedding_A", a}, {begin + "lora_embedding_B", b}};
  WriteTensors(tensors, adapter + "/adapter_model.safetensors");
  const Status status = ConvertAdapterToGguf(adapter, base, Path("lora.gguf"));
  ASSERT_TRUE(status.ok()) << Message(status);
  const GgufFile lora = Opened(Path("lora.gguf"));
  EXPECT_EQ(Values(lora, "token_embd.weight.lora_a"),
            Transpose(a, 0, 1).ContiguousCopy().ToVector<float>());
  EXPECT_EQ(Values(lora, "token_embd.weight.lora_b"), b.ToVector<float>());
  // Another table below it.
  tensors[begin + "base_layer.weight"] = Full(shape, 1.0);
  WriteTensors(tensors, adapter + "/adapter_model.safetensors");
  EXPECT_EQ(Refusal(ConvertAdapterToGguf(adapter, base, Path("x.gguf"))),
            adapter +
                ": 'base_model.model.model.embed_tokens.base_layer.weight' is not the "
                "'model.embed_tokens.weight' of " +
                base + ": llama.cpp's adapters replace nothing");
}

TEST_F(GgufTest, AnAdapterOfATiedHeadIsRefused) {
  const std::string base = Saved("base", SmallQwen());
  const std::string adapter = Path("adapter");
  std::filesystem::create_directories(adapter);
  Write("adapter/adapter_config.json",
        R"({"peft_type": "LORA", "r": 2, "target_modules": ["lm_head"]})");
  WriteTensors({{"base_model.model.lm_head.lora_A.weight", Full({2, 64}, 1.0)},
                {"base_model.model.lm_head.lora_B.weight", Full({300, 2}, 1.0)}},
               adapter + "/adapter_model.safetensors");
  EXPECT_EQ(Refusal(ConvertAdapterToGguf(adapter, base, Path("x.gguf"))),
            adapter +
                ": changes 'lm_head', whose weight is that of 'model.embed_tokens.weight': a "
                "GGUF file has no tensor of its own for it");
  EXPECT_FALSE(PathExists(Path("x.gguf")));
}

// Norms are a file's less 1; layers with and without a window have positions of their own.
TEST_F(GgufTest, Gemma3) {
  ExpectRoundTrip(Saved("m", SmallGemma3()));
  const json back = *ReadJsonFile(Path("back/config.json"));
  for (const char* key : {"query_pre_attn_scalar", "sliding_window", "sliding_window_pattern",
                          "rope_local_base_freq", "rope_theta", "hidden_activation", "head_dim"}) {
    EXPECT_EQ(back[key], SmallGemma3()[key]) << key;
  }
  const GgufFile file = Opened(Path("a.gguf"));
  const Tensor norm =
      *WeightFiles::Open(Path("m"))->Read("model.layers.1.pre_feedforward_layernorm.weight");
  const std::vector<float> theirs = Values(file, "blk.1.ffn_norm.weight");
  for (int64_t i = 0; i < norm.numel(); ++i) {
    EXPECT_EQ(theirs[static_cast<size_t>(i)], static_cast<float>(norm.data<Float16>()[i]) + 1.0f);
  }
  const auto refusal = [&](json keys) {
    json config = SmallGemma3();
    config.update(keys);
    const std::string folder = Saved("other", config);
    return Refusal(ConvertToGguf(folder, Path("x.gguf")));
  };
  EXPECT_NE(refusal({{"query_pre_attn_scalar", 16}}).find("'query_pre_attn_scalar'"),
            std::string::npos);
  EXPECT_NE(refusal({{"hidden_activation", "gelu"}}).find("'hidden_activation': gelu"),
            std::string::npos);
  EXPECT_NE(
      refusal({{"layer_types",
                {"sliding_attention", "full_attention", "full_attention", "sliding_attention"}}})
          .find("'layer_types'"),
      std::string::npos);
}

TEST_F(GgufTest, WhatCannotBeSaidIsRefused) {
  json gelu = SmallGpt();
  gelu["activation_function"] = "relu";
  const std::string gpt = Saved("gpt", gelu);
  EXPECT_EQ(Refusal(ConvertToGguf(gpt, Path("x.gguf"))),
            gpt + "/config.json: 'activation_function': relu cannot be said in a GGUF file");
  json dynamic = SmallLlama();
  dynamic["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 2.0}};
  EXPECT_NE(Refusal(ConvertToGguf(Saved("dynamic", dynamic), Path("x.gguf"))).find("'rope_scal"),
            std::string::npos);

  const std::string folder = Saved("m", SmallLlama());
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  const std::string path = folder + "/model.safetensors";
  Tensors original;
  Rewrite(folder, [&](Tensors& tensors) {
    original = tensors;
    tensors[name + ".int8"] = Quantize(tensors[name], QuantType::kInt8)->bytes;
    tensors.erase(name);
  });
  EXPECT_EQ(Refusal(ConvertToGguf(folder, Path("x.gguf"))),
            path + ": tensor '" + name + ".int8': GGUF files have no int8");
  Rewrite(folder, [&](Tensors& tensors) {
    tensors = original;
    tensors[name + ".q8_0"] = Zeros({96, 66}, DType::kUInt8);
    tensors.erase(name);
  });
  EXPECT_EQ(Refusal(ConvertToGguf(folder, Path("x.gguf"))),
            path + ": tensor '" + name +
                ".q8_0' has shape [96, 66]; the configuration asks for [96, 68]");
  Rewrite(folder, [&](Tensors& tensors) {
    tensors = original;
    tensors.erase(name);
  });
  EXPECT_EQ(Refusal(ConvertToGguf(folder, Path("x.gguf"))),
            folder + ": 1 tensor is missing: '" + name + "'");
  Rewrite(folder, [&](Tensors& tensors) {
    tensors = original;
    tensors["more"] = Zeros({2});
  });
  EXPECT_EQ(Refusal(ConvertToGguf(folder, Path("x.gguf"))), path + ": unknown tensor 'more'");
}

TEST_F(GgufTest, FilesThatDoNotFitAreRefused) {
  const std::string folder = Saved("m", SmallLlama());
  ASSERT_TRUE(ConvertToGguf(folder, Path("m.gguf")).ok());
  const GgufFile whole = Opened(Path("m.gguf"));
  const auto refusal = [&](const std::function<void(GgufMetadata&, std::vector<GgufTensor>&)>& f) {
    GgufMetadata metadata = whole.metadata();
    std::vector<GgufTensor> tensors = whole.tensors();
    f(metadata, tensors);
    auto writer = GgufWriter::Create(Path("x.gguf"), metadata, tensors);
    EXPECT_TRUE(writer.ok()) << Message(writer.status());
    for (const GgufTensor& tensor : tensors) {
      int64_t elements = 1;
      for (const int64_t size : tensor.shape) elements *= size;
      const std::string zeros(
          static_cast<size_t>(elements / tensor.type.block_size * tensor.type.block_bytes), '\0');
      EXPECT_TRUE(writer->Append(zeros.data(), std::ssize(zeros)).ok());
    }
    EXPECT_TRUE(writer->Commit().ok());
    const std::string message = Refusal(ConvertFromGguf(Path("x.gguf"), Path("out")));
    EXPECT_FALSE(PathExists(Path("out")));
    EXPECT_TRUE(message.starts_with(Path("x.gguf") + ": ")) << message;
    return message.substr(Path("x.gguf: ").size());
  };
  const auto set = [](GgufMetadata& metadata, std::string_view key, const GgufValue& value) {
    for (auto& [k, v] : metadata) {
      if (k == key) v = value;
    }
  };
  EXPECT_EQ(
      refusal([&](auto& m, auto&) { set(m, "general.architecture", std::string("bert")); }),
      "architecture 'bert' is not supported; gpt2, llama, qwen2, qwen3, gemma2, gemma3, olmo2, "
      "smollm3, phi3, chatglm, glm4, qwen2moe, qwen3moe and glm4moe are");
  EXPECT_EQ(refusal([&](auto& m, auto&) {
              std::erase_if(m, [](auto& v) { return v.first == "llama.block_count"; });
            }),
            "key 'llama.block_count' is missing");
  EXPECT_EQ(refusal([&](auto& m, auto&) { set(m, "llama.rope.dimension_count", uint32_t{8}); }),
            "key 'llama.rope.dimension_count' is not the length of keys");
  EXPECT_EQ(refusal([&](auto& m, auto&) { m.emplace_back("split.count", uint16_t{2}); }),
            "is one of 2 parts, whose names end with -00001-of-00002.gguf and so on");
  EXPECT_EQ(refusal([&](auto& m, auto&) { m.emplace_back("llama.expert_count", uint32_t{8}); }),
            "key 'llama.expert_used_count' is missing");
  EXPECT_EQ(refusal([&](auto& m, auto&) { set(m, "tokenizer.ggml.model", std::string("bert")); }),
            "key 'tokenizer.ggml.model': 'bert' is not supported; gpt2 and llama are");
  EXPECT_EQ(refusal([&](auto&, auto& t) {
              t.push_back({"extra", kGgufF32, {1}});
            }),
            "tensor 'extra' has no place in a model of llama");
  const auto find = [](auto& tensors, std::string_view name) -> GgufTensor& {
    return *std::find_if(tensors.begin(), tensors.end(), [&](auto& t) { return t.name == name; });
  };
  EXPECT_EQ(refusal([&](auto&, auto& t) {
              find(t, "blk.0.ffn_up.weight").shape = {64, 96};
            }),
            "tensor 'blk.0.ffn_up.weight' has shape [64, 96]; the model asks for [96, 64]");
  EXPECT_EQ(
      refusal([&](auto&, auto& t) { find(t, "blk.0.ffn_up.weight").type = *FindGgufType(9); }),
      "tensor 'blk.0.ffn_up.weight' is Q8_1; " + ReadGgufTypes() + " are supported");
  EXPECT_EQ(
      refusal([&](auto&, auto& t) { find(t, "blk.0.attn_norm.weight").type = *FindGgufType(8); }),
      "tensor 'blk.0.attn_norm.weight' is quantised, and no matrix");
  EXPECT_NE(refusal([&](auto&, auto& t) { t.erase(t.begin() + 3); }).find("no tensor 'blk"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::models
