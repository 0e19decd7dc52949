// SPDX-License-Identifier: Apache-2.0
#include "models/hub/save_model.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/output_files.h"
#include "core/safetensors.h"
#include "models/family.h"
#include "models/hub/adapter_config.h"
#include "models/hub/quantized_entries.h"
#include "models/hub/weight_files.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

// A parameter, and what it is in the file.
struct Entry {
  std::string name;
  nn::Parameter* parameter = nullptr;
  DType dtype;
  Shape shape;
  // How it lies where it is dense, if it is to be quantised.
  std::optional<LinearLayout> quantised = std::nullopt;

  int64_t bytes() const { return BytesOf(dtype, shape.numel()); }
};

struct Shard {
  std::string name;
  std::vector<Entry> entries;
};

// The parameters in the model's order, tied ones once, each followed by its copies.
std::vector<Entry> EntriesOf(Model& model, const std::vector<EntryCopy>& copies,
                             std::optional<QuantType> type) {
  std::map<std::string, LinearLayout> layouts;
  if (type) layouts = nn::QuantizableWeights(model);
  std::vector<Entry> entries;
  const auto add = [&](const std::string& name, nn::Parameter& p) {
    const Shape& shape = p.placement.global_shape();
    const auto layout = layouts.find(p.name);
    if (layout != layouts.end()) {
      const int in = layout->second == LinearLayout::kOutIn ? 1 : 0;
      if (CanQuantize(*type, shape[in])) {
        entries.push_back({QuantizedEntryName(name, *type),
                           &p,
                           DType::kUInt8,
                           {shape[1 - in], QuantRowBytes(*type, shape[in])},
                           layout->second});
        return;
      }
    }
    entries.push_back({name, &p, p.tensor.dtype(), shape});
  };
  model.VisitParameters([&](nn::Parameter& p) {
    if (p.tied_to != nullptr) return;
    add(p.name, p);
    for (const EntryCopy& copy : copies) {
      if (copy.of == p.name) add(copy.name, p);
    }
  });
  return entries;
}

// The entries in order, cut into files.
std::vector<Shard> CutIntoShards(const std::vector<Entry>& entries, int64_t max_shard_bytes) {
  std::vector<Shard> shards(1);
  int64_t bytes = 0;
  for (const Entry& entry : entries) {
    if (!shards.back().entries.empty() && bytes + entry.bytes() > max_shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().entries.push_back(entry);
    bytes += entry.bytes();
  }
  if (shards.size() == 1) {
    shards[0].name = kWeightsName;
    return shards;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    char name[64];
    std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
    shards[i].name = name;
  }
  return shards;
}

StatusOr<Tensor> WholeOf(nn::Parameter& p, const SaveOptions& options) {
  if (options.gather == nullptr) {
    if (p.tensor.device().is_meta()) {
      return InvalidArgument("parameter '", p.name, "' has no numbers of its own to write");
    }
    if (p.placement.is_whole()) return CopyTo(p.tensor, Device::Cpu()).ContiguousCopy();
    return InvalidArgument("parameter '", p.name, "' is a shard: gathering a model is dist/'s");
  }
  TESSERA_ASSIGN_OR_RETURN(const Tensor whole, options.gather(p));
  if (options.write &&
      (whole.shape() != p.placement.global_shape() || whole.dtype() != p.tensor.dtype())) {
    return Internal("parameter '", p.name, "' was gathered as ", whole, ", not ",
                    p.placement.global_shape());
  }
  return options.write ? CopyTo(whole, Device::Cpu()).ContiguousCopy() : whole;
}

// As it is in the file.
StatusOr<Tensor> ContentOf(const Entry& entry, const SaveOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const Tensor whole, WholeOf(*entry.parameter, options));
  if (!entry.quantised) return whole;
  StatusOr<QuantizedMatrix> matrix =
      Quantize(nn::OutputsAsRows(whole, *entry.quantised), *options.quantize);
  if (matrix.ok()) return matrix->bytes;
  return InvalidArgument("tensor '", entry.parameter->name, "': as ",
                         QuantTypeName(*options.quantize), ", ", Message(matrix.status()));
}

