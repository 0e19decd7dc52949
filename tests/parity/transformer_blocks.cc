// SPDX-License-Identifier: Apache-2.0
// Stacks of nn::TransformerBlock by the configurations of transformers: for
// tests/parity/transformer_blocks.py, which computes the same with transformers' models.
//
//   transformer_blocks CASES.json IN.safetensors OUT.safetensors
//
// CASES maps a case's name to its config.json. IN has `NAME/x` [B, T, C], `NAME/dy`, `NAME/mask`
// [B, T] int64 where some tokens do not count, and `NAME/p/...`, the parameters; OUT gets `NAME/y`
// (behind the last norm), `NAME/dx` and `NAME/g/...`.
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "base/file.h"
#include "nn/activation.h"
#include "nn/transformer_block.h"
#include "ops/elementwise/elementwise.h"
#include "tests/parity/tensor_file.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

// What differs between families beside what their configurations say.
struct Stack {
  std::string blocks;  // what the blocks' names begin with
  std::string last_norm;
};

nn::RotaryScaling ScalingOf(const Json& json) {
  using S = nn::RotaryScaling;
  if (!json.contains("rope_scaling") || json["rope_scaling"].is_null()) return {};
  const Json& scaling = json["rope_scaling"];
  const std::map<std::string, S::Kind> kinds = {
      {"default", S::kNone},  {"linear", S::kLinear}, {"dynamic", S::kDynamic},
      {"llama3", S::kLlama3}, {"yarn", S::kYarn},     {"longrope", S::kLongRope}};
  S result;
  result.kind = kinds.at(scaling.at("rope_type").get<std::string>());
  result.factor = scaling.value("factor", 1.0);
  result.original_positions = scaling.value("original_max_position_embeddings",
                                            json.at("max_position_embeddings").get<int64_t>());
  result.low_frequency_factor = scaling.value("low_freq_factor", result.low_frequency_factor);
  result.high_frequency_factor = scaling.value("high_freq_factor", result.high_frequency_factor);
  result.beta_fast = scaling.value("beta_fast", result.beta_fast);
  result.beta_slow = scaling.value("beta_slow", result.beta_slow);
  result.short_factors = scaling.value("short_factor", result.short_factors);
  result.long_factors = scaling.value("long_factor", result.long_factors);
  return result;
}

// Llama, Mistral, Qwen2 and Qwen3.
nn::TransformerBlockConfig LlamaConfig(const Json& json, size_t layer) {
  const std::string type = json.at("model_type");
  const bool biased = type == "qwen2" || json.value("attention_bias", false);
  const auto number = [&](const char* key) {
    return json.contains(key) && json[key].is_number() ? json[key].get<int64_t>() : 0;
  };
  const bool slides =
      json.contains("layer_types") ? json["layer_types"][layer] == "sliding_attention" : true;
  nn::TransformerBlockConfig config;
  config.attention = {
      .hidden_size = number("hidden_size"),
      .num_heads = number("num_attention_heads"),
      .num_key_value_heads = number("num_key_value_heads"),
      .head_dim = number("head_dim"),
      .window = slides ? number("sliding_window") : 0,
      .qkv_bias = biased,
      .output_bias = biased && type != "qwen2",
      .qkv_names = {"q_proj", "k_proj", "v_proj"},
      .output_name = "o_proj",
      .rotary = nn::RotaryConfig{.base = json.at("rope_theta"), .scaling = ScalingOf(json)}};
  config.mlp = {.hidden_size = number("hidden_size"),
                .inner_size = number("intermediate_size"),
                .activation = *nn::FindActivation(json.at("hidden_act").get<std::string>()),
                .bias = json.value("mlp_bias", false),
                .gate_name = "gate_proj",
                .up_name = "up_proj",
                .down_name = "down_proj"};
  config.norm = nn::NormKind::kRmsNorm;
  config.norm_eps = json.at("rms_norm_eps");
  config.attention_norm_name = "input_layernorm";
  config.mlp_norm_name = "post_attention_layernorm";
  config.attention_name = "self_attn";
  if (type == "qwen3") {
    config.attention.head_norm_names = {"q_norm", "k_norm"};
    config.attention.head_norm_eps = config.norm_eps;
  }
  return config;
}

nn::TransformerBlockConfig NeoXConfig(const Json& json) {
  nn::TransformerBlockConfig config;
  config.attention = {.hidden_size = json.at("hidden_size"),
                      .num_heads = json.at("num_attention_heads"),
                      .qkv_bias = json.value("attention_bias", true),
                      .output_bias = json.value("attention_bias", true),
                      .qkv_name = "query_key_value",
                      .qkv_by_head = true,
                      .output_name = "dense",
                      .rotary = nn::RotaryConfig{.base = json.at("rotary_emb_base"),
                                                 .share = json.at("rotary_pct")}};
  config.mlp = {.hidden_size = json.at("hidden_size"),
                .inner_size = json.at("intermediate_size"),
                .activation = *nn::FindActivation(json.at("hidden_act").get<std::string>()),
                .up_name = "dense_h_to_4h",
                .down_name = "dense_4h_to_h"};
  config.norm_eps = json.at("layer_norm_eps");
  config.parallel = json.at("use_parallel_residual");
  config.attention_norm_name = "input_layernorm";
  config.mlp_norm_name = "post_attention_layernorm";
  config.attention_name = "attention";
  return config;
}

