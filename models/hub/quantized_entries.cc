// SPDX-License-Identifier: Apache-2.0
#include "models/hub/quantized_entries.h"

#include <algorithm>
#include <utility>

#include "core/placement.h"
#include "nlohmann/json.hpp"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

constexpr char kConfigKey[] = "quantization_config";

int64_t ColumnsOf(const Shape& shape, LinearLayout layout) {
  return shape[layout == LinearLayout::kOutIn ? 1 : 0];
}

// The mean of a tensor's rows in float64; some rows at a time, since a wide copy may not fit beside
// the tensor.
Tensor MeanRow(const Tensor& t) {
  constexpr int64_t kRowsAtOnce = 1024;
  Shape row(t.shape().begin() + 1, t.shape().end());
  const Tensor sum = Zeros(row, DType::kFloat64);
  for (int64_t begin = 0; begin < t.size(0); begin += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, t.size(0) - begin);
    AddInto(sum, Sum(CastCopy(Slice(t, 0, begin, count), DType::kFloat64), {0}));
  }
  return Mul(sum, 1.0 / static_cast<double>(t.size(0)));
}

// A dense entry with as many rows as the parameter. Those that a larger vocabulary has beyond the
// files' are the mean of theirs, and 0 in a vector: what transformers' resize_token_embeddings
// makes, but for its noise of 3e-5 standard deviations.
StatusOr<Tensor> ReadGrown(const WeightFiles& weights, const std::string& entry,
                           const Placement& placement) {
  TESSERA_ASSIGN_OR_RETURN(const Tensor read, weights.Read(entry));
  const Shape& shape = placement.global_shape();
  if (shape.ndim() == 0 || read.size(0) >= shape[0]) return read;
  const int64_t rows = read.size(0);
  const Tensor grown = Zeros(shape, read.dtype());
  CopyInto(Slice(grown, 0, 0, rows), read);
  if (shape.ndim() == 1) return grown;
  const Tensor mean = MeanRow(read);
  for (int64_t row = rows; row < shape[0]; ++row) CopyInto(Select(grown, 0, row), mean);
  return grown;
}

}  // namespace

std::string QuantizedEntryName(const std::string& parameter, QuantType type) {
  return Concat(parameter, ".", QuantTypeName(type));
}

std::optional<QuantType> QuantTypeOfEntry(std::string_view entry) {
  const size_t dot = entry.rfind('.');
  return dot == std::string_view::npos ? std::nullopt : ParseQuantType(entry.substr(dot + 1));
}

std::string_view ParameterOfEntry(std::string_view entry) {
  return QuantTypeOfEntry(entry) ? entry.substr(0, entry.rfind('.')) : entry;
}

Status CheckQuantizationConfig(const nlohmann::json& config, const std::string& where) {
  const auto found = config.find(kConfigKey);
  if (found == config.end() || found->is_null()) return OkStatus();
  const nlohmann::json method =
      found->is_object() ? found->value("quant_method", nlohmann::json()) : nlohmann::json();
  if (method == "tessera") return OkStatus();
  return InvalidArgument(where, ": '", kConfigKey, "' has weights of the method ", method.dump(),
                         ", which are not read; take the model's own, or a GGUF file");
}

void SetQuantizationConfig(std::optional<QuantType> type, nlohmann::json* config) {
  config->erase(kConfigKey);
  if (type) {
    (*config)[kConfigKey] = {{"quant_method", "tessera"}, {"type", QuantTypeName(*type)}};
  }
}

QuantizedLoading::QuantizedLoading(const WeightFiles& weights,
                                   const std::vector<EntryMatch>& matches,
                                   std::map<std::string, LinearLayout> layouts,
                                   std::optional<QuantType> type, bool map)
    : weights_(weights), layouts_(std::move(layouts)), type_(type), map_(map) {
  for (const EntryMatch& match : matches) entry_of_[match.parameter->name] = match.entry;
}

// A weight in the files, of which a few rows (outputs) are read at a time.
class QuantizedLoading::Rows {
 public:
  Rows(const Placement& placement, LinearLayout layout, const Tensor& dense)
      : placement_(placement), layout_(layout), dense_(nn::OutputsAsRows(dense, layout)) {}
  Rows(const Placement& placement, LinearLayout layout, QuantizedMatrix matrix)
      : placement_(placement), layout_(layout), matrix_(std::move(matrix)) {}

  int64_t count() const { return placement_.local_shape()[row_dim()]; }
  int64_t columns() const { return placement_.local_shape()[column_dim()]; }
  // Rows of this rank's part, as [count, columns()]; zeros where it is padded.
  Tensor Read(int64_t begin, int64_t count) const {
    if (placement_.is_whole()) return ReadWhole(begin, count);
    const int r = row_dim(), c = column_dim();
    Tensor part = Zeros({count, columns()}, dense_.defined() ? dense_.dtype() : DType::kFloat32);
    for (const BoxMapping& box : placement_.boxes()) {
      const int64_t first = std::max(begin, box.local_begin[r]);
      const int64_t rows = std::min(begin + count, box.local_begin[r] + box.global.size[r]) - first;
      if (rows <= 0) continue;
      const int64_t width = box.global.size[c];
      const Tensor whole = ReadWhole(box.global.begin[r] + first - box.local_begin[r], rows);
      CopyInto(BoxView(part, {{first - begin, box.local_begin[c]}, {rows, width}}),
               BoxView(whole, {{0, box.global.begin[c]}, {rows, width}}));
    }
    return part;
  }