Status WriteShard(const Shard& shard, const std::string& directory, const SaveOptions& options,
                  TensorsWritten* written) {
  std::vector<SafetensorsEntry> entries;
  for (const Entry& entry : shard.entries) {
    entries.push_back({entry.name, entry.dtype, {entry.shape.begin(), entry.shape.end()}});
  }
  TESSERA_ASSIGN_OR_RETURN(
      SafetensorsWriter writer,
      SafetensorsWriter::Create(JoinPath(directory, shard.name), entries, {{"format", "pt"}}));
  for (const Entry& entry : shard.entries) {
    TESSERA_ASSIGN_OR_RETURN(const Tensor content, ContentOf(entry, options));
    if (content.numel() > 0) {
      TESSERA_RETURN_IF_ERROR(writer.Append(content.raw_data(), content.nbytes()));
    }
    written->Add(content.nbytes(), options.watch);
  }
  return writer.Commit();
}

std::string Text(const json& value) { return value.dump(2) + "\n"; }

Status WriteIndex(const std::vector<Shard>& shards, const std::string& directory) {
  if (shards.size() == 1) return OkStatus();
  int64_t total = 0;
  json weight_map = json::object();
  for (const Shard& shard : shards) {
    for (const Entry& entry : shard.entries) {
      weight_map[entry.name] = shard.name;
      total += entry.bytes();
    }
  }
  const json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}};
  return WriteFileAtomically(JoinPath(directory, kWeightsIndexName), Text(index));
}

// An id of config.json that the vocabulary does not have says nothing.
void SetTokenId(json* config, const char* key, std::optional<int32_t> id, int64_t vocab_size) {
  if (id) {
    (*config)[key] = *id;
  } else if (config->contains(key) && (*config)[key].is_number_integer() &&
             (*config)[key].get<int64_t>() >= vocab_size) {
    (*config)[key] = nullptr;
  }
}

// transformers 5 refuses an integer where it declares a float.
void WriteFloatsAsFloats(json* config) {
  for (const char* key : {"attention_dropout",
                          "attn_logit_softcapping",
                          "attn_pdrop",
                          "attention_probs_dropout_prob",
                          "classifier_dropout",
                          "dropout_rate",
                          "embd_pdrop",
                          "embedding_dropout",
                          "final_logit_softcapping",
                          "global_rope_theta",
                          "hidden_dropout_prob",
                          "initializer_cutoff_factor",
                          "initializer_factor",
                          "initializer_range",
                          "layer_norm_eps",
                          "layer_norm_epsilon",
                          "layernorm_epsilon",
                          "local_rope_theta",
                          "mlp_dropout",
                          "norm_eps",
                          "partial_rotary_factor",
                          "resid_pdrop",
                          "rms_norm_eps",
                          "rope_theta"}) {
    const auto found = config->find(key);
    if (found != config->end() && found->is_number()) *found = found->get<double>();
  }
}

json ConfigToSave(json config, const Model& model, const data::Tokenizer* tokenizer, DType dtype) {
  const Family& family = **FamilyOf(config);
  if (!config.contains("architectures") && !family.architectures.empty()) {
    config["architectures"] = {family.architectures.front().name};
  }
  // transformers 5 takes `dtype` where both are there; 4.56 and later know it.
  config.erase("torch_dtype");
  config["dtype"] = DTypeName(dtype);
  WriteFloatsAsFloats(&config);
  if (tokenizer != nullptr) {
    SetTokenId(&config, "bos_token_id", tokenizer->bos_id(), model.vocab_size());
    SetTokenId(&config, "eos_token_id", tokenizer->eos_id(), model.vocab_size());
  }
  return config;
}

