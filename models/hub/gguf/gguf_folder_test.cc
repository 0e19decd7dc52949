// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_folder.h"

#include "data/tokenizer/byte_tokenizer.h"
#include "models/hub/gguf/gguf_test_models.h"
#include "models/hub/tensor_list.h"
#include "nlohmann/json.hpp"

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
  const json configs[] = {SmallGpt(), SmallLlama(), SmallQwen(), SmallGemma3()};
  json config = configs[GetParam() % 4];
  if (GetParam() == 1) config["attention_bias"] = true;
  const data::ByteTokenizer bytes;
  const std::string folder = Saved("m", config, &bytes);
  if (GetParam() >= 4) QuantizeFolder(folder, QuantType::kQ8_0);
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
    const std::byte* const begin = file.parts()[0].data();
    const bool mapped = data >= begin && data < begin + file.parts()[0].size();
    const bool moves = name.find("q_proj") != name.npos || name.find("k_proj") != name.npos;
    const bool turns = name.find(".c_") != name.npos && name.ends_with(".weight");
    const bool adds = config["model_type"] == "gemma3_text" && name.find("norm") != name.npos;
    EXPECT_EQ(mapped, !((moves && config["model_type"] == "llama") || turns || adds)) << name;
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

INSTANTIATE_TEST_SUITE_P(Families, GgufFolderTest, testing::Range(0, 8));

TEST_F(GgufTest, PartsAreOneModel) {
  const data::ByteTokenizer bytes;
  ASSERT_TRUE(ConvertToGguf(Saved("m", SmallLlama(), &bytes), Path("m.gguf")).ok());
  const GgufFile whole = Opened(Path("m.gguf"));
  const std::string first = InParts(whole, 3, "p");
  // By any of its parts; as a folder the files of either are the same.
  for (const std::string& path : {first, Path("p-00003-of-00003.gguf")}) {
    const GgufFile file = Opened(path);
    EXPECT_EQ(file.path(), first);
    EXPECT_EQ(file.tensors().size(), whole.tensors().size());
  }
  const auto mounted = MountGguf(Opened(first));
  ASSERT_TRUE(mounted.ok()) << Message(mounted.status());
  const auto before = WeightFiles::Open(Path("m"));
  const auto after = WeightFiles::Open(mounted->path());
  ASSERT_TRUE(after.ok()) << Message(after.status());
  EXPECT_EQ(before->Names(), after->Names());
  for (const std::string& name : before->Names()) {
    EXPECT_EQ(before->Read(name)->ToVector<float>(), after->Read(name)->ToVector<float>()) << name;
  }
  ASSERT_TRUE(ConvertFromGguf(first, Path("from_parts")).ok());
  ASSERT_TRUE(ConvertFromGguf(Path("m.gguf"), Path("from_whole")).ok());
  for (const char* file : {"config.json", "tokenizer_config.json"}) {
    EXPECT_TRUE(Bytes(Path("from_parts/") + file) == Bytes(Path("from_whole/") + file)) << file;
  }
}

TEST_F(GgufTest, PartsThatDoNotFitAreNamed) {
  ASSERT_TRUE(ConvertToGguf(Saved("m", SmallLlama()), Path("m.gguf")).ok());
  const GgufFile whole = Opened(Path("m.gguf"));
  const auto refusal = [&](const std::string& path) {
    return Refusal(GgufFile::Open(Path(path)).status());
  };
  const std::string second = Path("p-00002-of-00003.gguf");
  InParts(whole, 3, "p");
  std::filesystem::remove(second);
  EXPECT_EQ(
      refusal("p-00001-of-00003.gguf"),
      second + ": there is no such file; " + Path("p-00001-of-00003.gguf") + " is one of 3 parts");
  std::filesystem::copy_file(Path("p-00003-of-00003.gguf"), second);
  EXPECT_EQ(refusal("p-00001-of-00003.gguf"), second + ": is part 3 of 3, not 2 of 3");
  std::filesystem::copy_file(Path("p-00001-of-00003.gguf"), Path("renamed.gguf"));
  EXPECT_EQ(refusal("renamed.gguf"), Path("renamed.gguf") +
                                         ": is one of 3 parts, whose names end with "
                                         "-00001-of-00003.gguf and so on");
  const GgufFile other = Opened(InParts(whole, 2, "q"));
  std::filesystem::remove(second);
  GgufMetadata metadata = {{"split.no", uint16_t{1}}, {"split.count", uint16_t{3}}};
  WithMetadata(whole, metadata, "p-00002-of-00003.gguf");
  EXPECT_EQ(refusal("p-00001-of-00003.gguf"),
            second + ": tensor '" + whole.tensors()[0].name + "' is in another part too");
  std::filesystem::remove(second);
  auto writer = GgufWriter::Create(second, metadata, {{"extra", kGgufF32, {1}}});
  const float zero = 0;
  ASSERT_TRUE(writer->Append(&zero, 4).ok() && writer->Commit().ok());
  EXPECT_NE(refusal("p-00001-of-00003.gguf").find(": the parts have "), std::string::npos);
  // Bytes that were read elsewhere have no neighbours.
  const auto alone = GgufFile::Of(whole.parts()[0], "m");
  ASSERT_TRUE(alone.ok());
}

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
  EXPECT_EQ(changed({{"plus", -1}}), "");
  EXPECT_NE(changed({{"plus", -1}, {"dtype", "I32"}}).find("nothing can be added to 'I32'"),
            std::string::npos);
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
