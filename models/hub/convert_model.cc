// SPDX-License-Identifier: Apache-2.0
#include "models/hub/convert_model.h"

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "models/family.h"
#include "models/hub/adapter_folder.h"
#include "models/hub/load_model.h"
#include "models/hub/match_entries.h"
#include "models/hub/megatron_gpt2.h"
#include "models/hub/quantized_entries.h"
#include "models/hub/save_model.h"
#include "models/hub/weight_files.h"
#include "ops/elementwise/elementwise.h"

namespace tessera::models {
namespace {

using nlohmann::json;

// Weights by the names of a model's parameters.
struct Source {
  std::unique_ptr<Model> model;  // on meta, of the dtype to write
  std::function<StatusOr<Tensor>(const nn::Parameter&)> read;
};

StatusOr<std::unique_ptr<Model>> BuildShapes(const std::string& from, const json& config,
                                             DType dtype) {
  auto model = BuildModel(config, {.dtype = dtype, .device = Device::Meta(), .initialise = false});
  if (model.ok()) return model;
  return Failure(model.status().code(), from, ": ", Message(model.status()));
}

// A dtype that holds what all of them hold; entries that are no floats do not count.
DType WidestOf(const std::vector<WeightEntry>& entries) {
  std::optional<DType> widest;
  for (const WeightEntry& entry : entries) {
    const std::optional<DType> dtype = ParseSafetensorsDType(entry.dtype);
    if (!dtype || !IsFloating(*dtype) || dtype == widest) continue;
    if (!widest || DTypeSize(*dtype) > DTypeSize(*widest)) {
      widest = dtype;
    } else if (DTypeSize(*dtype) == DTypeSize(*widest)) {
      widest = DType::kFloat32;  // the two of half precision
    }
  }
  return widest.value_or(DType::kFloat32);
}

// A weight that is tied to others, of which the adapter changes one alone: they go apart then.
// nullptr: there is none.
const nn::Parameter* ChangedTied(Model& model, const AdapterFolder& adapter) {
  for (const TiedParameters& tied : TiesOf(model)) {
    for (const nn::Parameter* p : tied) {
      if (adapter.ChangesAlone(p->name)) return p;
    }
  }
  return nullptr;
}

int64_t CountFinite(const Tensor& t) {
  int64_t count = 0;
  DispatchFloat(t.dtype(), "convert", [&](auto zero) {
    using T = decltype(zero);
    const T* values = t.data<T>();
    for (int64_t i = 0; i < t.numel(); ++i) {
      count += std::isfinite(static_cast<double>(values[i])) ? 1 : 0;
    }
  });
  return count;
}

// The weight that gives the logits.
std::string HeadOf(Model& model) {
  std::string name;
  model.VisitModules([&](const nn::Module& layer) {
    if (layer.vocabulary_use() == nn::VocabularyUse::kHead) name = layer.path() + ".weight";
  });
  return name;
}

// The model with the adapter in its weights.
Status Merge(const std::string& folder, const std::string& where, json config, Source* source) {
  auto opened = AdapterFolder::Open(folder, *source->model);
  TESSERA_RETURN_IF_ERROR(opened.status());
  const auto adapter = std::make_shared<const AdapterFolder>(*std::move(opened));
  double scale = 1;
  if (ChangedTied(*source->model, *adapter) != nullptr) {
    const Family& family = **FamilyOf(config);
    if (family.untie == nullptr) {
      return InvalidArgument(folder, ": changes one of two tied weights, and ", family.model_type,
                             " has no model whose weights are not tied");
    }
    // Each of them begins as the one that there is.
    std::map<std::string, const nn::Parameter*> tied_to;
    const std::shared_ptr<Model> tied = std::move(source->model);
    for (const nn::Parameter* p : tied->Parameters()) {
      if (p->tied_to != nullptr) tied_to[p->name] = p->tied_to;
    }
    family.untie(&config);
    if (family.scale_of_head != nullptr) scale = family.scale_of_head(&config);
    TESSERA_ASSIGN_OR_RETURN(source->model, BuildShapes(where, config, tied->build().dtype));
    if (const nn::Parameter* const p = ChangedTied(*source->model, *adapter)) {
      return InvalidArgument(folder, ": changes '", p->name, "', which a ", family.model_type,
                             " has one weight for with another module");
    }
    source->read = [tied, tied_to, read = source->read](const nn::Parameter& p) {
      const auto found = tied_to.find(p.name);
      return read(found == tied_to.end() ? p : *found->second);
    };
  }
  source->read = [folder, adapter, scale, head = HeadOf(*source->model),
                  read = source->read](const nn::Parameter& p) -> StatusOr<Tensor> {
    TESSERA_ASSIGN_OR_RETURN(Tensor whole, read(p));
    const double factor = p.name == head ? scale : 1;
    if (!adapter->Changes(p.name) && factor == 1) return whole;
    // The sum is rounded once, to the dtype that is written.
    if (IsHalf(whole.dtype()) && whole.dtype() != p.tensor.dtype()) {
      whole = CastCopy(whole, DType::kFloat32);
    }
    TESSERA_ASSIGN_OR_RETURN(Tensor merged, adapter->Merged(p, whole));
    if (factor != 1) merged = Mul(merged, factor);
    if (CountFinite(merged) >= CountFinite(whole)) return merged;
    return InvalidArgument(folder, ": makes numbers of tensor '", p.name, "' infinite or NaN");
  };
  return OkStatus();
}

StatusOr<Source> OpenFolder(const std::string& from, const ConvertOptions& options) {
  const std::optional<DType>& dtype = options.dtype;
  TESSERA_ASSIGN_OR_RETURN(const json config, ReadModelConfig(from));
  TESSERA_ASSIGN_OR_RETURN(WeightFiles opened, WeightFiles::Open(from));
  const auto weights = std::make_shared<const WeightFiles>(std::move(opened));
  const std::string where = JoinPath(from, "config.json");
  Source source;
  TESSERA_ASSIGN_OR_RETURN(source.model, BuildShapes(where, config, DType::kFloat32));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<EntryMatch> matches,
                           MatchEntries(*source.model, *weights, nullptr));
  std::vector<WeightEntry> entries;
  for (const EntryMatch& match : matches) {
    entries.push_back(*weights->Find(match.entry));
  }
  const auto loading = std::make_shared<const QuantizedLoading>(
      *weights, matches, nn::QuantizableWeights(*source.model), std::nullopt);
  TESSERA_ASSIGN_OR_RETURN(source.model,
                           BuildShapes(where, config, dtype.value_or(WidestOf(entries))));
  source.read = [weights, loading](const nn::Parameter& p) { return loading->ReadDense(p); };
  if (!options.adapter.empty()) {
    TESSERA_RETURN_IF_ERROR(Merge(options.adapter, where, config, &source));
  }
  return source;
}

StatusOr<Source> OpenMegatron(const std::string& from, std::optional<DType> dtype) {
  TESSERA_ASSIGN_OR_RETURN(MegatronGpt2 opened, MegatronGpt2::Open(from));
  const auto megatron = std::make_shared<const MegatronGpt2>(std::move(opened));
  Source source;
  TESSERA_ASSIGN_OR_RETURN(
      source.model,
      BuildShapes(from, megatron->config(), dtype.value_or(WidestOf(megatron->entries()))));
  std::vector<std::string> names;
  for (const nn::Parameter* p : source.model->Parameters()) names.push_back(p->name);
  TESSERA_RETURN_IF_ERROR(megatron->CheckNothingIsLeft(names));
  source.read = [megatron, from](const nn::Parameter& p) -> StatusOr<Tensor> {
    TESSERA_ASSIGN_OR_RETURN(const Tensor t, megatron->Read(p.name));
    if (t.shape() == p.placement.global_shape()) return t;
    return InvalidArgument(from, ": what is to be '", p.name, "' has shape ", t.shape(),
                           "; the arguments ask for ", p.placement.global_shape());
  };
  return source;
}

StatusOr<Tensor> CastWithinRange(const std::string& name, const Tensor& whole, DType dtype) {
  if (whole.dtype() == dtype) return whole;
  const Tensor cast = CastCopy(whole, dtype);
  if (CountFinite(cast) == CountFinite(whole)) return cast;
  return InvalidArgument("tensor '", name, "' has numbers that are beyond ", DTypeName(dtype));
}

// What is beside the weights.
StatusOr<SaveOptions> CompanionsOf(const std::string& from) {
  SaveOptions save;
  if (!IsDirectory(from)) return save;
  TESSERA_ASSIGN_OR_RETURN(save.tokenizer_files, data::TokenizerFilesOf(from));
  const std::string pictures = JoinPath(from, "preprocessor_config.json");
  if (PathExists(pictures)) {
    TESSERA_ASSIGN_OR_RETURN(std::string text, ReadFile(pictures));
    save.files.emplace_back("preprocessor_config.json", std::move(text));
  }
  const std::string generation = JoinPath(from, "generation_config.json");
  if (PathExists(generation)) {
    TESSERA_ASSIGN_OR_RETURN(save.generation_config, ReadJsonFile(generation));
  }
  return save;
}

}  // namespace