 private:
  int row_dim() const { return layout_ == LinearLayout::kOutIn ? 0 : 1; }
  int column_dim() const { return 1 - row_dim(); }
  Tensor ReadWhole(int64_t begin, int64_t count) const {
    if (!dense_.defined()) return Dequantize(RowsOf(matrix_, begin, count), DType::kFloat32);
    return BoxView(dense_, {{begin, 0}, {count, dense_.size(1)}});
  }

  const Placement& placement_;
  const LinearLayout layout_;
  const Tensor dense_;  // or, where undefined,
  const QuantizedMatrix matrix_;
};

StatusOr<QuantizedLoading::Rows> QuantizedLoading::RowsOfEntry(
    const nn::Parameter& parameter) const {
  const std::string& entry = entry_of_.at(parameter.name);
  const LinearLayout layout = layouts_.at(parameter.name);
  const Placement& placement = parameter.placement;
  if (const std::optional<QuantType> held = QuantTypeOfEntry(entry)) {
    TESSERA_ASSIGN_OR_RETURN(QuantizedMatrix matrix,
                             ReadMatrix(entry, *held, ColumnsOf(placement.global_shape(), layout)));
    return Rows(placement, layout, std::move(matrix));
  }
  TESSERA_ASSIGN_OR_RETURN(const Tensor dense, ReadGrown(weights_, entry, placement));
  return Rows(placement, layout, dense);
}

Status QuantizedLoading::CopyDense(const nn::Parameter& parameter, const Tensor& mine,
                                   const std::function<Status(int64_t bytes)>& copied) const {
  TESSERA_ASSIGN_OR_RETURN(const Rows rows, RowsOfEntry(parameter));
  const int64_t bytes = weights_.Find(entry_of_.at(parameter.name))->nbytes;
  const Tensor to = nn::OutputsAsRows(mine, layouts_.at(parameter.name));
  const int64_t at_once = QuantizedPieceRows(rows.columns());
  int64_t told = 0;
  for (int64_t begin = 0; begin < rows.count(); begin += at_once) {
    const int64_t count = std::min(at_once, rows.count() - begin);
    CopyInto(BoxView(to, {{begin, 0}, {count, rows.columns()}}),
             CopyTo(rows.Read(begin, count), mine.device()));
    const int64_t done = bytes * (begin + count) / rows.count();
    TESSERA_RETURN_IF_ERROR(copied(done - told));
    told = done;
  }
  return copied(bytes - told);
}

StatusOr<QuantizedMatrix> QuantizedLoading::ReadMatrix(const std::string& entry, QuantType type,
                                                       int64_t columns) const {
  TESSERA_ASSIGN_OR_RETURN(const Tensor bytes, weights_.Read(entry));
  return QuantizedMatrix{type, columns, bytes};
}

StatusOr<Tensor> QuantizedLoading::ReadDense(const nn::Parameter& parameter) const {
  const std::string& entry = entry_of_.at(parameter.name);
  const std::optional<QuantType> held = QuantTypeOfEntry(entry);
  if (!held) return ReadGrown(weights_, entry, parameter.placement);
  const LinearLayout layout = layouts_.at(parameter.name);
  TESSERA_ASSIGN_OR_RETURN(
      const QuantizedMatrix matrix,
      ReadMatrix(entry, *held, ColumnsOf(parameter.placement.global_shape(), layout)));
  return nn::OutputsAsRows(Dequantize(matrix, DType::kFloat32), layout).ContiguousCopy();
}

StatusOr<std::shared_ptr<const nn::WeightForm>> QuantizedLoading::FormOf(
    const nn::Parameter& parameter, const Device& device) const {
  const auto dense = std::shared_ptr<const nn::WeightForm>();
  const auto layout = layouts_.find(parameter.name);
  const auto found = entry_of_.find(parameter.name);
  if (layout == layouts_.end() || found == entry_of_.end()) return dense;
  const std::string& entry = found->second;
  const std::optional<QuantType> held = QuantTypeOfEntry(entry);
  if (!held && !type_) return dense;
  if (held && type_ && *held != *type_) {
    return InvalidArgument(weights_.PathOf(entry), ": tensor '", entry, "' is ",
                           QuantTypeName(*held), " and cannot become ", QuantTypeName(*type_));
  }
  const QuantType type = held ? *held : *type_;
  const Placement& placement = parameter.placement;
  const int64_t columns = ColumnsOf(placement.local_shape(), layout->second);
  if (!CanQuantize(type, columns)) return dense;
  if (device.is_meta()) {
    const int64_t rows = placement.local_shape().numel() / columns;
    return std::make_shared<const nn::QuantizedWeight>(QuantizedMatrix{
        type, columns, Empty({rows, QuantRowBytes(type, columns)}, DType::kUInt8, device)});
  }
  if (held && placement.is_whole()) {
    TESSERA_ASSIGN_OR_RETURN(QuantizedMatrix matrix, ReadMatrix(entry, type, columns));
    if (!map_) {
      const Tensor in_file = matrix.bytes;
      matrix.bytes = EmptyLike(in_file);
      CopyInto(matrix.bytes, in_file);
    }
    return std::make_shared<const nn::QuantizedWeight>(std::move(matrix));
  }
  TESSERA_ASSIGN_OR_RETURN(const Rows rows, RowsOfEntry(parameter));
  StatusOr<QuantizedMatrix> matrix =
      QuantizeRows(type, rows.count(), columns,
                   [&](int64_t begin, int64_t count) { return rows.Read(begin, count); });
  if (!matrix.ok()) {
    return InvalidArgument(weights_.PathOf(entry), ": tensor '", entry, "': as ",
                           QuantTypeName(type), ", ", Message(matrix.status()));
  }
  return std::make_shared<const nn::QuantizedWeight>(*std::move(matrix));
}

}  // namespace tessera::models
