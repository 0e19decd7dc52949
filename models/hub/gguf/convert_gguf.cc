// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/convert_gguf.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/mounted_folder.h"
#include "core/safetensors.h"
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
#include "ops/quantized/quantized_matrix.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

using nlohmann::json;

constexpr char kWrittenByKey[] = "tessera.written_by";
constexpr uint32_t kQuantizationVersion = 2;

// In each head, row i of the second half follows row i of the first half.
Tensor Interleaved(const Tensor& t, int64_t heads) {
  const int64_t half = t.size(0) / heads / 2;
  const int64_t row = t.numel() / t.size(0);
  return t.AsStrided({heads, half, 2, row}, {2 * half * row, row, half * row, 1}, t.offset())
      .ContiguousCopy();
}

// An entry of the folder that becomes a tensor of the file.
struct Move {
  GgufPlace place;
  GgufTensor tensor;
  std::string entry;
};

StatusOr<Move> MoveTo(const WeightFiles& weights, const GgufNames& names, const EntryMatch& match) {
  const nn::Parameter& p = *match.parameter;
  Move move;
  move.entry = match.entry;
  TESSERA_ASSIGN_OR_RETURN(move.place, PlaceOf(names, p));
  move.tensor = {.name = move.place.name, .shape = OutputsFirst(p, move.place)};
  if (const std::optional<QuantType> quant = QuantTypeOfEntry(match.entry)) {
    const GgufTensorType* const type = GgufTypeOf(*quant);
    if (type == nullptr) {
      return InvalidArgument(weights.PathOf(match.entry), ": tensor '", match.entry,
                             "': GGUF files have no ", QuantTypeName(*quant));
    }
    move.tensor.type = *type;
  } else if (move.tensor.shape.size() == 2 && !move.place.wide) {
    move.tensor.type = kGgufF16;
  }
  return move;
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
StatusOr<int64_t> AppendTensor(const WeightFiles& weights, const Move& move, GgufWriter* writer) {
  TESSERA_ASSIGN_OR_RETURN(Tensor t, weights.Read(move.entry));
  if (const std::optional<DType> dtype = DenseTypeOf(move.tensor.type)) {
    if (move.place.transposed) t = Transpose(t, 0, 1).ContiguousCopy();
    if (t.dtype() != *dtype) t = CastCopy(t, *dtype);
    if (!AllFinite(t)) {
      return InvalidArgument(weights.PathOf(move.entry), ": tensor '", move.entry,
                             "' has numbers that are beyond ", DTypeName(*dtype));
    }
  }
  if (move.place.interleaved_heads > 0) t = Interleaved(t, move.place.interleaved_heads);
  TESSERA_RETURN_IF_ERROR(writer->Append(t.raw_data(), t.nbytes()));
  return t.nbytes();
}

GgufMetadata GeneralMetadata(const json& config, const std::vector<Move>& moves,
                             const std::string& architecture) {
  GgufMetadata metadata = {{"general.architecture", architecture},
                           {kWrittenByKey, std::string("tessera convert")}};
  const json name = config.value("_name_or_path", json());
  if (name.is_string() && name != "") {
    metadata.emplace_back("general.name", name.get<std::string>());
  }
  const auto blocks = std::find_if(moves.begin(), moves.end(), [](const Move& move) {
    return QuantTypeOf(move.tensor.type).has_value();
  });
  const GgufTensorType& type = blocks == moves.end() ? kGgufF16 : blocks->tensor.type;
  metadata.emplace_back("general.file_type", static_cast<uint32_t>(type.file_type));
  if (blocks != moves.end()) {
    metadata.emplace_back("general.quantization_version", kQuantizationVersion);
  }
  return metadata;
}

Status WriteWeights(const WeightFile& weights, const std::string& path, const WriteWatch& watch) {
  std::vector<SafetensorsEntry> entries;
  for (const WeightEntry& entry : weights.entries()) {
    entries.push_back({entry.name, *ParseSafetensorsDType(entry.dtype), entry.shape});
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
    TESSERA_ASSIGN_OR_RETURN(const TensorView view, weights.Get(entry.name, &made));
    TESSERA_RETURN_IF_ERROR(writer.Append(view.data, view.nbytes));
    written.Add(view.nbytes, watch);
  }
  return writer.Commit();
}

}  // namespace