Status ConvertModel(const std::string& from, const std::string& folder,
                    const ConvertOptions& options) {
  if (!options.overwrite) TESSERA_RETURN_IF_ERROR(CheckIsNew(folder));
  if (!IsDirectory(from) && !PathExists(from)) {
    return NotFound(from, ": no such file or directory");
  }
  if (!options.adapter.empty() && !IsDirectory(from)) {
    return InvalidArgument(from, ": is no folder of a model that an adapter could be merged with");
  }
  if (!IsDirectory(from) && !WeightFile::IsTorchName(from)) {
    return InvalidArgument(from, ": is a file; give the model's folder, with its config.json");
  }
  TESSERA_ASSIGN_OR_RETURN(const Source source, IsDirectory(from)
                                                    ? OpenFolder(from, options)
                                                    : OpenMegatron(from, options.dtype));
  TESSERA_ASSIGN_OR_RETURN(SaveOptions save, CompanionsOf(from));
  save.max_shard_bytes = options.max_shard_bytes;
  save.quantize = options.quantize;
  save.watch = options.watch;
  // One tensor is read, cast, written and forgotten.
  save.gather = [&](const nn::Parameter& p) -> StatusOr<Tensor> {
    TESSERA_ASSIGN_OR_RETURN(const Tensor whole, source.read(p));
    return CastWithinRange(p.name, whole, p.tensor.dtype());
  };
  return SaveModel(*source.model, folder, nullptr, save);
}

}  // namespace tessera::models
