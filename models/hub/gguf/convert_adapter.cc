// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "base/file.h"
#include "models/hub/adapter_folder.h"
#include "models/hub/gguf/convert_gguf.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/gguf/gguf_folder.h"
#include "models/hub/gguf/gguf_names.h"
#include "models/hub/load_model.h"
#include "nlohmann/json.hpp"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

constexpr char kTokenTable[] = "token_embd.weight";

// What has no place in such a file.
Status CheckIsPlain(const AdapterConfig& config, const std::string& folder) {
  const char* problem = config.use_dora                   ? "'use_dora'"
                        : config.bias != "none"           ? "'bias'"
                        : !config.modules_to_save.empty() ? "'modules_to_save'"
                                                          : nullptr;
  if (problem == nullptr) return OkStatus();
  return InvalidArgument(JoinPath(folder, kAdapterConfigName), ": ", problem,
                         ": llama.cpp's adapters have the two matrices of LoRA alone");
}

// What the adapter's file has of the model (PEFT's save_embedding_layers) is what the model has.
Status CheckBaseStays(const AdapterFolder& adapter, const std::string& folder,
                      const std::string& base) {
  if (adapter.base_entries().empty()) return OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const auto model, LoadModel(base, {.require_weights = true}));
  for (const auto& [parameter, entry] : adapter.base_entries()) {
    TESSERA_ASSIGN_OR_RETURN(const Tensor values, adapter.Read(parameter));
    if (HoldsValues(*model->FindParameter(parameter), values)) continue;
    return InvalidArgument(folder, ": '", entry, "' is not the '", parameter, "' of ", base,
                           ": llama.cpp's adapters replace nothing");
  }
  return OkStatus();
}

}  // namespace

Status ConvertAdapterToGguf(const std::string& folder, const std::string& base,
                            const std::string& path, const WriteWatch& watch) {
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json config, ReadModelConfig(base));
  const auto names = GgufNames::Of(config);
  const std::string where = JoinPath(base, "config.json");
  if (!names.ok()) return Failure(names.status().code(), where, ": ", Message(names.status()));
  TESSERA_ASSIGN_OR_RETURN(const auto model, ShapesOf(config, where));
  TESSERA_ASSIGN_OR_RETURN(const AdapterFolder adapter, AdapterFolder::Open(folder, *model));
  TESSERA_RETURN_IF_ERROR(CheckIsPlain(adapter.config(), folder));

  TESSERA_RETURN_IF_ERROR(CheckBaseStays(adapter, folder, base));

  // The one alpha of the file, by which llama.cpp scales as alpha / rank; what other layers have is
  // in their second matrix.
  const auto& first = adapter.terms().begin()->second.config;
  const auto rank = static_cast<double>(first.rank);
  // llama.cpp takes an alpha of 0 for none.
  const double alpha = first.scale == 0 ? rank : first.scale * rank;
  std::vector<GgufTensor> tensors;
  std::vector<Tensor> values;
  for (const auto& [layer, term] : adapter.terms()) {
    const nn::Parameter* const weight = model->FindParameter(layer + ".weight");
    if (weight == nullptr) return Internal("'", layer, "' has no weight");
    for (const TiedParameters& tied : TiesOf(*model)) {
      const auto found = std::find(tied.begin(), tied.end(), weight);
      if (found == tied.end()) continue;
      return InvalidArgument(folder, ": changes '", layer, "', whose weight is that of '",
                             tied[found == tied.begin() ? 1 : 0]->name,
                             "': a GGUF file has no tensor of its own for it");
    }
    TESSERA_ASSIGN_OR_RETURN(const GgufPlace place, PlaceOf(*names, *weight));
    if (place.slices > 0) {
      return InvalidArgument(folder, ": changes '", layer,
                             "': adapters of experts are not written to GGUF files");
    }
    if (term.table && place.name != kTokenTable) {
      return InvalidArgument(folder, ": changes '", layer,
                             "': llama.cpp adds to no table but that of tokens");
    }
    const auto read = [&adapter, &layer = layer](const std::string& matrix) -> StatusOr<Tensor> {
      TESSERA_ASSIGN_OR_RETURN(const Tensor t, adapter.Read(Concat(layer, ".", matrix)));
      return CastCopy(t, DType::kFloat32);
    };
    const nn::LowRankNames matrices(term.table, 0);
    TESSERA_ASSIGN_OR_RETURN(Tensor a, read(matrices.a));
    TESSERA_ASSIGN_OR_RETURN(Tensor b, read(matrices.b));
    // Rows of a table's first matrix are looked up.
    if (term.table) a = Transpose(a, 0, 1).ContiguousCopy();
    const double scale = term.config.scale * static_cast<double>(term.config.rank) / alpha;
    if (scale != 1) b = Mul(b, scale);
    if (place.interleaved_heads > 0) b = Interleaved(b, place.interleaved_heads);
    for (const auto& [end, t] : {std::pair(".lora_a", a), {".lora_b", b}}) {
      tensors.push_back({.name = place.name + end, .shape = {t.size(0), t.size(1)}});
      values.push_back(t);
    }
  }
  const GgufMetadata metadata = {{"general.architecture", names->architecture()},
                                 {"general.type", std::string("adapter")},
                                 {"adapter.type", std::string("lora")},
                                 {"adapter.lora.alpha", static_cast<float>(alpha)},
                                 {std::string(kGgufWrittenByKey), std::string("tessera convert")}};
  TESSERA_ASSIGN_OR_RETURN(GgufWriter writer, GgufWriter::Create(path, metadata, tensors));
  TensorsWritten written = {.all_tensors = std::ssize(values)};
  for (const Tensor& t : values) {
    TESSERA_RETURN_IF_ERROR(writer.Append(t.raw_data(), t.nbytes()));
    written.Add(t.nbytes(), watch);
  }
  return writer.Commit();
}

}  // namespace tessera::models
