// SPDX-License-Identifier: Apache-2.0
// Models into Hugging Face folders, which transformers loads.
//
//   TESSERA_RETURN_IF_ERROR(SaveModel(*model, "out/model", tokenizer.get()));
//
// Writes config.json (every key that was read, with `dtype` and `architectures`; a float that stood
// there as an integer becomes one, since transformers 5 is strict), model.safetensors or, above a
// size, numbered shards with model.safetensors.index.json, generation_config.json (of a model that
// generates) and the tokenizer's files. transformers 4.57 and 5 both load it. The folder exists
// whole or not at all: it is written beside its place and renamed; an older one is replaced.
#ifndef TESSERA_MODELS_HUB_SAVE_MODEL_H_
#define TESSERA_MODELS_HUB_SAVE_MODEL_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_member.h"
#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "models/model.h"
#include "nlohmann/json_fwd.hpp"
#include "ops/quantized/quant_type.h"

namespace tessera::models {

// How far the writing of a model's tensors is; called behind every tensor.
struct TensorsWritten;
using WriteWatch = std::function<void(const TensorsWritten& written)>;
struct TensorsWritten {
  int64_t tensors = 0;
  int64_t all_tensors = 0;
  int64_t bytes = 0;  // of the tensors
  int64_t files = 1;  // that they are in, when all are written

  // One more, which `watch` is told unless it is null.
  void Add(int64_t tensor_bytes, const WriteWatch& watch) {
    ++tensors;
    bytes += tensor_bytes;
    if (watch != nullptr) watch(*this);
  }
};

// How a model is saved.
struct SaveOptions {
  // A new shard begins rather than exceed this; a larger tensor has a shard of its own.
  int64_t max_shard_bytes = 5'000'000'000;
  // Gives the whole of a parameter that this rank holds a part of; called in the model's
  // order for every parameter, tied ones once, and again for its copies (Family::copies), so that
  // it may be a collective. Parameters may then be on meta.
  std::function<StatusOr<Tensor>(nn::Parameter&)> gather = nullptr;
  // Weights of linear layers and tables of the vocabulary whose rows fit are written so
  // (models/hub/quantized_entries.h).
  std::optional<QuantType> quantize = std::nullopt;
  // False on ranks that only take part in gathering.
  bool write = true;
  // What generation_config.json says; null: the tokens that config.json names.
  JsonMember generation_config = nullptr;
  // Of a tokenizer, where none is given whose ids are to be config.json's.
  std::vector<data::TokenizerFile> tokenizer_files = {};
  // More files of the folder, by name: what prepares pictures, say.
  std::vector<std::pair<std::string, std::string>> files = {};
  WriteWatch watch = nullptr;
};

// With a tokenizer, its end-of-text and begin-of-text ids replace those of config.json. A model
// that is a pipeline stage, or whose parameters are shards with no `gather` to make them whole, is
// refused. `tokenizer` may be nullptr.
Status SaveModel(Model& model, const std::string& folder,
                 const data::Tokenizer* tokenizer = nullptr, const SaveOptions& options = {});

// InvalidArgument for a folder, or a file, that exists where a new folder is to be written.
Status CheckIsNew(const std::string& folder);
// That a model's or an adapter's folder may be written here, as a whole: CheckReplaceable
// (base/output_files.h).
Status CheckReplaceableModel(const std::string& folder);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_SAVE_MODEL_H_