nn::TransformerBlockConfig GptJConfig(const Json& json) {
  const auto width = json.at("n_embd").get<int64_t>();
  const auto heads = json.at("n_head").get<int64_t>();
  const double share = json.at("rotary_dim").get<double>() / static_cast<double>(width / heads);
  nn::TransformerBlockConfig config;
  config.attention = {
      .hidden_size = width,
      .num_heads = heads,
      .qkv_bias = false,
      .output_bias = false,
      .qkv_names = {"q_proj", "k_proj", "v_proj"},
      .output_name = "out_proj",
      .rotary = nn::RotaryConfig{.share = share, .pairs = RotaryPairs::kInterleaved}};
  config.mlp = {
      .hidden_size = width,
      .inner_size = 4 * width,
      .activation = *nn::FindActivation(json.at("activation_function").get<std::string>()),
      .up_name = "fc_in",
      .down_name = "fc_out"};
  config.norm_eps = json.at("layer_norm_epsilon");
  config.parallel = true;
  config.mlp_norm_name = "";
  return config;
}

nn::TransformerBlockConfig ConfigOf(const Json& json, size_t layer) {
  const std::string type = json.at("model_type");
  if (type == "gpt_neox") return NeoXConfig(json);
  return type == "gptj" ? GptJConfig(json) : LlamaConfig(json, layer);
}

class Model : public nn::Module {
 public:
  Model(const Json& json, DType dtype) : Module(nn::Scope::Root({.dtype = dtype})) {
    const std::string type = json.at("model_type");
    const Stack stack = type == "gpt_neox" ? Stack{"layers.", "final_layer_norm"}
                        : type == "gptj"   ? Stack{"h.", "ln_f"}
                                           : Stack{"layers.", "norm"};
    const auto layers = json.at(type == "gptj" ? "n_layer" : "num_hidden_layers").get<size_t>();
    nn::TransformerBlockConfig config;
    for (size_t i = 0; i < layers; ++i) {
      config = ConfigOf(json, i);
      blocks_.push_back(
          std::make_unique<nn::TransformerBlock>(config, Child(Concat(stack.blocks, i))));
    }
    norm_ =
        nn::MakeNorm(config.norm, {.width = config.attention.hidden_size, .eps = config.norm_eps},
                     Child(stack.last_norm));
  }

  Tensor Forward(Tensor x, const nn::AttentionMasks& masks) const {
    for (const auto& block : blocks_) x = block->Forward(x, masks, {});
    return norm_->Forward(x);
  }

 private:
  std::vector<std::unique_ptr<nn::TransformerBlock>> blocks_;
  std::unique_ptr<nn::Norm> norm_;
};

Status RunCase(const std::string& name, const Json& json, const NamedTensors& in,
               NamedTensors* out) {
  const Tensor x = RequireGrad(in.at(name + "/x"));
  Model model(json, x.dtype());
  std::map<std::string, Tensor> state;
  const std::string parameters = name + "/p/";
  for (const auto& [key, t] : in) {
    if (key.starts_with(parameters)) state[key.substr(parameters.size())] = t;
  }
  TESSERA_RETURN_IF_ERROR(model.LoadStateDict(state));
  Tensor positions = Empty({x.size(0), x.size(1)}, DType::kInt64);
  for (int64_t i = 0; i < positions.numel(); ++i) positions.data<int64_t>()[i] = i % x.size(1);
  nn::AttentionMasks masks = {.rotary_positions = positions};
  if (in.count(name + "/mask") > 0) {
    masks.key_padding = Compare(in.at(name + "/mask"), 0.0, Comparison::kNotEqual);
  }
  const Tensor y = model.Forward(x, masks);
  Backward({y}, {in.at(name + "/dy")});
  out->emplace(name + "/y", y.Detach());
  out->emplace(name + "/dx", Grad(x));
  model.VisitParameters(
      [&](nn::Parameter& p) { out->emplace(name + "/g/" + p.name, Grad(p.tensor)); });
  return OkStatus();
}

Status Run(const std::string& cases, const std::string& from, const std::string& to) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(cases));
  TESSERA_ASSIGN_OR_RETURN(const NamedTensors in, ReadTensors(from));
  NamedTensors out;
  const Json all = Json::parse(text);
  for (const auto& [name, json] : all.items()) {
    TESSERA_RETURN_IF_ERROR(RunCase(name, json, in, &out));
  }
  return WriteTensors(to, out);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: transformer_blocks CASES.json IN.safetensors OUT.safetensors\n";
    return 2;
  }
  const tessera::Status status = tessera::Run(argv[1], argv[2], argv[3]);
  if (status.ok()) return 0;
  std::cerr << "error: " << tessera::Message(status) << "\n";
  return 1;
}
