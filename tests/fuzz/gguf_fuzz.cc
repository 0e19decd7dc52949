// SPDX-License-Identifier: Apache-2.0
// models/hub/gguf
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "models/family.h"
#include "models/hub/gguf/convert_gguf.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/save_model.h"
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
               "tokenizer.ggml.model", "qwen2.block_count", "attention.key_length"}});

}  // namespace
}  // namespace tessera::fuzz
