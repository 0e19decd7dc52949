#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>

#include "core/file.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/json_text.h"
#include "data/tokenizer/tokenizer.h"
#include "models/family.h"
#include "models/hub/gguf/convert_gguf.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/gguf/gguf_names.h"
#include "models/hub/load_model.h"
#include "models/hub/save_model.h"
#include "models/hub/weight_files.h"
#include "ops/quantized/quantized_matrix.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json SmallGpt() {
  return {{"model_type", "gpt2"}, {"vocab_size", 300}, {"n_positions", 8}, {"n_embd", 64},
          {"n_layer", 2},         {"n_head", 2},       {"n_inner", 96}};
}
json SmallLlama() {
  return {{"model_type", "llama"},    {"vocab_size", 300},
          {"hidden_size", 64},        {"intermediate_size", 96},
          {"num_hidden_layers", 2},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},     {"tie_word_embeddings", false}};
}
json SmallQwen() {
  json config = SmallLlama();
  config["model_type"] = "qwen2";
  config["tie_word_embeddings"] = true;
  config["rope_theta"] = 1000000.0;
  return config;
}

class GgufTest : public testing::Test {
 protected:
  GgufTest()
      : root_(testing::TempDir() + "/gguf_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
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
  std::string Saved(const std::string& name, const json& config,
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
    std::vector<NamedTensorView> views;
    for (const auto& [name, t] : tensors) {
      views.push_back({name,
                       {t.dtype(),
                        {t.shape().begin(), t.shape().end()},
                        static_cast<const std::byte*>(t.raw_data()),
                        t.nbytes()}});
    }
    ASSERT_TRUE(WriteSafetensors(folder + "/model.safetensors", views).ok());
  }
  // Its matrices but positions as blocks.
  static void QuantizeFolder(const std::string& folder, QuantType type) {
    Rewrite(folder, [&](Tensors& tensors) {
      Tensors changed;
      for (const auto& [name, t] : tensors) {
        const bool conv = name.find(".c_") != std::string::npos;
        if (t.ndim() != 2 || name.find("wpe") != std::string::npos) {
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

// ---- The format --------------------------------------------------------------------------------

template <typename T>
std::string Le(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
std::string Str(const std::string& text) { return Le(uint64_t{text.size()}) + text; }
std::string Info(const std::string& name, const std::vector<uint64_t>& ne, uint32_t type,
                 uint64_t offset) {
  std::string out = Str(name) + Le(static_cast<uint32_t>(ne.size()));
  for (const uint64_t size : ne) out += Le(size);
  return out + Le(type) + Le(offset);
}
std::string Head(uint64_t tensors, uint64_t values, uint32_t version = 3) {
  return "GGUF" + Le(version) + Le(tensors) + Le(values);
}
std::string Padded(std::string bytes, size_t data, size_t alignment = 32) {
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment + data);
  return bytes;
}

TEST_F(GgufTest, WhatALittleFileHolds) {
  for (const uint32_t version : {2u, 3u}) {
    const std::string bytes =
        Padded(Head(2, 2, version) + Str("general.alignment") + Le(4u) + Le(64u) + Str("a.list") +
                   Le(9u) + Le(5u) + Le(uint64_t{2}) + Le(-1) + Le(7) + Info("x", {3, 2}, 0, 64) +
                   Info("q", {32}, 12 - 4, 0),
               64 + 24, 64);
    const GgufFile file = Opened(Write("x.gguf", bytes));
    std::vector<int32_t> list;
    ASSERT_TRUE(file.Read("a.list", &list).ok());
    EXPECT_EQ(list, (std::vector<int32_t>{-1, 7}));
    ASSERT_EQ(file.tensors().size(), 2u);
    const GgufTensor& x = **file.Get("x");
    EXPECT_EQ(x.shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(x.nbytes, 24);
    EXPECT_EQ(x.begin % 64, 0);
    EXPECT_EQ(x.begin + 24, static_cast<int64_t>(bytes.size()));
    EXPECT_EQ((*file.Get("q"))->type.name, "Q8_0");
    EXPECT_EQ((*file.Get("q"))->nbytes, 34);
  }
}

TEST_F(GgufTest, DamageIsNamed) {
  constexpr uint64_t kMany = uint64_t{1} << 62;
  const struct {
    std::string bytes;
    std::string message;
  } cases[] = {
      {"GGU", "does not begin with 'GGUF'"},
      {"GGUF\1", "the file is cut off"},
      {"GGUF" + std::string("\0\0\0\3", 4), "is big-endian, which is not supported"},
      {Head(0, 0, 1), "is GGUF version 1; 2 and 3 are supported"},
      {Head(0, 0, 4), "is GGUF version 4; 2 and 3 are supported"},
      {Head(kMany, 0), "tensors: 4611686018427387904 elements do not fit into the 8 bytes"},
      {Head(0, kMany), "metadata: 4611686018427387904 elements do not fit into the 0 bytes"},
      {Head(0, 1) + Le(kMany) + "abcdefgh", "metadata 0: the file is cut off"},
      {Head(0, 1) + Str("k") + Le(13u) + Le(0u), "key 'k': unknown type of value 13"},
      {Head(0, 1) + Str("k") + Le(7u) + "\2", "key 'k': a boolean is 2"},
      {Head(0, 1) + Str("k") + Le(8u) + Le(kMany), "key 'k': the file is cut off"},
      {Head(0, 1) + Str("k") + Le(9u) + Le(5u) + Le(kMany), "key 'k': 4611686018427387904 elem"},
      {Head(0, 1) + Str("k") + Le(9u) + Le(8u) + Le(kMany / 16), "key 'k': 288230376151711744"},
      {Head(0, 1) + Str("k") + Le(9u) + Le(9u), "key 'k': arrays of arrays are not supported"},
      {Head(0, 2) + Str("k") + Le(0u) + "\1" + Str("k") + Le(0u) + "\1",
       "key 'k': stands there twice"},
      {Head(0, 1) + Str("a\nb") + Le(99u) + Le(0u), "key 'a?b': unknown type of value 99"},
      {Head(0, 1) + Str("general.alignment") + Le(4u) + Le(48u),
       "key 'general.alignment': is no power of two"},
      {Head(0, 1) + Str("general.alignment") + Le(4u) + Le(0u),
       "key 'general.alignment': is no power of two"},
      {Head(1, 0) + Info("x", {}, 0, 0) + Le(uint64_t{0}), "tensor 'x': has 0 dimensions"},
      {Head(1, 0) + Info("x", {1, 1, 1, 1, 1}, 0, 0), "tensor 'x': has 5 dimensions"},
      {Head(1, 0) + Info("x", {1}, 4, 0), "tensor 'x': unknown type 4"},
      {Head(1, 0) + Info("x", {uint64_t{1} << 63}, 0, 0), "tensor 'x': a dimension of 92233"},
      {Head(1, 0) + Info("x", {kMany, 4}, 0, 0), "tensor 'x': the shape overflows"},
      {Head(1, 0) + Info("x", {kMany, kMany, kMany}, 0, 0), "tensor 'x': the shape overflows"},
      {Head(1, 0) + Info("x", {33, 2}, 8, 0), "rows are no whole blocks of Q8_0"},
      {Head(1, 0) + Info("x", {1}, 0, uint64_t{1} << 63), "tensor 'x': an offset of 92233"},
      {Padded(Head(1, 0) + Info("x", {1}, 0, 4), 64), "offset 4 is no multiple of 32"},
      {Padded(Head(1, 0) + Info("x", {1}, 0, 64), 64), "4 bytes from 64 on do not lie in the"},
      {Padded(Head(1, 0) + Info("x", {20}, 0, 0), 64), "80 bytes from 0 on do not lie in the"},
      {Head(1, 0) + Info("x", {1}, 0, 0), "do not lie in the file's 0 bytes of data"},
      {Padded(Head(2, 0) + Info("x", {9}, 0, 0) + Info("y", {1}, 0, 32), 64),
       "tensors 'x' and 'y' overlap"},
      {Padded(Head(2, 0) + Info("x", {1}, 0, 0) + Info("x", {1}, 0, 32), 64),
       "tensor 'x': stands there twice"},
      {Head(1, 0) + Info("a\tb", {1}, 0, 0), "tensor 'a?b': is no name"},
  };
  for (const auto& c : cases) {
    const std::string path = Write("x.gguf", c.bytes);
    const std::string message = Refusal(GgufFile::Open(path).status());
    EXPECT_TRUE(message.starts_with(path + ": ")) << message;
    EXPECT_NE(message.find(c.message), std::string::npos) << message << "\nnot " << c.message;
  }
  // Nor does a file that is cut off anywhere read beyond its end.
  const std::string whole = Padded(
      Head(1, 1) + Str("k") + Le(9u) + Le(8u) + Le(uint64_t{1}) + Str("t") + Info("x", {2}, 0, 0),
      8);
  EXPECT_TRUE(GgufFile::Open(Write("x.gguf", whole)).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(GgufFile::Open(Write("x.gguf", whole.substr(0, size))).ok()) << size;
  }
}

TEST_F(GgufTest, WhatIsWrittenIsRead) {
  const GgufMetadata metadata = {
      {"u8", uint8_t{200}},
      {"i8", int8_t{-3}},
      {"u16", uint16_t{60000}},
      {"i16", int16_t{-300}},
      {"u32", uint32_t{4000000000}},
      {"i32", int32_t{-70000}},
      {"f32", 0.5f},
      {"yes", true},
      {"text", std::string("a\0b", 3)},
      {"u64", uint64_t{1} << 63},
      {"i64", std::numeric_limits<int64_t>::min()},
      {"f64", 0.1},
      {"texts", GgufArray(std::vector<std::string>{"", "two"})},
      {"flags", GgufArray(std::vector<bool>{true, false, true})},
      {"floats", GgufArray(std::vector<float>{1.5f})},
      {"none", GgufArray(std::vector<uint64_t>())},
  };
  auto writer = GgufWriter::Create(
      Path("x.gguf"), metadata,
      {{"a", kGgufF32, {3}}, {"nothing", kGgufF16, {0}}, {"b", kGgufF16, {2, 5}}});
  ASSERT_TRUE(writer.ok()) << Message(writer.status());
  std::string numbers;
  for (char i = 0; i < 32; ++i) numbers.push_back(i);
  for (size_t i = 0; i < 32; i += 8) ASSERT_TRUE(writer->Append(&numbers[i], 8).ok());
  EXPECT_FALSE(writer->Append("x", 1).ok());
  ASSERT_TRUE(writer->Commit().ok());
  const GgufFile file = Opened(Path("x.gguf"));
  ASSERT_EQ(file.metadata().size(), metadata.size());
  const auto written = [](const GgufMetadata& m) {
    std::vector<GgufTensor> none;
    return FormatGgufHeader(m, &none);
  };
  EXPECT_EQ(written(file.metadata()), written(metadata));
  EXPECT_EQ(std::memcmp(file.BytesOf(**file.Get("a")), numbers.data(), 12), 0);
  EXPECT_EQ(std::memcmp(file.BytesOf(**file.Get("b")), &numbers[12], 20), 0);
  int64_t integer = 5;
  double real = 0;
  std::string text;
  bool flag = false;
  EXPECT_TRUE(file.Read("i8", &integer).ok());
  EXPECT_EQ(integer, -3);
  EXPECT_TRUE(file.Read("absent", &integer).ok());
  EXPECT_EQ(integer, -3);
  EXPECT_TRUE(file.Read("u8", &real).ok());
  EXPECT_EQ(real, 200);
  EXPECT_EQ(Refusal(file.Read("u64", &integer)), Path("x.gguf") + ": key 'u64' is not an integer");
  EXPECT_EQ(Refusal(file.Read("yes", &real)), Path("x.gguf") + ": key 'yes' is not a number");
  EXPECT_EQ(Refusal(file.Read("f32", &text)), Path("x.gguf") + ": key 'f32' is not a text");
  EXPECT_EQ(Refusal(file.Read("u8", &flag)), Path("x.gguf") + ": key 'u8' is not true or false");
  EXPECT_EQ(Refusal(file.Get("c").status()), Path("x.gguf") + ": no tensor 'c'");

  EXPECT_FALSE(GgufWriter::Create(Path("y"), {{"k", true}, {"k", true}}, {}).ok());
  EXPECT_FALSE(GgufWriter::Create(Path("y"), {}, {{"a", kGgufQ8_0, {2, 33}}}).ok());
  EXPECT_FALSE(
      GgufWriter::Create(Path("y"), {}, {{"a", kGgufF32, {2}}, {"a", kGgufF32, {2}}}).ok());
  auto unfinished = GgufWriter::Create(Path("y"), {}, {{"a", kGgufF32, {2}}});
  EXPECT_NE(Refusal(unfinished->Commit()).find("bytes of tensor 'a' are missing"),
            std::string::npos);
  EXPECT_FALSE(PathExists(Path("y")));
}

// ---- Models ------------------------------------------------------------------------------------

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
  const json back = *data::ReadJsonFile(Path("back/config.json"));
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
  EXPECT_EQ((*data::ReadJsonFile(Path("back/config.json")))["rope_scaling"],
            config["rope_scaling"]);
  const std::vector<float> factors = Values(Opened(Path("a.gguf")), "rope_freqs.weight");
  ASSERT_EQ(factors.size(), 8u);
  // Wavelengths: 6.3 (below 64 / 4), 32.40 (a share of 0.3251 is kept), 167 and more (above 64).
  EXPECT_EQ(factors[0], 1);
  EXPECT_NEAR(factors[1], 1 / ((1 - 0.32508) / 8 + 0.32508), 1e-3);
  EXPECT_EQ(factors[2], 8);
  EXPECT_EQ(factors[7], 8);

  fs::remove_all(Path("back"));
  json yarn = SmallQwen();
  yarn["rope_scaling"] = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  ExpectRoundTrip(Saved("yarn", yarn));
  EXPECT_EQ((*data::ReadJsonFile(Path("back/config.json")))["rope_scaling"], yarn["rope_scaling"]);

  fs::remove_all(Path("back"));
  json mistral = SmallLlama();
  mistral["model_type"] = "mistral";
  mistral["sliding_window"] = 16;
  ExpectRoundTrip(Saved("mistral", mistral));
  EXPECT_EQ((*data::ReadJsonFile(Path("back/config.json")))["sliding_window"], 16);

  fs::remove_all(Path("back"));
  json biased = SmallLlama();
  biased["attention_bias"] = biased["mlp_bias"] = true;
  biased["head_dim"] = 32;
  ExpectRoundTrip(Saved("biased", biased));
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
            path + ": tensor '" + name +
                ".int8': GGUF files have no int8; q8_0 and q4_0 they "
                "have");
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
  EXPECT_EQ(refusal([&](auto& m, auto&) { set(m, "general.architecture", std::string("bert")); }),
            "architecture 'bert' is not supported; gpt2, llama and qwen2 are");
  EXPECT_EQ(refusal([&](auto& m, auto&) {
              std::erase_if(m, [](auto& v) { return v.first == "llama.block_count"; });
            }),
            "key 'llama.block_count' is missing");
  EXPECT_EQ(refusal([&](auto& m, auto&) { set(m, "llama.rope.dimension_count", uint32_t{8}); }),
            "key 'llama.rope.dimension_count' is not the length of keys");
  EXPECT_EQ(refusal([&](auto& m, auto&) { m.emplace_back("split.count", uint16_t{2}); }),
            "is one of 2 parts; a whole file is needed");
  EXPECT_EQ(refusal([&](auto& m, auto&) { m.emplace_back("llama.expert_count", uint32_t{8}); }),
            "key 'llama.expert_count' says that this is a mixture of experts");
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
  EXPECT_EQ(refusal([&](auto&, auto& t) {
              find(t, "blk.0.ffn_up.weight").type = {3, "Q4_1", 32, 20};
            }),
            "tensor 'blk.0.ffn_up.weight' is Q4_1; F32, F16, BF16, Q8_0 and Q4_0 are supported");
  EXPECT_EQ(refusal([&](auto&, auto& t) { find(t, "blk.0.attn_norm.weight").type = kGgufQ8_0; }),
            "tensor 'blk.0.attn_norm.weight' is quantised, and no matrix");
  EXPECT_NE(refusal([&](auto&, auto& t) { t.erase(t.begin() + 3); }).find("no tensor 'blk"),
            std::string::npos);
}

// ---- Tokenizers --------------------------------------------------------------------------------

TEST_F(GgufTest, TheByteTokenizerBecomesBpe) {
  const data::ByteTokenizer bytes;
  const std::string folder = Saved("m", SmallGpt(), &bytes);
  ASSERT_TRUE(WriteFileAtomically(folder + "/chat_template.jinja", "{{ messages }}").ok());
  ExpectRoundTrip(folder);
  const auto back = data::LoadTokenizer(Path("back"));
  ASSERT_TRUE(back.ok()) << Message(back.status());
  const std::string text = "Hello,  w\xC3\xB6rld\n\xF0\x9F\x99\x82 12345";
  EXPECT_EQ((*back)->Encode(text), bytes.Encode(text));
  EXPECT_EQ((*back)->eos_id(), 256);
  EXPECT_EQ(Bytes(Path("back/chat_template.jinja")), "{{ messages }}");
  EXPECT_EQ((*data::ReadJsonFile(Path("back/config.json")))["eos_token_id"], 256);
}

// A file of the small Llama with this tokenizer, converted to a folder.
class TokenizerTest : public GgufTest {
 protected:
  std::string Convert(const GgufMetadata& tokenizer) const {
    const std::string folder = Saved("m", SmallLlama());
    EXPECT_TRUE(ConvertToGguf(folder, Path("m.gguf")).ok());
    const GgufFile file = Opened(Path("m.gguf"));
    GgufMetadata metadata = file.metadata();
    std::erase_if(metadata, [](const auto& v) { return v.first.starts_with("tokenizer."); });
    metadata.insert(metadata.end(), tokenizer.begin(), tokenizer.end());
    auto writer = GgufWriter::Create(Path("t.gguf"), metadata, file.tensors());
    EXPECT_TRUE(writer.ok()) << Message(writer.status());
    for (const GgufTensor& t : file.tensors()) {
      EXPECT_TRUE(writer->Append(file.BytesOf(t), t.nbytes).ok());
    }
    EXPECT_TRUE(writer->Commit().ok());
    const Status status = ConvertFromGguf(Path("t.gguf"), Path("t"));
    EXPECT_TRUE(status.ok()) << Message(status);
    // The other way gives the same keys.
    const Status again = ConvertToGguf(Path("t"), Path("again.gguf"));
    EXPECT_TRUE(again.ok()) << Message(again);
    EXPECT_TRUE(Bytes(Path("t.gguf")) == Bytes(Path("again.gguf")));
    return Path("t");
  }
  static std::vector<int32_t> Ids(const std::string& folder, const std::string& text) {
    const auto tokenizer = data::LoadTokenizer(folder);
    EXPECT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
    return (*tokenizer)->Encode(text);
  }
  // With unused ones behind these.
  static void Fill(std::vector<std::string>* tokens, std::vector<int32_t>* types) {
    types->resize(tokens->size(), 1);
    while (tokens->size() < 300) tokens->push_back(Concat("[PAD", tokens->size(), "]"));
    types->resize(300, 5);
  }
};

TEST_F(TokenizerTest, ByteLevelBpe) {
  for (const std::string pre : {"gpt-2", "llama-bpe", "qwen2"}) {
    fs::remove_all(Path("t"));
    std::vector<std::string> tokens = {"1",    "2", "3",         "12",      "123",   "23",
                                       "1234", "4", "<|begin|>", "<|end|>", "<tool>"};
    std::vector<int32_t> types(tokens.size(), 1);
    types[8] = types[9] = 3;
    types[10] = 4;
    Fill(&tokens, &types);
    const bool bos = pre == "llama-bpe";
    const std::string folder = Convert({
        {"tokenizer.ggml.model", std::string("gpt2")},
        {"tokenizer.ggml.pre", pre},
        {"tokenizer.ggml.bos_token_id", uint32_t{8}},
        {"tokenizer.ggml.eos_token_id", uint32_t{9}},
        {"tokenizer.ggml.tokens", GgufArray(tokens)},
        {"tokenizer.ggml.token_type", GgufArray(types)},
        {"tokenizer.ggml.merges",
         GgufArray(std::vector<std::string>{"1 2", "12 3", "2 3", "123 4"})},
        {"tokenizer.ggml.add_bos_token", bos},
        {"tokenizer.ggml.add_eos_token", false},
    });
    // Llama 3 has three digits in a word, Qwen2 one, GPT-2 all.
    const std::vector<int32_t> digits = pre == "gpt-2"       ? std::vector<int32_t>{6}
                                        : pre == "llama-bpe" ? std::vector<int32_t>{4, 7}
                                                             : std::vector<int32_t>{0, 1, 2, 7};
    EXPECT_EQ(Ids(folder, "1234"), digits) << pre;
    EXPECT_EQ(Ids(folder, "4<|end|>4<tool>"), (std::vector<int32_t>{7, 9, 7, 10})) << pre;
    const auto tokenizer = data::LoadTokenizer(folder);
    EXPECT_EQ((*tokenizer)->bos_id(), 8);
    EXPECT_EQ((*tokenizer)->eos_id(), 9);
    EXPECT_TRUE((*tokenizer)->IsSpecial(9));
    EXPECT_FALSE((*tokenizer)->IsSpecial(10));
    const data::RowTemplate* const row = (*tokenizer)->row_template(false);
    EXPECT_EQ(row != nullptr && row->items.front().id == 8, bos);
  }
}

TEST_F(TokenizerTest, SentencePiece) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte);
    tokens.emplace_back(text);
    types.push_back(6);
  }
  for (const char* piece : {"\u2581", "a", "b", "ab", "\u2581ab"}) tokens.emplace_back(piece);
  types.resize(tokens.size(), 1);
  tokens.emplace_back("<|im_start|>");
  types.push_back(3);
  std::vector<float> scores(tokens.size(), 0);
  for (size_t i = 259; i < scores.size(); ++i) scores[i] = -static_cast<float>(300 - i);
  Fill(&tokens, &types);
  scores.resize(300, -10000);
  const std::string folder = Convert({
      {"tokenizer.ggml.model", std::string("llama")},
      {"tokenizer.ggml.pre", std::string("default")},
      {"tokenizer.ggml.bos_token_id", uint32_t{1}},
      {"tokenizer.ggml.eos_token_id", uint32_t{2}},
      {"tokenizer.ggml.unknown_token_id", uint32_t{0}},
      {"tokenizer.ggml.tokens", GgufArray(tokens)},
      {"tokenizer.ggml.scores", GgufArray(scores)},
      {"tokenizer.ggml.token_type", GgufArray(types)},
      {"tokenizer.ggml.add_bos_token", true},
      {"tokenizer.ggml.add_eos_token", false},
      {"tokenizer.ggml.add_space_prefix", true},
      {"tokenizer.ggml.remove_extra_whitespaces", false},
  });
  EXPECT_EQ(Ids(folder, "ab ba"), (std::vector<int32_t>{263, 259, 261, 260}));
  EXPECT_EQ(Ids(folder, "c"), (std::vector<int32_t>{259, 3 + 'c'}));
  EXPECT_EQ(Ids(folder, "<|im_start|>").back(), 264);
  const auto tokenizer = data::LoadTokenizer(folder);
  EXPECT_EQ((*tokenizer)->bos_id(), 1);
  EXPECT_EQ((*tokenizer)->eos_id(), 2);
}

}  // namespace
}  // namespace tessera::models
