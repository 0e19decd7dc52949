// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_folder.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "models/family.h"
#include "models/hub/gguf/gguf_config.h"
#include "models/hub/gguf/gguf_tokenizer.h"
#include "models/hub/quantized_entries.h"
#include "models/hub/tensor_list.h"
#include "models/hub/weight_files.h"
#include "nlohmann/json.hpp"
#include "ops/quantized/quantized_matrix.h"

namespace tessera::models {
namespace {

using nlohmann::json;

// Of a part's list of tensors and of the part itself.
struct PartNames {
  std::string list;
  std::string file;
};
PartNames NamesOfPart(size_t part, size_t parts) {
  if (parts == 1) return {std::string(kTensorListName), "model.gguf"};
  return {Concat("model-", part + 1, ".tensors.json"), Concat("model-", part + 1, ".gguf")};
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += Concat(text.empty() ? "" : ", ", size);
  return "[" + text + "]";
}

// A tensor of the file as an entry of the folder.
struct Found {
  ListedTensor listed;
  const GgufTensor* tensor = nullptr;
};

std::vector<int64_t> WithoutLeadingOnes(std::vector<int64_t> shape) {
  const auto first = std::find_if(shape.begin(), shape.end(), [](int64_t n) { return n != 1; });
  shape.erase(shape.begin(), first == shape.end() && !shape.empty() ? first - 1 : first);
  return shape;
}

// The view of the file's elements that is the folder's tensor: each head's rows as halves instead
// of pairs, or inputs before outputs.
void Rearrange(const GgufPlace& place, bool dense, ListedTensor* listed) {
  const std::vector<int64_t>& shape = listed->entry.shape;
  if (place.interleaved_heads > 0) {
    const int64_t half = shape[0] / place.interleaved_heads / 2;
    const int64_t row = shape.size() > 1 ? shape[1] : 1;
    listed->sizes = {place.interleaved_heads, 2, half, row};
    listed->strides = {2 * half * row, row, 2 * row, 1};
  } else if (dense && place.transposed) {
    listed->sizes = shape;
    listed->strides = {1, shape[0]};
  }
}

StatusOr<Found> Find(const GgufFile& file, const GgufNames& names, const nn::Parameter& p) {
  TESSERA_ASSIGN_OR_RETURN(GgufPlace place, PlaceOf(names, p));
  if (place.slices > 0 && file.Find(place.own_name) != nullptr) {
    place.name = place.own_name;
    place.slices = place.slice = 0;
  }
  TESSERA_ASSIGN_OR_RETURN(const GgufTensor* tensor, file.Get(place.name));
  const std::vector<int64_t> expected = TensorShape(p, place);
  if (WithoutLeadingOnes(tensor->shape) != expected) {
    return InvalidArgument(file.path(), ": tensor '", tensor->name, "' has shape ",
                           ShapeText(tensor->shape), "; the model asks for ", ShapeText(expected));
  }
  Found found;
  found.tensor = tensor;
  const std::vector<int64_t> shape = OutputsFirst(p, place);
  found.listed.begin = tensor->begin;
  if (place.slices > 0) found.listed.begin += place.slice * (tensor->nbytes / place.slices);
  found.listed.plus = -place.added;
  const std::optional<QuantType> quant = QuantTypeOf(tensor->type);
  if (quant) {
    if (shape.size() != 2) {
      return InvalidArgument(file.path(), ": tensor '", tensor->name,
                             "' is quantised, and no matrix");
    }
    found.listed.entry = {QuantizedEntryName(p.name, *quant),
                          DType::kUInt8,
                          {shape[0], QuantRowBytes(*quant, shape[1])}};
  } else {
    const Shape& global = p.placement.global_shape();
    found.listed.entry = {p.name, *DenseTypeOf(tensor->type), {global.begin(), global.end()}};
  }
  Rearrange(place, !quant, &found.listed);
  return found;
}

Status CheckNothingIsLeft(const GgufFile& file, const std::vector<Found>& all,
                          const std::string& architecture) {
  std::set<std::string> used;
  for (const Found& found : all) used.insert(found.tensor->name);
  for (const GgufTensor& tensor : file.tensors()) {
    if (used.count(tensor.name) != 0 || IsGgufFactors(tensor.name)) continue;
    if (IsOfPredictingLayer(file, architecture, tensor.name)) continue;
    return InvalidArgument(file.path(), ": tensor '", tensor.name, "' has no place in a model of ",
                           architecture);
  }
  return OkStatus();
}

Status AddTokenIds(const GgufFile& file, json* config) {
  TESSERA_ASSIGN_OR_RETURN(const GgufTensor* embedding, file.Get("token_embd.weight"));
  for (const auto& [ours, theirs] : {std::pair("bos_token_id", "tokenizer.ggml.bos_token_id"),
                                     {"eos_token_id", kGgufEndKeys[0].data()},
                                     {"pad_token_id", kGgufPaddingKey.data()}}) {
    int64_t id = -1;
    TESSERA_RETURN_IF_ERROR(file.Read(theirs, &id));
    // Padding alone may be beyond the table (gguf_tokens.cc).
    const bool is_none = id < 0 || (theirs == kGgufPaddingKey && id >= embedding->shape[0]);
    (*config)[ours] = is_none ? json() : json(id);
  }
  return OkStatus();
}

// Texts that end at several tokens have them in generation_config.json, as folders do.
Status AddEnds(const GgufFile& file, const json& config, FolderTexts* texts) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> ends, EndsOfGguf(file));
  if (ends.size() < 2) return OkStatus();
  json generation = {{"eos_token_id", ends}};
  for (const char* key : {"bos_token_id", "pad_token_id"}) {
    if (!config[key].is_null()) generation[key] = config[key];
  }
  (*texts)["generation_config.json"] = ConfigText(generation);
  return OkStatus();
}

