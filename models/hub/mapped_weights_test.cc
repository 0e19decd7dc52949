// SPDX-License-Identifier: Apache-2.0
// Parameters that are the files' own bytes, progress, cancelling, and folders that are not on the
// disk.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/tar_archive.h"
#include "core/allocator.h"
#include "core/batch_keys.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "models/family.h"
#include "models/hub/convert_model.h"
#include "models/hub/load_model.h"
#include "models/hub/save_model.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/quantized/quantized_matrix.h"

namespace tessera::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// 0, 3, 6, ... below `limit`.
Tensor Numbers(const Shape& shape, int64_t limit) {
  std::vector<int64_t> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 3 * static_cast<int64_t>(i) % limit;
  return Tensor::FromVector(values, shape);
}

struct FamilyCase {
  json config;
  Bundle inputs;
};

// Every family, with sizes that are no multiple of a vector's.
std::vector<FamilyCase> Families() {
  const Tensor ids = Numbers({2, 5}, 53);
  const Tensor pixels = Full({1, 3, 8, 8}, 0.25);
  return {{{{"model_type", "gpt2"},
            {"vocab_size", 53},
            {"n_positions", 8},
            {"n_embd", 18},
            {"n_layer", 2},
            {"n_head", 2},
            {"initializer_range", 0.2}},
           {{keys::kInputIds, ids}}},
          {{{"model_type", "bert"},
            {"vocab_size", 53},
            {"hidden_size", 18},
            {"num_hidden_layers", 2},
            {"num_attention_heads", 2},
            {"intermediate_size", 29},
            {"max_position_embeddings", 8},
            {"initializer_range", 0.2}},
           {{keys::kInputIds, ids}}},
          {{{"model_type", "vit"},
            {"image_size", 8},
            {"patch_size", 4},
            {"num_channels", 3},
            {"hidden_size", 18},
            {"num_hidden_layers", 1},
            {"num_attention_heads", 2},
            {"intermediate_size", 29},
            {"num_labels", 3},
            {"initializer_range", 0.2}},
           {{keys::kPixelValues, pixels}}},
          {{{"model_type", "t5"},
            {"vocab_size", 53},
            {"d_model", 18},
            {"d_kv", 7},
            {"d_ff", 29},
            {"num_layers", 1},
            {"num_heads", 2}},
           {{keys::kInputIds, ids}, {keys::kDecoderInputIds, Numbers({2, 3}, 53)}}},
          {{{"model_type", "glm"},
            {"vocab_size", 53},
            {"hidden_size", 18},
            {"num_layers", 1},
            {"num_attention_heads", 2},
            {"max_sequence_length", 16}},
           {{keys::kInputIds, ids}, {keys::kPositionIds, Numbers({2, 2, 5}, 16)}}}};
}

class MappedWeightsTest : public testing::Test {
 protected:
  MappedWeightsTest()
      : root_(testing::TempDir() + "/mapped_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
  }
  ~MappedWeightsTest() override { fs::remove_all(root_); }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string Saved(const json& config, DType dtype = DType::kFloat32) const {
    const auto model = BuildModel(config, {.dtype = dtype, .seed = 3});
    EXPECT_TRUE(model.ok()) << model.status();
    EXPECT_TRUE(SaveModel(**model, root_).ok());
    return root_;
  }
  static std::unique_ptr<Model> Load(const std::string& folder, const LoadOptions& options) {
    auto model = LoadModel(folder, options);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? *std::move(model) : nullptr;
  }
  static int CountMapped(Model& model) {
    int count = 0;
    model.VisitParameters(
        [&](nn::Parameter& p) { count += p.tensor.storage()->read_only() ? 1 : 0; });
    return count;
  }
  static void ExpectSameBits(Model& a, Model& b) {
    const auto expected = a.StateDict();
    for (const auto& [name, tensor] : b.StateDict()) {
      const Tensor& other = expected.at(name);
      ASSERT_EQ(tensor.dtype(), other.dtype()) << name;
      EXPECT_EQ(std::memcmp(tensor.raw_data(), other.raw_data(), tensor.nbytes()), 0) << name;
    }
  }
  static void ExpectSameOutputs(const Model& a, const Model& b, const Bundle& inputs) {
    const NoGrad mode;
    const Bundle expected = a.Run(inputs, {});
    const Bundle found = b.Run(inputs, {});
    ASSERT_EQ(found.entries().size(), expected.entries().size());
    for (size_t i = 0; i < expected.entries().size(); ++i) {
      const auto& [name, tensor] = expected.entries()[i];
      EXPECT_EQ(found.entries()[i].first, name);
      EXPECT_EQ(found.entries()[i].second.ToVector<double>(), tensor.ToVector<double>()) << name;
    }
  }

