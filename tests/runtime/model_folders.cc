// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/model_folders.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "base/file.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "gtest/gtest.h"
#include "models/classification.h"
#include "models/family.h"
#include "models/hub/save_model.h"
#include "nlohmann/json.hpp"
#include "tests/inference/small_models.h"

namespace tessera {
namespace {

// 53 tokens, as SmallConfig("bert") has.
void WriteVocabulary(const std::string& path) {
  std::ofstream file(path);
  file << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (char letter = 'a'; letter < 'a' + 24; ++letter) file << letter << "\n##" << letter << "\n";
}

std::string MakeFolder(const std::string& model_type) {
  const std::string folder =
      (std::filesystem::path(testing::TempDir()) / ("model_" + model_type)).string();
  std::filesystem::remove_all(folder);
  const bool is_long = model_type == kLongGpt;
  nlohmann::json config = SmallConfig(is_long ? "gpt2" : model_type);
  if (is_long) config["n_positions"] = 1024;
  if (model_type == "vit") {
    config["architectures"] = {"ViTForImageClassification"};
    models::SetLabels({"cat", "dog", "fish"}, &config);
  }
  const auto model = models::BuildModel(config, {.seed = 5});
  EXPECT_TRUE(model.ok()) << model.status();
  const data::ByteTokenizer bytes;
  const Status saved =
      models::SaveModel(**model, folder, model_type == "gpt2" || is_long ? &bytes : nullptr);
  EXPECT_TRUE(saved.ok()) << saved;
  if (model_type == "bert") WriteVocabulary(JoinPath(folder, "vocab.txt"));
  return folder;
}

template <typename Make>
const std::string& Cached(const std::string& model_type, const Make& make) {
  static auto* const mutex = new std::mutex;
  static auto* const made = new std::map<std::string, std::string>;
  const std::lock_guard<std::mutex> lock(*mutex);
  const auto found = made->find(model_type);
  return found != made->end() ? found->second
                              : made->emplace(model_type, make(model_type)).first->second;
}

void AppendLine(std::ostream& out, std::string_view name, const std::vector<int64_t>& shape,
                const void* data, size_t bytes) {
  out << name << " [";
  for (const int64_t size : shape) out << " " << size;
  out << " ] " << std::hex << data::HashBytes({static_cast<const char*>(data), bytes}) << std::dec
      << "\n";
}

}  // namespace

const std::string& SmallModelFolder(const std::string& model_type) {
  return Cached(model_type, MakeFolder);
}

const std::string& SmallModelArchive(const std::string& model_type) {
  const std::string& folder = SmallModelFolder(model_type);
  return Cached(model_type + ".tar", [&](const std::string& name) {
    const std::string path = (std::filesystem::path(testing::TempDir()) / name).string();
    EXPECT_EQ(std::system(("tar cf " + path + " -C " + folder + " .").c_str()), 0);
    return path;
  });
}

int CodeOf(tsr_status* status, std::string* message) {
  const int code = tsr_status_code(status);
  if (message != nullptr) *message = tsr_status_message(status);
  tsr_status_release(status);
  return code;
}

void ReleaseHandle::operator()(tsr_model* model) const {
  EXPECT_EQ(CodeOf(tsr_model_release(model)), TSR_OK);
}
void ReleaseHandle::operator()(tsr_context* context) const {
  EXPECT_EQ(CodeOf(tsr_context_release(context)), TSR_OK);
}
void ReleaseHandle::operator()(tsr_named_tensor* tensors) const {
  EXPECT_EQ(CodeOf(tsr_tensors_release(tensors)), TSR_OK);
}

ModelHandle LoadHandle(const std::string& path, const tsr_load_options* options) {
  tsr_model* model = nullptr;
  std::string message;
  EXPECT_EQ(CodeOf(tsr_model_load(path.c_str(), options, &model), &message), TSR_OK) << message;
  return ModelHandle(model);
}

ContextHandle ContextOf(const ModelHandle& model, const tsr_context_options* options) {
  tsr_context* context = nullptr;
  std::string message;
  EXPECT_EQ(CodeOf(tsr_context_create(model.get(), options, &context), &message), TSR_OK)
      << message;
  return ContextHandle(context);
}

NamedTensors::NamedTensors(const Bundle& bundle) {
  for (const auto& [name, t] : bundle.entries()) {
    kept.push_back(t.ContiguousCopy());
    shapes.emplace_back(t.shape().begin(), t.shape().end());
    names.push_back(name);
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    const tsr_dtype dtype = kept[i].dtype() == DType::kInt64 ? TSR_INT64 : TSR_FLOAT32;
    EXPECT_TRUE(kept[i].dtype() == DType::kInt64 || kept[i].dtype() == DType::kFloat32);
    tensors.push_back({names[i].c_str(), dtype, shapes[i].size(), shapes[i].data(),
                       kept[i].raw_data(), static_cast<size_t>(kept[i].nbytes())});
  }
}

std::string TextOf(const tsr_named_tensor* tensors, size_t count) {
  std::ostringstream text;
  for (size_t i = 0; i < count; ++i) {
    const tsr_named_tensor& t = tensors[i];
    AppendLine(text, t.name, {t.shape, t.shape + t.rank}, t.data, t.bytes);
  }
  return text.str();
}

std::string TextOf(const Bundle& bundle) {
  std::ostringstream text;
  for (const auto& [name, t] : bundle.entries()) {
    const Tensor whole = t.ContiguousCopy();
    AppendLine(text, name, {whole.shape().begin(), whole.shape().end()}, whole.raw_data(),
               static_cast<size_t>(whole.nbytes()));
  }
  return text.str();
}

int Collect(void* user, const tsr_token* token) {
  auto* const generated = static_cast<Generated*>(user);
  if (token->id >= 0) {
    std::vector<int64_t>& ids = generated->sequences[token->sequence];
    ids.push_back(token->id);
    generated->ids.clear();
    for (const auto& [sequence, more] : generated->sequences) {
      generated->ids.insert(generated->ids.end(), more.begin(), more.end());
    }
  }
  generated->text.append(token->text, token->length);
  generated->end = token->end;
  return 0;
}

Generated GenerateWith(tsr_context* context, const std::vector<int64_t>& prompt,
                       const tsr_generate_options* options) {
  Generated generated;
  std::string message;
  EXPECT_EQ(
      CodeOf(tsr_generate(context, prompt.data(), prompt.size(), options, Collect, &generated),
             &message),
      TSR_OK)
      << message;
  return generated;
}

}  // namespace tessera
