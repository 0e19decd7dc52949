// SPDX-License-Identifier: Apache-2.0
#include "tests/inference/small_models.h"

#include <cstdint>
#include <ios>
#include <string_view>
#include <vector>

#include "core/batch_keys.h"
#include "data/image/image_processor.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"

namespace tessera {
namespace {

using nlohmann::json;

constexpr int64_t kRows = 2;
constexpr int64_t kTokens = 5;

json GptConfig() {
  return {{"model_type", "gpt2"}, {"vocab_size", data::ByteTokenizer::kEosId + 1},
          {"n_positions", 32},    {"n_embd", 24},
          {"n_layer", 2},         {"n_head", 4},
          {"resid_pdrop", 0.0},   {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0},    {"initializer_range", 0.2}};
}

json BertConfig() {
  return {{"model_type", "bert"},
          {"vocab_size", 53},
          {"hidden_size", 24},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"intermediate_size", 29},
          {"max_position_embeddings", 16},
          {"hidden_dropout_prob", 0.0},
          {"attention_probs_dropout_prob", 0.0}};
}

json VitConfig() {
  return {{"model_type", "vit"},
          {"hidden_size", 24},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"intermediate_size", 29},
          {"image_size", 8},
          {"patch_size", 4},
          {"num_channels", 3},
          {"num_labels", 3},
          {"hidden_dropout_prob", 0.0},
          {"attention_probs_dropout_prob", 0.0}};
}

json T5Config() {
  return {{"model_type", "t5"}, {"vocab_size", 53}, {"d_model", 24},  {"d_kv", 6},
          {"d_ff", 29},         {"num_layers", 2},  {"num_heads", 4}, {"dropout_rate", 0.0}};
}

json GlmConfig() {
  return {{"model_type", "glm"},
          {"vocab_size", 53},
          {"hidden_size", 24},
          {"num_layers", 2},
          {"num_attention_heads", 4},
          {"max_sequence_length", 16},
          {"embedding_dropout_prob", 0.0},
          {"attention_dropout_prob", 0.0},
          {"output_dropout_prob", 0.0}};
}

// 0, 3, 6, ... below `limit`.
Tensor Numbers(const Shape& shape, int64_t limit) {
  std::vector<int64_t> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 3 * static_cast<int64_t>(i) % limit;
  return Tensor::FromVector(values, shape);
}

// Made the size that the model takes.
Tensor Picture() {
  const data::ImageProcessor processor =
      data::ImageProcessor::Create({.height = 8, .width = 8}, /*channels=*/3, "picture").value();
  data::Image image{.height = 12, .width = 10, .channels = 3, .pixels = {}};
  for (int i = 0; i < 12 * 10 * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(i % 251));
  std::vector<float> pixels(static_cast<size_t>(processor.OutputSize()));
  processor.Apply(image, pixels.data());
  return Tensor::FromVector(pixels, {1, 3, 8, 8});
}

}  // namespace

json SmallConfig(const std::string& model_type) {
  if (model_type == "gpt2") return GptConfig();
  if (model_type == "bert") return BertConfig();
  if (model_type == "vit") return VitConfig();
  if (model_type == "t5") return T5Config();
  return GlmConfig();
}

Bundle SmallInputs(const std::string& model_type) {
  if (model_type == "vit") return {{keys::kPixelValues, Picture()}};
  const Tensor ids = Numbers({kRows, kTokens}, 53);
  if (model_type == "t5") {
    return {{keys::kInputIds, ids}, {keys::kDecoderInputIds, Numbers({kRows, 3}, 53)}};
  }
  if (model_type == "glm") {
    return {{keys::kInputIds, ids}, {keys::kPositionIds, Numbers({kRows, 2, kTokens}, 16)}};
  }
  return {{keys::kInputIds, ids}};
}

std::string FingerprintOf(const Bundle& outputs) {
  std::string lines;
  for (const auto& [name, output] : outputs.entries()) {
    const std::vector<float> values = output.ToVector<float>();
    const std::string_view bytes(reinterpret_cast<const char*>(values.data()),
                                 values.size() * sizeof(float));
    lines += Concat(name, " ", output.shape(), " ", data::HashBytes(bytes), "\n");
  }
  return lines;
}

}  // namespace tessera
