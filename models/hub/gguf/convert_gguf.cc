// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/convert_gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/file.h"
#include "core/safetensors.h"
#include "models/family.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/gguf/gguf_names.h"
#include "models/hub/gguf/gguf_tokenizer.h"
#include "models/hub/load_model.h"
#include "models/hub/match_entries.h"
#include "models/hub/quantized_entries.h"
#include "models/hub/save_model.h"
#include "models/hub/weight_files.h"
#include "models/model.h"
#include "ops/quantized/quantized_matrix.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

using nlohmann::json;

// How the types of GGUF's tensors are called here.
struct DenseType {
  GgufTensorType type;
  DType dtype;
};
constexpr DenseType kDense[] = {
    {kGgufF32, DType::kFloat32}, {kGgufF16, DType::kFloat16}, {kGgufBF16, DType::kBFloat16}};
struct BlockType {
  GgufTensorType type;
  QuantType quant;
  uint32_t file_type;  // general.file_type of files that have such tensors
};
constexpr BlockType kBlocks[] = {{kGgufQ8_0, QuantType::kQ8_0, 7},
                                 {kGgufQ4_0, QuantType::kQ4_0, 2}};
constexpr char kWrittenByKey[] = "tessera.written_by";
constexpr uint32_t kFileTypeF16 = 1;
constexpr uint32_t kQuantizationVersion = 2;

const BlockType* BlocksOf(const GgufTensorType& type) {
  for (const BlockType& known : kBlocks) {
    if (known.type.number == type.number) return &known;
  }
  return nullptr;
}

DType DTypeOf(const GgufTensorType& type) {
  for (const DenseType& known : kDense) {
    if (known.type.number == type.number) return known.dtype;
  }
  return DType::kUInt8;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += Concat(text.empty() ? "" : ", ", size);
  return "[" + text + "]";
}

// A parameter's shape with its outputs first, as in GGUF files.
std::vector<int64_t> OutputsFirst(const nn::Parameter& p, const GgufPlace& place) {
  const Shape& global = p.placement.global_shape();
  std::vector<int64_t> shape(global.begin(), global.end());
  if (place.transposed) std::reverse(shape.begin(), shape.end());
  return shape;
}

// Each head's rows, its halves one behind the other or (GgufPlace) interleaved. `t` is contiguous.
Tensor MoveRows(const Tensor& t, int64_t heads, bool interleave) {
  const int64_t half = t.size(0) / heads / 2;
  const int64_t row_bytes = t.nbytes() / t.size(0);
  const Tensor moved = Empty(t.shape(), t.dtype());
  const auto* from = static_cast<const std::byte*>(t.raw_data());
  auto* const to = static_cast<std::byte*>(moved.raw_data());
  for (int64_t i = 0; i < t.size(0); ++i, from += row_bytes) {
    const int64_t head = i / (2 * half), in_head = i % (2 * half);
    const int64_t row =
        interleave ? in_head % half * 2 + in_head / half : in_head % 2 * half + in_head / 2;
    std::memcpy(to + (head * 2 * half + row) * row_bytes, from, static_cast<size_t>(row_bytes));
  }
  return moved;
}

StatusOr<std::unique_ptr<Model>> BuildShapes(const json& config, const std::string& where) {
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

// A tensor of one side that becomes one of the other.
struct Move {
  GgufPlace place;
  GgufTensor tensor;       // in the GGUF file
  SafetensorsEntry entry;  // in the folder
};

// ---- From GGUF ---------------------------------------------------------------------------------

StatusOr<Move> MoveFrom(const GgufFile& file, const GgufNames& names, const nn::Parameter& p) {
  Move move;
  TESSERA_ASSIGN_OR_RETURN(move.place, PlaceOf(names, p));
  TESSERA_ASSIGN_OR_RETURN(const GgufTensor* tensor, file.Get(move.place.name));
  move.tensor = *tensor;
  const std::vector<int64_t> expected = OutputsFirst(p, move.place);
  if (tensor->shape != expected) {
    return InvalidArgument(file.path(), ": tensor '", tensor->name, "' has shape ",
                           ShapeText(tensor->shape), "; the model asks for ", ShapeText(expected));
  }
  if (const BlockType* const blocks = BlocksOf(tensor->type)) {
    if (expected.size() != 2) {
      return InvalidArgument(file.path(), ": tensor '", tensor->name,
                             "' is quantised, and no matrix");
    }
    move.entry = {QuantizedEntryName(p.name, blocks->quant),
                  DType::kUInt8,
                  {expected[0], QuantRowBytes(blocks->quant, expected[1])}};
  } else {
    const Shape& global = p.placement.global_shape();
    move.entry = {p.name, DTypeOf(tensor->type), {global.begin(), global.end()}};
  }
  return move;
}

Status WriteWeights(const GgufFile& file, std::vector<Move> moves, const std::string& path,
                    const WriteWatch& watch) {
  // Wider ones first, so that all are aligned.
  std::stable_sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) {
    return DTypeSize(a.entry.dtype) > DTypeSize(b.entry.dtype);
  });
  std::vector<SafetensorsEntry> entries;
  for (const Move& move : moves) entries.push_back(move.entry);
  TESSERA_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                           SafetensorsWriter::Create(path, entries, {{"format", "pt"}}));
  TensorsWritten written = {.all_tensors = std::ssize(moves)};
  for (const Move& move : moves) {
    const bool dense = BlocksOf(move.tensor.type) == nullptr;
    const Tensor stored =
        Empty(Shape(dense ? move.tensor.shape : move.entry.shape), move.entry.dtype);
    std::memcpy(stored.raw_data(), file.BytesOf(move.tensor),
                static_cast<size_t>(move.tensor.nbytes));
    Tensor t = stored;
    if (move.place.interleaved_heads > 0) t = MoveRows(t, move.place.interleaved_heads, false);
    if (dense && move.place.transposed) t = Transpose(t, 0, 1).ContiguousCopy();
    TESSERA_RETURN_IF_ERROR(writer.Append(t.raw_data(), t.nbytes()));
    written.Add(t.nbytes(), watch);
  }
  return writer.Commit();
}

