// SPDX-License-Identifier: Apache-2.0
// models/hub/gguf
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/status.h"
#include "models/family.h"
#include "models/hub/gguf/convert_gguf.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/save_model.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

bool Run(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.Clear();
  folder.Write("model.gguf", bytes);
  const auto file = models::GgufFile::Open(folder.Path("model.gguf"));
  if (!file.ok()) return false;
  int64_t sum = 0;
  for (const models::GgufTensor& tensor : file->tensors()) {
    const std::byte* const data = file->BytesOf(tensor);
    for (int64_t i = 0; i < tensor.nbytes; ++i) sum += static_cast<int64_t>(data[i]);
  }
  TESSERA_CHECK(sum >= 0, "gguf", "bytes are not negative");  // so that they are read
  models::ConvertFromGguf(folder.Path("model.gguf"), folder.Path("made")).IgnoreError();
  return true;
}

// A small model as a file.
std::string FileOfModel(const nlohmann::json& config) {
  const FuzzFolder folder;
  const auto model = models::BuildModel(config, {.dtype = DType::kFloat16});
  TESSERA_CHECK(models::SaveModel(**model, folder.Path("m")).ok(), "gguf", "no model");
  TESSERA_CHECK(models::ConvertToGguf(folder.Path("m"), folder.Path("m.gguf")).ok(), "gguf",
                "no file");
  return *ReadFile(folder.Path("m.gguf"));
}

// A file with a tokenizer, and without weights.
std::string FileOfTokens(const std::string& model) {
  using Texts = std::vector<std::string>;
  std::vector<models::GgufTensor> tensors = {{.name = "token_embd.weight", .shape = {4, 1}}};
  std::string file = models::FormatGgufHeader(
      {{"general.architecture", std::string("llama")},
       {"tokenizer.ggml.model", model},
       {"tokenizer.ggml.pre", std::string("llama-bpe")},
       {"tokenizer.ggml.tokens", models::GgufArray(Texts{"<s>", "a", "b", "ab"})},
       {"tokenizer.ggml.scores", models::GgufArray(std::vector<float>{0, -1, -2, -3})},
       {"tokenizer.ggml.token_type", models::GgufArray(std::vector<int32_t>{3, 1, 1, 1})},
       {"tokenizer.ggml.merges", models::GgufArray(Texts{"a b"})},
       {"tokenizer.ggml.add_bos_token", true},
       {"tokenizer.ggml.bos_token_id", uint32_t{0}}},
      &tensors);
  return file + std::string(32, '\0');
}

// What a key may say: mostly what a small model would have.
models::GgufValue ValueOf(Choices* choices) {
  const auto number = choices->Number();
  switch (choices->Below(6)) {
    case 0:
      return static_cast<int32_t>(number);
    case 1:
      return static_cast<float>(number) / 8;
    case 2:
      return std::string(choices->Of({"", "linear", "yarn", "a b", "\xFF"}));
    case 3:
      return models::GgufArray(
          std::vector<int32_t>(choices->Below(4), static_cast<int32_t>(number)));
    case 4:
      return static_cast<uint64_t>(number);
    default:
      return uint32_t{4};
  }
}

// A whole file: a family's keys, and tensors by the names and of the shapes that they ask for.
std::string Make(uint64_t seed) {
  Choices choices(seed);
  const std::string family = choices.Of({"llama", "qwen2", "qwen3", "gemma3", "gpt2", "phi3", "x"});
  models::GgufMetadata metadata = {{"general.architecture", family}};
  for (const char* const key :
       {"block_count", "embedding_length", "feed_forward_length", "context_length", "vocab_size",
        "attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon",
        "attention.key_length", "rope.freq_base", "rope.scaling.type", "expert_count"}) {
    if (choices.OneIn(5)) continue;
    const uint32_t usual = 1 + static_cast<uint32_t>(choices.Below(2));
    metadata.emplace_back(family + "." + key,
                          choices.OneIn(8) ? ValueOf(&choices) : models::GgufValue(usual));
  }
  if (choices.OneIn(2)) {
    metadata.emplace_back("tokenizer.ggml.model", std::string(choices.Of({"gpt2", "llama", "t5"})));
    metadata.emplace_back("tokenizer.ggml.tokens",
                          models::GgufArray(std::vector<std::string>{"<s>", "a", "b", "ab"}));
  }
  std::vector<models::GgufTensor> tensors;
  int64_t data_bytes = 0;
  for (uint64_t left = choices.Below(6); left > 0; --left) {
    models::GgufTensor tensor;
    tensor.name = choices.OneIn(2)
                      ? choices.Of({"token_embd.weight", "output.weight", "output_norm.weight",
                                    "rope_freqs.weight"})
                      : Concat("blk.", choices.Below(2), ".",
                               choices.Of({"attn_q", "attn_k", "ffn_up", "attn_qkv"}), ".weight");
    const models::GgufTensorType* const type =
        models::FindGgufType(static_cast<uint32_t>(choices.Below(32)));
    if (type != nullptr) tensor.type = *type;
    tensor.shape = {static_cast<int64_t>(1 + choices.Below(4)),
                    tensor.type.block_size * static_cast<int64_t>(1 + choices.Below(2))};
    if (choices.OneIn(4)) tensor.shape.erase(tensor.shape.begin());
    const bool known = std::any_of(tensors.begin(), tensors.end(),
                                   [&](const auto& other) { return other.name == tensor.name; });
    if (known && !choices.OneIn(32)) continue;  // twice is refused
    tensors.push_back(std::move(tensor));
  }
  std::string file = models::FormatGgufHeader(metadata, &tensors);
  for (const models::GgufTensor& tensor : tensors) {
    data_bytes += models::GgufAligned(tensor.nbytes);
  }
  file.append(static_cast<size_t>(data_bytes), static_cast<char>(choices.Below(256)));
  if (choices.OneIn(16)) file.resize(file.size() - file.size() / 4);
  return file;
}

std::vector<std::string> Seeds() {
  return {FileOfModel({{"model_type", "gpt2"},
                       {"vocab_size", 4},
                       {"n_positions", 2},
                       {"n_embd", 4},
                       {"n_layer", 1},
                       {"n_head", 1}}),
          FileOfModel({{"model_type", "llama"},
                       {"vocab_size", 4},
                       {"hidden_size", 8},
                       {"intermediate_size", 4},
                       {"num_hidden_layers", 1},
                       {"num_attention_heads", 2},
                       {"num_key_value_heads", 1},
                       {"max_position_embeddings", 4},
                       {"rope_scaling",
                        {{"rope_type", "llama3"},
                         {"factor", 2.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 2}}}}),
          FileOfTokens("gpt2"), FileOfTokens("llama")};
}

const FuzzTargetRegistration registration(
    {.name = "gguf",
     .run = Run,
     .seeds = Seeds,
     .words = {"GGUF", "general.alignment", "general.architecture", "qwen2", "rope_freqs.weight",
               "tokenizer.ggml.model", "qwen2.block_count", "attention.key_length"},
     .make = Make});

}  // namespace
}  // namespace tessera::fuzz