Status ConvertFromGguf(const std::string& path, const std::string& folder, bool overwrite,
                       const WriteWatch& watch) {
  if (!overwrite) TESSERA_RETURN_IF_ERROR(CheckIsNew(folder));
  TESSERA_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  TESSERA_ASSIGN_OR_RETURN(const MountedFolder mounted, MountGguf(file));
  TESSERA_ASSIGN_OR_RETURN(AtomicDirectory directory, AtomicDirectory::Create(folder));
  const std::string& made = directory.temporary_path();
  TESSERA_ASSIGN_OR_RETURN(const WeightFile weights,
                           WeightFile::Open(JoinPath(mounted.path(), kTensorListName)));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(mounted.path()));
  for (const std::string& name : names) {
    const std::string from = JoinPath(mounted.path(), name);
    if (name == kTensorListName || from == weights.path()) continue;
    TESSERA_ASSIGN_OR_RETURN(const std::string content, ReadFile(from));
    TESSERA_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(made, name), content));
  }
  TESSERA_RETURN_IF_ERROR(WriteWeights(weights, JoinPath(made, kWeightsName), watch));
  return overwrite ? directory.CommitReplacing() : directory.Commit();
}

bool IsConvertedGguf(const std::string& path) {
  const StatusOr<GgufFile> file = GgufFile::Open(path);
  return file.ok() && file->FindValue(kWrittenByKey) != nullptr;
}

Status ConvertToGguf(const std::string& folder, const std::string& path, const WriteWatch& watch) {
  TESSERA_ASSIGN_OR_RETURN(const json config, ReadModelConfig(folder));
  const std::string where = JoinPath(folder, "config.json");
  const auto names = GgufNames::Of(config);
  if (!names.ok()) return Failure(names.status().code(), where, ": ", Message(names.status()));
  TESSERA_ASSIGN_OR_RETURN(const auto model, ShapesOf(config, where));
  TESSERA_ASSIGN_OR_RETURN(const WeightFiles weights, WeightFiles::Open(folder));
  std::vector<Move> moves;
  TESSERA_ASSIGN_OR_RETURN(const std::vector<EntryMatch> matches,
                           MatchEntries(*model, weights, nullptr));
  for (const EntryMatch& match : matches) {
    TESSERA_ASSIGN_OR_RETURN(Move move, MoveTo(weights, *names, match));
    moves.push_back(std::move(move));
  }
  GgufMetadata metadata = GeneralMetadata(config, moves, names->architecture());
  TESSERA_ASSIGN_OR_RETURN(const GgufMetadata tokens,
                           TokenizerMetadata(folder, model->vocab_size()));
  metadata.insert(metadata.end(), names->metadata().begin(), names->metadata().end());
  metadata.insert(metadata.end(), tokens.begin(), tokens.end());

  const std::vector<float>& factors = names->rope_factors();
  std::vector<GgufTensor> tensors;
  if (!factors.empty()) {
    tensors.push_back({.name = std::string(kGgufRopeFactors), .shape = {std::ssize(factors)}});
  }
  for (const Move& move : moves) tensors.push_back(move.tensor);
  TESSERA_ASSIGN_OR_RETURN(GgufWriter writer,
                           GgufWriter::Create(path, metadata, std::move(tensors)));
  TensorsWritten written = {.all_tensors = std::ssize(moves)};
  if (!factors.empty()) {
    ++written.all_tensors;
    TESSERA_RETURN_IF_ERROR(writer.Append(factors.data(), std::ssize(factors) * 4));
    written.Add(std::ssize(factors) * 4, watch);
  }
  for (const Move& move : moves) {
    TESSERA_ASSIGN_OR_RETURN(const int64_t bytes, AppendTensor(weights, move, &writer));
    written.Add(bytes, watch);
  }
  return writer.Commit();
}

}  // namespace tessera::models
