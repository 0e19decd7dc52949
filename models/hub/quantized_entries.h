// SPDX-License-Identifier: Apache-2.0
// Quantised weights in a folder's files, and of a model that is being built.
//
// A weight that is quantised (ops/quantized/quantized_matrix.h) is an entry called as the parameter
// and its type, `model.layers.0.mlp.up_proj.weight.q8_0`, of type U8 and shape [outputs, bytes of a
// row]; its file is safetensors. config.json then says
//   "quantization_config": {"quant_method": "tessera", "type": "q8_0"}
// so that programs that do not know of it refuse the folder.
#ifndef TESSERA_MODELS_HUB_QUANTIZED_ENTRIES_H_
#define TESSERA_MODELS_HUB_QUANTIZED_ENTRIES_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/hub/match_entries.h"
#include "models/hub/weight_files.h"
#include "nlohmann/json_fwd.hpp"
#include "nn/quantized_weight.h"

namespace tessera::models {

// `weight.q8_0`.
std::string QuantizedEntryName(const std::string& parameter, QuantType type);
// Of an entry with such a name; nullopt: it is dense.
std::optional<QuantType> QuantTypeOfEntry(std::string_view entry);
// The name without its type.
std::string_view ParameterOfEntry(std::string_view entry);

// Refuses weights that other programs have quantised. `where` begins the message.
Status CheckQuantizationConfig(const nlohmann::json& config, const std::string& where);

// What config.json says of a folder's weights; nullopt: they are dense.
void SetQuantizationConfig(std::optional<QuantType> type, nlohmann::json* config);

// What the parameters of a model are made from: `matches` are of its shapes, `layouts` of
// nn::QuantizableWeights.
class QuantizedLoading {
 public:
  // With `type`, what is dense in the files and can be held so is made to be. `map`: quantised
  // entries stay the files' bytes; else they are copied.
  QuantizedLoading(const WeightFiles& weights, const std::vector<EntryMatch>& matches,
                   std::map<std::string, LinearLayout> layouts, std::optional<QuantType> type,
                   bool map = false);

  // The form of this rank's part on a CPU, or on meta without numbers; nullptr: it is dense.
  // InvalidArgument names the tensor.
  StatusOr<std::shared_ptr<const nn::WeightForm>> FormOf(const nn::Parameter& parameter,
                                                         const Device& device) const;
  // The whole, dense, on the CPU.
  StatusOr<Tensor> ReadDense(const nn::Parameter& parameter) const;
  // This rank's part to `mine`, of a parameter that is quantised in the files; the whole is never
  // held dense. `copied` is given the files' bytes that are done, and may end it.
  Status CopyDense(const nn::Parameter& parameter, const Tensor& mine,
                   const std::function<Status(int64_t bytes)>& copied) const;

 private:
  class Rows;
  StatusOr<Rows> RowsOfEntry(const nn::Parameter& parameter) const;
  StatusOr<QuantizedMatrix> ReadMatrix(const std::string& entry, QuantType type,
                                       int64_t columns) const;

  const WeightFiles& weights_;
  std::map<std::string, std::string> entry_of_;
  const std::map<std::string, LinearLayout> layouts_;
  const std::optional<QuantType> type_;
  const bool map_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_QUANTIZED_ENTRIES_H_
