// SPDX-License-Identifier: Apache-2.0
// What the tests of this folder share: small models saved as folders, and a folder of their own.
#ifndef TESSERA_MODELS_HUB_GGUF_GGUF_TEST_MODELS_H_
#define TESSERA_MODELS_HUB_GGUF_GGUF_TEST_MODELS_H_

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "data/tokenizer/tokenizer.h"
#include "models/family.h"
#include "models/hub/gguf/convert_gguf.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/load_model.h"
#include "models/hub/save_model.h"
#include "models/hub/weight_files.h"
#include "nlohmann/json.hpp"
#include "ops/quantized/quantized_matrix.h"
#include "ops/view/view.h"

namespace tessera::models {

inline nlohmann::json SmallGpt() {
  return {{"model_type", "gpt2"}, {"vocab_size", 300}, {"n_positions", 8}, {"n_embd", 64},
          {"n_layer", 2},         {"n_head", 2},       {"n_inner", 96}};
}
inline nlohmann::json SmallLlama() {
  return {{"model_type", "llama"},    {"vocab_size", 300},
          {"hidden_size", 64},        {"intermediate_size", 96},
          {"num_hidden_layers", 2},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},     {"tie_word_embeddings", false}};
}
inline nlohmann::json SmallQwen() {
  nlohmann::json config = SmallLlama();
  config["model_type"] = "qwen2";
  config["tie_word_embeddings"] = true;
  config["rope_theta"] = 1000000.0;
  return config;
}

inline nlohmann::json SmallQwen3() {
  nlohmann::json config = SmallQwen();
  config["model_type"] = "qwen3";
  config["head_dim"] = 32;
  return config;
}

inline nlohmann::json SmallGemma3() {
  nlohmann::json config = SmallQwen3();
  config["model_type"] = "gemma3_text";
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["num_hidden_layers"] = 4;
  config["query_pre_attn_scalar"] = 32;
  config["sliding_window"] = 8;
  config["sliding_window_pattern"] = 3;
  config["rope_local_base_freq"] = 500.0;
  return config;
}

class GgufTest : public testing::Test {
 protected:
  GgufTest()
      : root_(testing::TempDir() + "/gguf_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& bytes) const {
    EXPECT_TRUE(WriteFileAtomically(Path(name), bytes).ok());
    return Path(name);
  }
  static std::string Bytes(const std::string& path) {
    const auto bytes = ReadFile(path);
    EXPECT_TRUE(bytes.ok()) << Message(bytes.status());
    return bytes.ok() ? *bytes : "";
  }
  static GgufFile Opened(const std::string& path) {
    auto file = GgufFile::Open(path);
    EXPECT_TRUE(file.ok()) << Message(file.status());
    return *std::move(file);
  }