Status CheckNothingIsLeft(const GgufFile& file, const std::vector<Move>& moves,
                          const std::string& architecture) {
  std::set<std::string> used = {std::string(kGgufRopeFactors)};
  for (const Move& move : moves) used.insert(move.tensor.name);
  for (const GgufTensor& tensor : file.tensors()) {
    if (used.count(tensor.name) != 0) continue;
    return InvalidArgument(file.path(), ": tensor '", tensor.name, "' has no place in a model of ",
                           architecture);
  }
  return OkStatus();
}

std::string Text(const json& value) {  // a name from the file need not be UTF-8
  return value.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

// What config.json says beside the hyperparameters.
Status AddToConfig(const GgufFile& file, const std::vector<Move>& moves, json* config) {
  DType dtype = DType::kFloat32;
  for (const Move& move : moves) {
    if (const BlockType* const blocks = BlocksOf(move.tensor.type)) {
      SetQuantizationConfig(blocks->quant, config);
    } else if (IsHalf(move.entry.dtype)) {
      dtype = move.entry.dtype;
    }
  }
  (*config)["dtype"] = DTypeName(dtype);
  for (const char* token : {"bos", "eos"}) {
    int64_t id = -1;
    TESSERA_RETURN_IF_ERROR(file.Read(Concat("tokenizer.ggml.", token, "_token_id"), &id));
    (*config)[Concat(token, "_token_id")] = id < 0 ? json() : json(id);
  }
  return OkStatus();
}

// ---- To GGUF -----------------------------------------------------------------------------------

StatusOr<Move> MoveTo(const WeightFiles& weights, const GgufNames& names, const EntryMatch& match) {
  const nn::Parameter& p = *match.parameter;
  const WeightEntry& entry = *weights.Find(match.entry);
  Move move;
  TESSERA_ASSIGN_OR_RETURN(move.place, PlaceOf(names, p));
  move.entry = {match.entry, *ParseSafetensorsDType(entry.dtype), entry.shape};
  move.tensor = {.name = move.place.name, .shape = OutputsFirst(p, move.place)};
  if (const std::optional<QuantType> quant = QuantTypeOfEntry(match.entry)) {
    const auto* const blocks = std::find_if(std::begin(kBlocks), std::end(kBlocks),
                                            [&](auto& b) { return b.quant == *quant; });
    if (blocks == std::end(kBlocks)) {
      return InvalidArgument(weights.PathOf(match.entry), ": tensor '", match.entry,
                             "': GGUF files have no ", QuantTypeName(*quant),
                             "; q8_0 and q4_0 they have");
    }
    move.tensor.type = blocks->type;
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
  TESSERA_ASSIGN_OR_RETURN(Tensor t, weights.Read(move.entry.name));
  if (BlocksOf(move.tensor.type) == nullptr) {
    if (move.place.transposed) t = Transpose(t, 0, 1).ContiguousCopy();
    const DType dtype = DTypeOf(move.tensor.type);
    if (t.dtype() != dtype) t = CastCopy(t, dtype);
    if (!AllFinite(t)) {
      return InvalidArgument(weights.PathOf(move.entry.name), ": tensor '", move.entry.name,
                             "' has numbers that are beyond ", DTypeName(dtype));
    }
  }
  if (move.place.interleaved_heads > 0) t = MoveRows(t, move.place.interleaved_heads, true);
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
  const BlockType* blocks = nullptr;
  for (const Move& move : moves) {
    if (blocks == nullptr) blocks = BlocksOf(move.tensor.type);
  }
  metadata.emplace_back("general.file_type", blocks == nullptr ? kFileTypeF16 : blocks->file_type);
  if (blocks != nullptr)
    metadata.emplace_back("general.quantization_version", kQuantizationVersion);
  return metadata;
}

}  // namespace

Status ConvertFromGguf(const std::string& path, const std::string& folder, bool overwrite,
                       const WriteWatch& watch) {
  if (!overwrite) TESSERA_RETURN_IF_ERROR(CheckIsNew(folder));
  TESSERA_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  TESSERA_ASSIGN_OR_RETURN(json config, ConfigOfGguf(file));
  TESSERA_ASSIGN_OR_RETURN(const auto model, BuildShapes(config, path));
  TESSERA_ASSIGN_OR_RETURN(const GgufNames names, GgufNames::Of(config));
  std::vector<Move> moves;
  for (const nn::Parameter* p : model->Parameters()) {
    if (p->tied_to != nullptr) continue;
    TESSERA_ASSIGN_OR_RETURN(Move move, MoveFrom(file, names, *p));
    moves.push_back(std::move(move));
  }
  TESSERA_RETURN_IF_ERROR(CheckNothingIsLeft(file, moves, names.architecture()));
  TESSERA_RETURN_IF_ERROR(AddToConfig(file, moves, &config));
  TESSERA_ASSIGN_OR_RETURN(AtomicDirectory directory, AtomicDirectory::Create(folder));
  const std::string& made = directory.temporary_path();
  TESSERA_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(made, "config.json"), Text(config)));
  TESSERA_RETURN_IF_ERROR(WriteTokenizerOfGguf(file, made));
  TESSERA_RETURN_IF_ERROR(
      WriteWeights(file, std::move(moves), JoinPath(made, kWeightsName), watch));
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
  TESSERA_ASSIGN_OR_RETURN(const auto model, BuildShapes(config, where));
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
