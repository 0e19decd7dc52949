// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_folder.h"

#include "data/tokenizer/byte_tokenizer.h"
#include "models/hub/gguf/gguf_test_models.h"
#include "models/hub/tensor_list.h"

namespace tessera::models {
namespace {

using nlohmann::json;

class GgufFolderTest : public GgufTest, public testing::WithParamInterface<int> {
 protected:
  static MountedFolder Mounted(const GgufFile& file) {
    auto folder = MountGguf(file);
    EXPECT_TRUE(folder.ok()) << Message(folder.status());
    return *std::move(folder);
  }
};

// Every parameter of the model as it was before it became a GGUF file.
TEST_P(GgufFolderTest, HasTheModelsWeights) {
  json config = GetParam() % 3 == 0 ? SmallGpt() : GetParam() % 3 == 1 ? SmallLlama() : SmallQwen();
  if (GetParam() == 1) config["attention_bias"] = true;
  const data::ByteTokenizer bytes;
  const std::string folder = Saved("m", config, &bytes);
  if (GetParam() >= 3) QuantizeFolder(folder, QuantType::kQ8_0);
  ASSERT_TRUE(ConvertToGguf(folder, Path("m.gguf")).ok());
  const GgufFile file = Opened(Path("m.gguf"));
  const MountedFolder mounted = Mounted(file);
  EXPECT_EQ(mounted.path(), "<" + Path("m.gguf") + ">");
  const auto before = WeightFiles::Open(folder);
  const auto after = WeightFiles::Open(mounted.path());
  ASSERT_TRUE(after.ok()) << Message(after.status());
  EXPECT_EQ(before->Names(), after->Names());
  int in_file = 0;
  for (const std::string& name : before->Names()) {
    const Tensor was = *before->Read(name), is = *after->Read(name);
    EXPECT_EQ(was.shape(), is.shape()) << name;
    EXPECT_EQ(was.ToVector<float>(), is.ToVector<float>()) << name;
    const auto* const data = static_cast<const std::byte*>(is.raw_data());
    const std::byte* const begin = file.bytes().data();
    const bool mapped = data >= begin && data < begin + file.bytes().size();
    const bool moves = name.find("q_proj") != name.npos || name.find("k_proj") != name.npos;
    const bool turns = name.find(".c_") != name.npos && name.ends_with(".weight");
    EXPECT_EQ(mapped, !((moves && config["model_type"] == "llama") || turns)) << name;
    in_file += mapped;
  }
  EXPECT_GT(in_file, 4);
  for (const bool map : {false, true}) {
    const auto model = LoadModel(mounted.path(), {.require_weights = true, .map_weights = map});
    EXPECT_TRUE(model.ok()) << Message(model.status());
  }
  const auto tokenizer = data::LoadTokenizer(mounted.path());
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  EXPECT_EQ((*tokenizer)->Encode("abc"), bytes.Encode("abc"));
}

INSTANTIATE_TEST_SUITE_P(Families, GgufFolderTest, testing::Range(0, 6));

TEST_F(GgufTest, AListOfTensorsLiesInItsFile) {
  Write("bytes", std::string(24, '\1'));
  const auto refusal = [&](const json& tensor) {
    Write("model.tensors.json", json{{"file", "bytes"}, {"tensors", {tensor}}}.dump());
    const auto list = TensorList::Open(Path("model.tensors.json"));
    return list.ok() ? "" : Message(list.status());
  };
  const json whole = {{"name", "t"}, {"dtype", "F32"}, {"shape", {2, 3}}, {"begin", 0}};
  EXPECT_EQ(refusal(whole), "");
  const auto changed = [&](const json& keys) {
    json tensor = whole;
    tensor.update(keys);
    return refusal(tensor);
  };
  EXPECT_EQ(changed({{"sizes", {3, 2}}, {"strides", {1, 3}}}), "");
  const std::string beyond =
      Path("model.tensors.json") + ": tensor 't' does not lie in the file's 24 bytes";
  for (const json& keys : std::vector<json>{{{"begin", 4}},
                                            {{"begin", -4}},
                                            {{"shape", {2, 4}}},
                                            {{"shape", {-2, -3}}},
                                            {{"shape", {INT64_MAX, 2}}},
                                            {{"dtype", "F64"}},
                                            {{"sizes", {3, 2}}},
                                            {{"sizes", {6, 2}}, {"strides", {1, 0}}},
                                            {{"sizes", {3, 2}}, {"strides", {2, 2}}},
                                            {{"sizes", {3, 2}}, {"strides", {-1, 3}}}}) {
    EXPECT_EQ(changed(keys), beyond) << keys;
  }
  EXPECT_NE(changed({{"dtype", "Q"}}).find("the type 'Q' is unknown"), std::string::npos);
  EXPECT_NE(changed({{"begin", "x"}}).find("model.tensors.json: "), std::string::npos);
  Write("model.tensors.json", R"({"file": "../bytes", "tensors": []})");
  EXPECT_EQ(Message(TensorList::Open(Path("model.tensors.json")).status()),
            Path("model.tensors.json") + ": 'file' is not a file name");
}

}  // namespace
}  // namespace tessera::models