  // A saved model in which no two neighbours are equal.
  std::string Saved(const std::string& name, const nlohmann::json& config,
                    const data::Tokenizer* tokenizer = nullptr) const {
    const auto model = BuildModel(config, {.dtype = DType::kFloat16, .seed = 3});
    EXPECT_TRUE(model.ok()) << Message(model.status());
    int64_t number = 0;
    (*model)->VisitParameters([&](nn::Parameter& p) {
      if (p.tied_to != nullptr) return;
      std::vector<float> values(static_cast<size_t>(p.tensor.numel()));
      for (float& value : values) value = std::sin(static_cast<float>(++number));
      CopyInto(p.tensor, Tensor::FromVector(values, p.tensor.shape()));
    });
    const Status status = SaveModel(**model, Path(name), tokenizer);
    EXPECT_TRUE(status.ok()) << Message(status);
    return Path(name);
  }
  // Its tensors as `change` makes them.
  using Tensors = std::map<std::string, Tensor>;
  static void Rewrite(const std::string& folder, const std::function<void(Tensors&)>& change) {
    Tensors tensors;
    {
      const auto weights = WeightFiles::Open(folder);
      ASSERT_TRUE(weights.ok());
      for (const std::string& name : weights->Names()) {
        const Tensor mapped = *weights->Read(name);
        tensors[name] = EmptyLike(mapped);
        CopyInto(tensors[name], mapped);
      }
    }
    change(tensors);
    WriteTensors(tensors, folder + "/model.safetensors");
  }
  static void WriteTensors(const Tensors& tensors, const std::string& path) {
    std::vector<NamedTensorView> views;
    for (const auto& [name, t] : tensors) {
      views.push_back({name,
                       {t.dtype(),
                        {t.shape().begin(), t.shape().end()},
                        static_cast<const std::byte*>(t.raw_data()),
                        t.nbytes()}});
    }
    ASSERT_TRUE(WriteSafetensors(path, views).ok());
  }
  // Its matrices but positions and routers as blocks.
  static void QuantizeFolder(const std::string& folder, QuantType type) {
    Rewrite(folder, [&](Tensors& tensors) {
      Tensors changed;
      for (const auto& [name, t] : tensors) {
        const bool conv = name.find(".c_") != std::string::npos;
        if (t.ndim() != 2 || name.find("wpe") != std::string::npos ||
            name.find(".gate.") != std::string::npos) {
          changed[name] = t;
          continue;
        }
        const auto matrix = Quantize(conv ? Transpose(t, 0, 1) : t, type);
        ASSERT_TRUE(matrix.ok()) << Message(matrix.status());
        changed[Concat(name, ".", QuantTypeName(type))] = matrix->bytes;
      }
      tensors = changed;
    });
  }
  // The tensors of a file under other metadata.
  std::string WithMetadata(const GgufFile& file, const GgufMetadata& metadata,
                           const std::string& name) const {
    auto writer = GgufWriter::Create(Path(name), metadata, file.tensors());
    EXPECT_TRUE(writer.ok()) << Message(writer.status());
    for (const GgufTensor& t : file.tensors()) {
      EXPECT_TRUE(writer->Append(file.BytesOf(t), t.nbytes).ok());
    }
    EXPECT_TRUE(writer->Commit().ok());
    return Path(name);
  }
  // The same in `parts` files: "name-00001-of-00003.gguf" and so on. Returns the first's path.
  std::string InParts(const GgufFile& file, int64_t parts, const std::string& name) const {
    const auto path = [&](int64_t i) {
      return Path(Concat(name, "-0000", i + 1, "-of-0000", parts, ".gguf"));
    };
    const auto& all = file.tensors();
    for (int64_t i = 0; i < parts; ++i) {
      const auto begin = all.begin() + std::ssize(all) * i / parts;
      const auto end = all.begin() + std::ssize(all) * (i + 1) / parts;
      GgufMetadata metadata = i == 0 ? file.metadata() : GgufMetadata();
      metadata.emplace_back("split.no", static_cast<uint16_t>(i));
      metadata.emplace_back("split.count", static_cast<uint16_t>(parts));
      metadata.emplace_back("split.tensors.count", static_cast<int32_t>(all.size()));
      auto writer = GgufWriter::Create(path(i), metadata, std::vector(begin, end));
      EXPECT_TRUE(writer.ok()) << Message(writer.status());
      for (auto t = begin; t != end; ++t) {
        EXPECT_TRUE(writer->Append(file.BytesOf(*t), t->nbytes).ok());
      }
      EXPECT_TRUE(writer->Commit().ok());
    }
    return path(0);
  }
  // folder -> a.gguf -> back -> b.gguf.
  void ExpectRoundTrip(const std::string& folder) const {
    Status status = ConvertToGguf(folder, Path("a.gguf"));
    ASSERT_TRUE(status.ok()) << Message(status);
    status = ConvertFromGguf(Path("a.gguf"), Path("back"));
    ASSERT_TRUE(status.ok()) << Message(status);
    status = ConvertToGguf(Path("back"), Path("b.gguf"));
    ASSERT_TRUE(status.ok()) << Message(status);
    EXPECT_TRUE(Bytes(Path("a.gguf")) == Bytes(Path("b.gguf")));
    const auto before = WeightFiles::Open(folder);
    const auto after = WeightFiles::Open(Path("back"));
    ASSERT_TRUE(after.ok());
    EXPECT_EQ(before->Names(), after->Names());
    for (const std::string& name : before->Names()) {
      EXPECT_EQ(before->Read(name)->ToVector<float>(), after->Read(name)->ToVector<float>())
          << name;
    }
  }
  static std::string Refusal(const Status& status) {
    EXPECT_FALSE(status.ok());
    return Message(status);
  }

  const std::string root_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_GGUF_TEST_MODELS_H_