  // Rewrites model.safetensors so that its data begins `shift` bytes behind a multiple of 8.
  void Shift(int shift) const {
    const std::string path = Path("model.safetensors");
    const std::string bytes = *ReadFile(path);
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), 8);
    const std::string data = bytes.substr(8 + header);
    const uint64_t longer = header + static_cast<uint64_t>(shift);
    std::string out(8, '\0');
    std::memcpy(out.data(), &longer, 8);
    out += bytes.substr(8, header) + std::string(static_cast<size_t>(shift), ' ') + data;
    ASSERT_TRUE(WriteFileAtomically(path, out).ok());
  }

  const std::string root_;
};

TEST_F(MappedWeightsTest, EveryFamilyRunsOnTheFilesBytesWhateverTheirAlignment) {
  for (const FamilyCase& c : Families()) {
    SCOPED_TRACE(c.config["model_type"].get<std::string>());
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      fs::remove_all(root_);
      Saved(c.config, dtype);
      const nn::BuildContext build = {.dtype = dtype};
      const auto copied = Load(root_, {.build = build});
      EXPECT_EQ(CountMapped(*copied), 0);
      for (int shift = 0; shift < 8; ++shift) {
        SCOPED_TRACE(Concat(dtype, ", ", shift, " bytes behind"));
        if (shift > 0) Shift(1);  // one more than before
        const auto mapped = Load(root_, {.build = build, .map_weights = true});
        const bool fits = shift % static_cast<int>(DTypeSize(dtype)) == 0;
        EXPECT_EQ(CountMapped(*mapped), fits ? std::ssize(mapped->Parameters()) : 0);
        ExpectSameBits(*copied, *mapped);
        ExpectSameOutputs(*copied, *mapped, c.inputs);
      }
    }
  }
}

TEST_F(MappedWeightsTest, NothingIsAllocatedAndTheFileMayGo) {
  const FamilyCase gpt = Families()[0];
  Saved(gpt.config);
  const auto copied = Load(root_, {});
  Allocator& cpu = Allocator::For(Device::Cpu());
  const int64_t before = cpu.stats().current_bytes;
  cpu.ResetPeak();
  const auto mapped = Load(root_, {.map_weights = true});
  EXPECT_EQ(cpu.stats().peak_bytes, before);
  fs::remove_all(root_);
  ExpectSameOutputs(*copied, *mapped, gpt.inputs);
}

// The table, of 12 MiB in float32, is made small a mebibyte at a time.
TEST_F(MappedWeightsTest, QuantisedLoadingNeedsLittleBesideWhatItHolds) {
  constexpr int64_t kBeside = int64_t{3} << 20;
  json config = Families()[0].config;
  config["vocab_size"] = 50000;
  config["n_embd"] = 64;
  Allocator& cpu = Allocator::For(Device::Cpu());
  const auto beside = [&](const std::string& folder, const LoadOptions& options) {
    cpu.ReleaseCached();
    const int64_t before = cpu.stats().current_bytes;
    cpu.ResetPeak();
    const auto model = Load(folder, options);
    const int64_t most = cpu.stats().peak_bytes - cpu.stats().current_bytes;
    EXPECT_GT(cpu.stats().current_bytes, before);
    EXPECT_LT(cpu.stats().reserved_bytes, cpu.stats().current_bytes + kBeside);
    return most;
  };
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    fs::remove_all(root_);
    Saved(config, dtype);
    for (const QuantType type : kQuantTypes) {
      if (!CanQuantize(type, 64)) continue;
      SCOPED_TRACE(Concat(dtype, " as ", QuantTypeName(type)));
      const std::string folder = Path(std::string(QuantTypeName(type)));
      EXPECT_LT(beside(root_, {.quantize = type}), kBeside);
      ASSERT_TRUE(ConvertModel(root_, folder, {.quantize = type}).ok());
      EXPECT_LT(beside(folder, {}), kBeside);
      // Into a model that holds it dense.
      auto dense = BuildModel(config, {.seed = 4});
      ASSERT_TRUE(dense.ok());
      cpu.ResetPeak();
      const int64_t before = cpu.stats().current_bytes;
      ASSERT_TRUE(LoadWeights(**dense, folder).ok());
      EXPECT_LT(cpu.stats().peak_bytes - before, kBeside);
    }
  }
}

TEST_F(MappedWeightsTest, WhatDoesNotFitIsCopied) {
  const FamilyCase gpt = Families()[0];
  Saved(gpt.config);
  const nn::BuildContext half = {.dtype = DType::kBFloat16};
  const auto copied = Load(root_, {.build = half});
  const auto mapped = Load(root_, {.build = half, .map_weights = true});
  EXPECT_EQ(CountMapped(*mapped), 0);
  ExpectSameBits(*copied, *mapped);
  // Nor what others give memory to.
  nn::BuildContext moved;
  int calls = 0;
  moved.on_parameter = [&](nn::Parameter&) { ++calls; };
  EXPECT_EQ(CountMapped(*Load(root_, {.build = moved, .map_weights = true})), 0);
  EXPECT_GT(calls, 0);
}

