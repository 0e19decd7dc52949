// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/convert_gguf.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/mounted_folder.h"
#include "core/safetensors.h"
#include "data/tokenizer/tokenizer.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/gguf/gguf_folder.h"
#include "models/hub/gguf/gguf_names.h"
#include "models/hub/gguf/gguf_tokenizer.h"
#include "models/hub/load_model.h"
#include "models/hub/match_entries.h"
#include "models/hub/quantized_entries.h"
#include "models/hub/save_model.h"
#include "models/hub/weight_file.h"
#include "models/hub/weight_files.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "ops/elementwise/elementwise.h"
#include "ops/quantized/quantized_matrix.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

using nlohmann::json;

constexpr uint32_t kQuantizationVersion = 2;

// Entries of the folder that become a tensor of the file, one behind the other: one, or as many as
// the tensor has slices.
struct Move {
  GgufPlace place;  // of one of them
  GgufTensor tensor;
  std::vector<std::string> entries;
};

StatusOr<Move> MoveTo(const WeightFiles& weights, const GgufNames& names, const EntryMatch& match,
                      const GgufTensorType& dense) {
  const nn::Parameter& p = *match.parameter;
  Move move;
  TESSERA_ASSIGN_OR_RETURN(move.place, PlaceOf(names, p));
  move.entries.resize(static_cast<size_t>(std::max<int64_t>(move.place.slices, 1)));
  move.entries[static_cast<size_t>(move.place.slice)] = match.entry;
  move.tensor = {.name = move.place.name, .shape = TensorShape(p, move.place)};
  if (const std::optional<QuantType> quant = QuantTypeOfEntry(match.entry)) {
    const GgufTensorType* const type = GgufTypeOf(*quant);
    if (type == nullptr) {
      return InvalidArgument(weights.PathOf(match.entry), ": tensor '", match.entry,
                             "': GGUF files have no ", QuantTypeName(*quant));
    }
    move.tensor.type = *type;
  } else if (OutputsFirst(p, move.place).size() == 2 && !move.place.wide) {
    move.tensor.type = dense;
  }
  return move;
}

StatusOr<std::vector<Move>> MovesTo(const WeightFiles& weights, const GgufNames& names,
                                    const std::vector<EntryMatch>& matches,
                                    const GgufTensorType& dense) {
  std::vector<Move> moves;
  std::map<std::string, size_t> by_tensor;
  for (const EntryMatch& match : matches) {
    TESSERA_ASSIGN_OR_RETURN(Move move, MoveTo(weights, names, match, dense));
    const auto [found, is_new] = by_tensor.emplace(move.tensor.name, moves.size());
    if (is_new) {
      moves.push_back(std::move(move));
      continue;
    }
    Move& whole = moves[found->second];
    if (whole.tensor.type.number != move.tensor.type.number) {
      return InvalidArgument(weights.PathOf(match.entry), ": tensor '", match.entry, "' would be ",
                             move.tensor.type.name, " in '", whole.tensor.name, "', which is ",
                             whole.tensor.type.name, ": GGUF files have one type for all experts");
    }
    whole.entries[static_cast<size_t>(move.place.slice)] = match.entry;
  }
  return moves;
}

bool AllFinite(const Tensor& t) {
  return DispatchFloat(t.dtype(), "convert", [&](auto zero) {
    using T = decltype(zero);
    const T* const values = t.data<T>();
    return std::all_of(values, values + t.numel(),
                       [](T value) { return std::isfinite(static_cast<double>(value)); });
  });
}

// Returns how many bytes.
StatusOr<int64_t> AppendEntry(const WeightFiles& weights, const Move& move,
                              const std::string& entry, GgufWriter* writer) {
  TESSERA_ASSIGN_OR_RETURN(Tensor t, weights.Read(entry));
  if (const std::optional<DType> dtype = DenseTypeOf(move.tensor.type)) {
    if (move.place.transposed) t = Transpose(t, 0, 1).ContiguousCopy();
    if (t.dtype() != *dtype) t = CastCopy(t, *dtype);
    if (move.place.added != 0) t = Add(t, move.place.added);
    if (!AllFinite(t)) {
      return InvalidArgument(weights.PathOf(entry), ": tensor '", entry,
                             "' has numbers that are beyond ", DTypeName(*dtype));
    }
  }
  if (move.place.interleaved_heads > 0) t = Interleaved(t, move.place.interleaved_heads);
  TESSERA_RETURN_IF_ERROR(writer->Append(t.raw_data(), t.nbytes()));
  return t.nbytes();
}

GgufMetadata GeneralMetadata(const json& config, const std::vector<Move>& moves,
                             const std::string& architecture, const GgufTensorType& dense) {
  GgufMetadata metadata = {{"general.architecture", architecture},
                           {std::string(kGgufWrittenByKey), std::string("tessera convert")}};
  const json name = config.value("_name_or_path", json());
  if (name.is_string() && name != "") {
    metadata.emplace_back("general.name", name.get<std::string>());
  }
  const auto blocks = std::find_if(moves.begin(), moves.end(), [](const Move& move) {
    return QuantTypeOf(move.tensor.type).has_value();
  });
  const GgufTensorType& type = blocks == moves.end() ? dense : blocks->tensor.type;
  metadata.emplace_back("general.file_type", static_cast<uint32_t>(type.file_type));
  if (blocks != moves.end()) {
    metadata.emplace_back("general.quantization_version", kQuantizationVersion);
  }
  return metadata;
}

