// SPDX-License-Identifier: Apache-2.0
// A block of Llama by configuration, small, forwards and backwards.
#include <iostream>

#include <tessera/nn/activation.h>
#include <tessera/nn/transformer_block.h>
#include <tessera/ops/random/random.h>

using namespace tessera;

namespace {

nn::TransformerBlockConfig LlamaBlock(int64_t width) {
  nn::TransformerBlockConfig config;
  config.attention = {.hidden_size = width,
                      .num_heads = 8,
                      .num_key_value_heads = 2,
                      .qkv_bias = false,
                      .output_bias = false,
                      .qkv_names = {"q_proj", "k_proj", "v_proj"},
                      .output_name = "o_proj",
                      .rotary = nn::RotaryConfig{.base = 500000.0,
                                                 .scaling = {.kind = nn::RotaryScaling::kLlama3,
                                                             .factor = 8.0,
                                                             .original_positions = 8192}}};
  config.mlp = {.hidden_size = width,
                .inner_size = 4 * width,
                .activation = *nn::FindActivation("silu"),
                .bias = false,
                .gate_name = "gate_proj",
                .up_name = "up_proj",
                .down_name = "down_proj"};
  config.norm = nn::NormKind::kRmsNorm;
  config.attention_norm_name = "input_layernorm";
  config.mlp_norm_name = "post_attention_layernorm";
  config.attention_name = "self_attn";
  return config;
}

}  // namespace

int main() {
  const nn::Scope scope = nn::Scope::Root({.seed = 1});
  nn::TransformerBlock block(LlamaBlock(64), scope);
  const Tensor x_BTC = Randn({2, 5, 64}, NoiseKey(1, "input", 0, 0));
  const Tensor positions_BT = Tensor::FromVector<int64_t>({0, 1, 2, 3, 4, 0, 1, 2, 3, 4}, {2, 5});
  const Tensor y_BTC = block.Forward(x_BTC, {.rotary_positions = positions_BT}, {});
  Backward({y_BTC}, {x_BTC});
  std::cout << block.Summary() << "result " << y_BTC.shape() << "\n";
}