TEST_F(MappedWeightsTest, CannotBeWrittenToNorTrained) {
  Saved(Families()[0].config);
  const auto model = Load(root_, {.map_weights = true});
  nn::Parameter& wte = *model->FindParameter("transformer.wte.weight");
  EXPECT_FALSE(RequiresGrad(wte.tensor));
  EXPECT_FALSE(RequiresGrad(model->FindParameter("lm_head.weight")->tensor));
  EXPECT_THROW(Fill(wte.tensor, 1), Error);
  EXPECT_THROW(CopyInto(wte.tensor, Zeros(wte.tensor.shape())), Error);
  EXPECT_THROW(model->Freeze("", /*frozen=*/false), Error);
  EXPECT_THROW(LoadWeights(*model, root_).IgnoreError(), Error);
  model->To(DType::kBFloat16);  // a copy
  Fill(model->FindParameter("transformer.wte.weight")->tensor, 1);
}

TEST_F(MappedWeightsTest, ProgressIsToldAndCancels) {
  // wte is larger than a piece.
  Saved({{"model_type", "gpt2"},
         {"vocab_size", 60000},
         {"n_positions", 8},
         {"n_embd", 100},
         {"n_layer", 1},
         {"n_head", 2}});
  for (const bool map : {false, true}) {
    std::vector<std::pair<int64_t, int64_t>> told;
    LoadOptions options = {.map_weights = map};
    options.progress = [&](int64_t done, int64_t all) {
      told.emplace_back(done, all);
      return true;
    };
    const auto model = Load(root_, options);
    ASSERT_GT(told.size(), map ? 10u : 12u);
    EXPECT_EQ(told.front().first, 0);
    EXPECT_EQ(told.back().first, told.back().second);
    EXPECT_EQ(told.back().second, 4 * model->ParameterCount());
    for (size_t i = 1; i < told.size(); ++i) {
      EXPECT_GT(told[i].first, told[i - 1].first);
      EXPECT_EQ(told[i].second, told[0].second);
      if (!map) {
        EXPECT_LE(told[i].first - told[i - 1].first, 9 << 20);
      }
    }
    for (const int64_t limit : {int64_t{0}, told.back().second / 2}) {
      int calls_after = 0;
      bool cancelled = false;
      options.progress = [&](int64_t done, int64_t) {
        if (cancelled) ++calls_after;
        cancelled = cancelled || done >= limit;
        return !cancelled;
      };
      const auto none = LoadModel(root_, options);
      EXPECT_EQ(none.status().code(), StatusCode::kCancelled);
      EXPECT_EQ(Message(none.status()), root_ + ": loading was cancelled");
      EXPECT_EQ(calls_after, 0);
    }
  }
}

TEST_F(MappedWeightsTest, ModelsComeFromArchivesWhereverTheyAre) {
  const FamilyCase gpt = Families()[0];
  Saved(gpt.config);
  const auto copied = Load(root_, {});
  const std::string archive = Path("m.tar");
  ASSERT_EQ(std::system(("cd '" + root_ + "' && tar cf ../m.tar . && mv ../m.tar .").c_str()), 0);
  const auto bytes = std::make_shared<const std::string>(*ReadFile(archive));
  const MountedFile in_memory = MountedFile::OfBytes(bytes->data(), std::ssize(*bytes), bytes);
  const MountedFile read =
      MountedFile::OfReader(std::ssize(*bytes), [bytes](int64_t at, void* to, int64_t size) {
        std::memcpy(to, bytes->data() + at, static_cast<size_t>(size));
        return OkStatus();
      });
  for (const bool map : {false, true}) {
    std::unique_ptr<Model> models[3];
    {
      const auto from_path = MountTar(archive);
      const auto from_memory = MountTar(in_memory, "memory");
      const auto from_reader = MountTar(read, "reader");
      ASSERT_TRUE(from_path.ok()) << from_path.status();
      models[0] = Load(from_path->path(), {.map_weights = map});
      models[1] = Load(from_memory->path(), {.map_weights = map});
      models[2] = Load(from_reader->path(), {.map_weights = map});
    }
    for (const auto& model : models) {
      ExpectSameBits(*copied, *model);
      ExpectSameOutputs(*copied, *model, gpt.inputs);
    }
    // The archive's own bytes, no copy.
    const void* wte = models[1]->FindParameter("transformer.wte.weight")->tensor.raw_data();
    EXPECT_EQ(map, wte >= bytes->data() && wte < bytes->data() + bytes->size());
  }
}

TEST_F(MappedWeightsTest, FailuresNameTheFileInTheArchive) {
  const auto text = std::make_shared<const std::string>("no json");
  const MountedFolder folder("asset",
                             {{"config.json", MountedFile::OfBytes(text->data(), 7, text)}});
  EXPECT_EQ(Message(LoadModel(folder.path()).status()),
            "<asset>/config.json: not valid JSON at byte 2");
}

}  // namespace
}  // namespace tessera::models