Status WriteWeights(const WeightFiles& weights, const std::string& path, const WriteWatch& watch) {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string_view, const WeightFile*> files;
  for (const WeightFile& file : weights.files()) {
    for (const WeightEntry& entry : file.entries()) {
      entries.push_back({entry.name, *ParseSafetensorsDType(entry.dtype), entry.shape});
      files[entry.name] = &file;
    }
  }
  // Wider ones first, so that all are aligned.
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return DTypeSize(a.dtype) > DTypeSize(b.dtype);
  });
  TESSERA_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                           SafetensorsWriter::Create(path, entries, {{"format", "pt"}}));
  TensorsWritten written = {.all_tensors = std::ssize(entries)};
  for (const SafetensorsEntry& entry : entries) {
    std::vector<std::byte> made;
    TESSERA_ASSIGN_OR_RETURN(const TensorView view, files[entry.name]->Get(entry.name, &made));
    TESSERA_RETURN_IF_ERROR(writer.Append(view.data, view.nbytes));
    written.Add(view.nbytes, watch);
  }
  return writer.Commit();
}

// What other programs want of a tokenizer in files of their own.
Status WriteTokenizerOfOthers(const std::string& mounted, const std::string& path,
                              const std::string& folder) {
  const auto tokenizer = data::LoadTokenizer(mounted);
  if (tokenizer.status().code() == StatusCode::kNotFound) return OkStatus();
  if (!tokenizer.ok()) {
    return InvalidArgument(path, ": its tokenizer cannot be read: ", Message(tokenizer.status()));
  }
  for (const data::TokenizerFile& file : (*tokenizer)->FilesToSave()) {
    TESSERA_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(folder, file.name), file.content));
  }
  return OkStatus();
}

}  // namespace

Status ConvertFromGguf(const std::string& path, const std::string& folder, bool overwrite,
                       const WriteWatch& watch) {
  if (!overwrite) TESSERA_RETURN_IF_ERROR(CheckIsNew(folder));
  TESSERA_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  TESSERA_ASSIGN_OR_RETURN(const MountedFolder mounted, MountGguf(file));
  TESSERA_ASSIGN_OR_RETURN(AtomicDirectory directory, AtomicDirectory::Create(folder));
  const std::string& made = directory.temporary_path();
  TESSERA_ASSIGN_OR_RETURN(const WeightFiles weights, WeightFiles::Open(mounted.path()));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(mounted.path()));
  for (const std::string& name : names) {
    if (name.ends_with(".gguf") || name.ends_with(".tensors.json") || name == kWeightsIndexName) {
      continue;
    }
    const std::string from = JoinPath(mounted.path(), name);
    TESSERA_ASSIGN_OR_RETURN(const std::string content, ReadFile(from));
    TESSERA_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(made, name), content));
  }
  TESSERA_RETURN_IF_ERROR(WriteTokenizerOfOthers(mounted.path(), path, made));
  TESSERA_RETURN_IF_ERROR(WriteWeights(weights, JoinPath(made, kWeightsName), watch));
  return overwrite ? directory.CommitReplacing() : directory.Commit();
}

bool IsConvertedGguf(const std::string& path) {
  const StatusOr<GgufFile> file = GgufFile::Open(path);
  return file.ok() && file->FindValue(kGgufWrittenByKey) != nullptr;
}

Status ConvertToGguf(const std::string& folder, const std::string& path, DType dtype,
                     const WriteWatch& watch) {
  const GgufTensorType* const dense = GgufTypeOf(dtype);
  if (dense == nullptr) {
    return InvalidArgument(path, ": matrices of GGUF files are float32, float16 or bfloat16, not ",
                           DTypeName(dtype));
  }
  TESSERA_ASSIGN_OR_RETURN(const json config, ReadModelConfig(folder));
  const std::string where = JoinPath(folder, "config.json");
  const auto names = GgufNames::Of(config);
  if (!names.ok()) return Failure(names.status().code(), where, ": ", Message(names.status()));
  TESSERA_ASSIGN_OR_RETURN(const auto model, ShapesOf(config, where));
  TESSERA_ASSIGN_OR_RETURN(const WeightFiles weights, WeightFiles::Open(folder));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<EntryMatch> matches,
                           MatchEntries(*model, weights, nullptr));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Move> moves,
                           MovesTo(weights, *names, matches, *dense));
  GgufMetadata metadata = GeneralMetadata(config, moves, names->architecture(), *dense);
  TESSERA_ASSIGN_OR_RETURN(const GgufMetadata tokens,
                           TokenizerMetadata(folder, model->vocab_size()));
  metadata.insert(metadata.end(), names->metadata().begin(), names->metadata().end());
  metadata.insert(metadata.end(), tokens.begin(), tokens.end());

  std::vector<GgufTensor> tensors;
  for (const GgufFactors& factors : names->factors()) {
    tensors.push_back({.name = std::string(factors.name), .shape = {std::ssize(factors.values)}});
  }
  for (const Move& move : moves) tensors.push_back(move.tensor);
  TensorsWritten written = {.all_tensors = std::ssize(tensors)};
  TESSERA_ASSIGN_OR_RETURN(GgufWriter writer,
                           GgufWriter::Create(path, metadata, std::move(tensors)));
  for (const GgufFactors& factors : names->factors()) {
    const int64_t bytes = std::ssize(factors.values) * 4;
    TESSERA_RETURN_IF_ERROR(writer.Append(factors.values.data(), bytes));
    written.Add(bytes, watch);
  }
  for (const Move& move : moves) {
    int64_t bytes = 0;
    for (const std::string& entry : move.entries) {
      TESSERA_ASSIGN_OR_RETURN(const int64_t more, AppendEntry(weights, move, entry, &writer));
      bytes += more;
    }
    written.Add(bytes, watch);
  }
  return writer.Commit();
}

}  // namespace tessera::models
