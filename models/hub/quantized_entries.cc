// SPDX-License-Identifier: Apache-2.0
#include "models/hub/quantized_entries.h"

#include <utility>

#include "core/placement.h"

namespace tessera::models {
namespace {

constexpr char kConfigKey[] = "quantization_config";

int64_t ColumnsOf(const Shape& shape, LinearLayout layout) {
  return shape[layout == LinearLayout::kOutIn ? 1 : 0];
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

StatusOr<QuantizedMatrix> QuantizedLoading::ReadMatrix(const std::string& entry, QuantType type,
                                                       int64_t columns) const {
  TESSERA_ASSIGN_OR_RETURN(const Tensor bytes, weights_.Read(entry));
  return QuantizedMatrix{type, columns, bytes};
}

StatusOr<Tensor> QuantizedLoading::ReadDense(const nn::Parameter& parameter) const {
  const std::string& entry = entry_of_.at(parameter.name);
  const std::optional<QuantType> held = QuantTypeOfEntry(entry);
  if (!held) return weights_.Read(entry);
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
  TESSERA_ASSIGN_OR_RETURN(Tensor part, ReadDense(parameter));
  if (!placement.is_whole()) {
    const Tensor whole = part;
    part = Empty(placement.local_shape(), whole.dtype(), whole.device());
    CopyGlobalToLocal(placement, whole, part);
  }
  StatusOr<QuantizedMatrix> matrix = Quantize(nn::OutputsAsRows(part, layout->second), type);
  if (!matrix.ok()) {
    return InvalidArgument(weights_.PathOf(entry), ": tensor '", entry, "': as ",
                           QuantTypeName(type), ", ", Message(matrix.status()));
  }
  return std::make_shared<const nn::QuantizedWeight>(*std::move(matrix));
}

}  // namespace tessera::models