// A generation_config.json with the tokenizer's tokens, as transformers' Trainer aligns them: its
// end-of-text token ends a text beside those that the file names.
json WithTokensOf(const data::Tokenizer& tokenizer, json generation) {
  if (!generation.is_object()) return generation;
  if (tokenizer.bos_id()) generation["bos_token_id"] = *tokenizer.bos_id();
  if (!tokenizer.eos_id()) return generation;
  json& ends = generation["eos_token_id"];
  if (ends == *tokenizer.eos_id()) return generation;
  if (ends.is_null()) ends = json::array();
  if (!ends.is_array()) ends = json::array({ends});
  if (std::find(ends.begin(), ends.end(), *tokenizer.eos_id()) == ends.end()) {
    ends.insert(ends.begin(), *tokenizer.eos_id());
  }
  return generation;
}

// `given`, or the tokens that config.json names where it is null.
json GenerationConfigToSave(const json& given, const json& config,
                            const data::Tokenizer* tokenizer) {
  if (!given.is_null()) return tokenizer == nullptr ? given : WithTokensOf(*tokenizer, given);
  json generation;
  generation["_from_model_config"] = true;  // a list of pairs leaks where memory ends
  for (const char* key :
       {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"}) {
    if (config.contains(key) && !config[key].is_null()) generation[key] = config[key];
  }
  return generation;
}

}  // namespace

Status SaveModel(Model& model, const std::string& folder, const data::Tokenizer* tokenizer,
                 const SaveOptions& options) {
  if (model.block_range() != std::pair<int, int>(0, model.num_blocks())) {
    return InvalidArgument(folder, ": a pipeline stage is not a whole model");
  }
  json config = model.config();
  const Family& family = **FamilyOf(config);
  const std::vector<Entry> entries =
      EntriesOf(model, family.copies == nullptr ? std::vector<EntryCopy>() : family.copies(&config),
                options.quantize);
  if (options.quantize && std::none_of(entries.begin(), entries.end(),
                                       [](const Entry& e) { return e.quantised.has_value(); })) {
    return InvalidArgument(folder, ": no weight can be ", QuantTypeName(*options.quantize),
                           ", which needs rows of a multiple of ",
                           LayoutOf(*options.quantize).columns, " numbers");
  }
  if (!options.write) {
    for (const Entry& entry : entries) {
      TESSERA_RETURN_IF_ERROR(WholeOf(*entry.parameter, options).status());
    }
    return OkStatus();
  }
  TESSERA_RETURN_IF_ERROR(CheckReplaceableModel(folder));
  TESSERA_ASSIGN_OR_RETURN(AtomicDirectory directory, AtomicDirectory::Create(folder));
  const std::string& path = directory.temporary_path();
  const DType dtype = entries.empty() ? DType::kFloat32 : entries[0].parameter->tensor.dtype();
  config = ConfigToSave(std::move(config), model, tokenizer, dtype);
  SetQuantizationConfig(options.quantize, &config);
  TESSERA_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(path, "config.json"), Text(config)));
  if (Generates(model)) {
    const json generation = GenerationConfigToSave(*options.generation_config, config, tokenizer);
    TESSERA_RETURN_IF_ERROR(
        WriteFileAtomically(JoinPath(path, "generation_config.json"), Text(generation)));
  }
  const std::vector<Shard> shards = CutIntoShards(entries, options.max_shard_bytes);
  TensorsWritten written = {.all_tensors = std::ssize(entries), .files = std::ssize(shards)};
  for (const Shard& shard : shards) {
    TESSERA_RETURN_IF_ERROR(WriteShard(shard, path, options, &written));
  }
  TESSERA_RETURN_IF_ERROR(WriteIndex(shards, path));
  if (tokenizer != nullptr) TESSERA_RETURN_IF_ERROR(tokenizer->Save(path));
  TESSERA_RETURN_IF_ERROR(data::Tokenizer::WriteFiles(options.tokenizer_files, path));
  for (const auto& [name, text] : options.files) {
    TESSERA_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(path, name), text));
  }
  return directory.CommitReplacing();
}

Status CheckIsNew(const std::string& folder) {
  if (!PathExists(folder)) return OkStatus();
  return InvalidArgument(folder, ": exists; a new folder is written, unless --overwrite is given");
}

Status CheckReplaceableModel(const std::string& folder) {
  return CheckReplaceable(folder, {"config.json", std::string(kAdapterConfigName)},
                          "a model's folder");
}

}  // namespace tessera::models