// In what types the weights are.
void AddTypes(const std::vector<Found>& all, json* config) {
  DType dtype = DType::kFloat32;
  for (const Found& found : all) {
    if (const auto quant = QuantTypeOf(found.tensor->type)) {
      SetQuantizationConfig(quant, config);
    } else if (IsHalf(found.listed.entry.dtype)) {
      dtype = found.listed.entry.dtype;
    }
  }
  (*config)["dtype"] = DTypeName(dtype);
}

}  // namespace

StatusOr<std::unique_ptr<Model>> ShapesOf(const json& config, const std::string& where) {
  auto model = BuildModel(config, {.device = Device::Meta(), .initialise = false});
  if (model.ok()) return model;
  return Failure(model.status().code(), where, ": ", Message(model.status()));
}

StatusOr<GgufPlace> PlaceOf(const GgufNames& names, const nn::Parameter& p) {
  std::optional<GgufPlace> place = names.PlaceOf(p.name);
  if (place) return *std::move(place);
  return InvalidArgument("parameter '", p.name, "' has no place in a GGUF file of ",
                         names.architecture());
}

Tensor Interleaved(const Tensor& t, int64_t heads) {
  const int64_t half = t.size(0) / heads / 2;
  const int64_t row = t.numel() / t.size(0);
  return t.AsStrided({heads, half, 2, row}, {2 * half * row, row, half * row, 1}, t.offset())
      .ContiguousCopy()
      .AsStrided(t.shape(), ContiguousStrides(t.shape()), 0);
}

std::vector<int64_t> OutputsFirst(const nn::Parameter& p, const GgufPlace& place) {
  const Shape& global = p.placement.global_shape();
  std::vector<int64_t> shape(global.begin(), global.end());
  if (place.transposed) std::reverse(shape.begin(), shape.end());
  return shape;
}

std::vector<int64_t> TensorShape(const nn::Parameter& p, const GgufPlace& place) {
  std::vector<int64_t> shape = OutputsFirst(p, place);
  if (place.slices > 0) shape.insert(shape.begin(), place.slices);
  return WithoutLeadingOnes(std::move(shape));
}

StatusOr<MountedFolder> MountGguf(const GgufFile& file) {
  TESSERA_ASSIGN_OR_RETURN(json config, ConfigOfGguf(file));
  TESSERA_RETURN_IF_ERROR(AddTokenIds(file, &config));
  TESSERA_ASSIGN_OR_RETURN(const auto model, ShapesOf(config, file.path()));
  TESSERA_ASSIGN_OR_RETURN(const GgufNames names, GgufNames::Of(config));
  std::vector<Found> all;
  for (const nn::Parameter* p : model->Parameters()) {
    if (p->tied_to != nullptr) continue;
    TESSERA_ASSIGN_OR_RETURN(Found found, Find(file, names, *p));
    all.push_back(std::move(found));
  }
  TESSERA_RETURN_IF_ERROR(CheckNothingIsLeft(file, all, names.architecture()));
  AddTypes(all, &config);
  TESSERA_ASSIGN_OR_RETURN(FolderTexts texts, TokenizerOfGguf(file));
  TESSERA_RETURN_IF_ERROR(AddEnds(file, config, &texts));
  texts["config.json"] = ConfigText(config);
  const size_t parts = file.parts().size();
  std::vector<std::vector<ListedTensor>> listed(parts);
  json index = json::object();
  for (Found& found : all) {
    index[found.listed.entry.name] = NamesOfPart(found.tensor->part, parts).list;
    listed[found.tensor->part].push_back(std::move(found.listed));
  }
  for (size_t i = 0; i < parts; ++i) {
    const PartNames names_of_part = NamesOfPart(i, parts);
    texts[names_of_part.list] = TensorListJson(names_of_part.file, listed[i]).dump();
  }
  if (parts > 1) texts[std::string(kWeightsIndexName)] = json{{"weight_map", index}}.dump();
  MountedFolder::Files files = MountedTexts(texts);
  for (size_t i = 0; i < parts; ++i) {
    files.emplace(NamesOfPart(i, parts).file, file.parts()[i]);
  }
  return MountedFolder(file.path(), std::move(files));
}

}  // namespace tessera::models
