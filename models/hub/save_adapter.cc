// SPDX-License-Identifier: Apache-2.0
// An adapter's folder, as PEFT has it.
#include <algorithm>
#include <functional>
#include <map>

#include "autograd/autograd.h"
#include "base/file.h"
#include "core/safetensors.h"
#include "models/family.h"
#include "models/hub/adapter.h"
#include "models/hub/adapter_terms.h"
#include "models/hub/save_model.h"
#include "nlohmann/json.hpp"
#include "ops/elementwise/elementwise.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

// What a folder has of a parameter: itself, and behind it, along the rank, what a term began with
// that started from its weight, so that s (B A - B_0 A_0) is s [B, -B_0] [A; A_0].
struct SavedParameter {
  std::string name;  // in the file, behind what all begin with
  nn::Parameter* own;
  nn::Parameter* start = nullptr;
  int rank_dim = 0;

  Shape shape() const {
    Shape shape = own->placement.global_shape();
    if (start != nullptr) shape[rank_dim] *= 2;
    return shape;
  }
};

// Names of a parameter that is replaced, as PEFT has it: the one by which it is meant, and what
// the module of that one has it under, too (BERT's decoder.bias, beside predictions.bias).
std::vector<std::string> WrittenNames(const std::vector<std::string>& names) {
  std::vector<std::string> written;
  for (const std::string& name : names) {
    if (written.empty() || ModuleOf(name).starts_with(ModuleOf(names[0]) + ".")) {
      written.push_back(name);
    }
  }
  return written;
}

std::vector<SavedParameter> SavedParametersOf(const AttachedAdapter& adapter,
                                              const AdapterPlan& plan) {
  std::vector<SavedParameter> saved;
  for (const AttachedAdapter::Term& term : adapter.terms) {
    for (const auto& p : term.term->own_parameters()) {
      if (!p->can_train) continue;
      // `lora_A.weight` is [rank, in], `lora_B.weight` [out, rank].
      saved.push_back({.name = plan.terms.at(term.module).name + p->name.substr(term.module.size()),
                       .own = p.get(),
                       .start = term.term->StartOf(*p),
                       .rank_dim = p->name.find(".lora_B") == std::string::npos ? 0 : 1});
    }
  }
  for (nn::Parameter* p : adapter.replaced) {
    for (const std::string& name : WrittenNames(plan.replaced.at(p->name))) {
      saved.push_back({.name = name, .own = p});
    }
  }
  for (nn::Parameter* p : adapter.changed) {
    const auto term = plan.terms.find(ModuleOf(p->name));
    saved.push_back(
        {.name = term == plan.terms.end()
                     ? p->name
                     : OfBaseLayer(term->second.name + p->name.substr(term->first.size())),
         .own = p});
  }
  return saved;
}

// On the CPU and contiguous, in memory of its own: what is gathered goes with the next one. A dry
// run's copy is on meta, where it imitates the CPU.
StatusOr<Tensor> WholeOf(nn::Parameter& p, const SaveAdapterOptions& options) {
  Tensor found = p.tensor.Detach();
  if (options.gather != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(found, options.gather(p));
  } else if (!p.placement.is_whole()) {
    return InvalidArgument("parameter '", p.name, "' is a shard: gathering a model is dist/'s");
  }
  const Tensor here = CopyTo(found, found.device().is_meta() ? Device::Meta() : Device::Cpu());
  return CastCopy(here, here.dtype());
}

StatusOr<Tensor> ValuesOf(const SavedParameter& p, const SaveAdapterOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const Tensor own, WholeOf(*p.own, options));
  if (p.start == nullptr) return own;
  TESSERA_ASSIGN_OR_RETURN(const Tensor start, WholeOf(*p.start, options));
  const NoGrad no_grad;
  return Cat({own, p.rank_dim == 0 ? start : Neg(start)}, p.rank_dim);
}

// What GPT-2's layers are; a table's term does not ask.
bool StandsInOut(const AdapterPlan& plan) {
  return std::any_of(plan.terms.begin(), plan.terms.end(), [](const auto& term) {
    return term.second.layout == LinearLayout::kInOut && !term.second.table;
  });
}

// The adapter's adapter_config.json, then the entries, whose numbers `tensor_of` gives one by one,
// on the CPU and contiguous.
Status WriteFolder(const std::string& folder, const nlohmann::ordered_json& config,
                   const std::vector<SafetensorsEntry>& entries,
                   const std::function<StatusOr<Tensor>(size_t)>& tensor_of,
                   const SaveAdapterOptions& options) {
  TESSERA_RETURN_IF_ERROR(CheckReplaceableModel(folder));
  TESSERA_ASSIGN_OR_RETURN(AtomicDirectory directory, AtomicDirectory::Create(folder));
  const std::string& path = directory.temporary_path();
  TESSERA_RETURN_IF_ERROR(
      WriteFileAtomically(JoinPath(path, std::string(kAdapterConfigName)), config.dump(2) + "\n"));
  TESSERA_ASSIGN_OR_RETURN(
      SafetensorsWriter writer,
      SafetensorsWriter::Create(JoinPath(path, std::string(kAdapterWeightsName)), entries,
                                {{"format", "pt"}}));
  for (size_t i = 0; i < entries.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(const Tensor values, tensor_of(i));
    TESSERA_RETURN_IF_ERROR(writer.Append(values.raw_data(), values.nbytes()));
  }
  TESSERA_RETURN_IF_ERROR(writer.Commit());
  for (const auto& [name, text] : options.files) {
    TESSERA_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(path, name), text));
  }
  return directory.CommitReplacing();
}

// PEFT picks its model's class by it; "" where none of its tasks is meant for sure.
std::string TaskTypeOf(const Model& whole) {
  if (whole.encoder_decoder() != nullptr) return "SEQ_2_SEQ_LM";
  const StatusOr<const Family*> family = FamilyOf(whole.config());
  const Architecture* const architecture =
      family.ok() ? (*family)->ArchitectureOf(whole.config()) : nullptr;
  return architecture != nullptr && architecture->Does(Capability::kNextToken) ? "CAUSAL_LM" : "";
}

Status SavePrefix(Model& whole, const AdapterConfig& config, const AttachedPrefix& prefix,
                  const std::string& folder, const SaveAdapterOptions& options) {
  AdapterConfig held = config;
  TESSERA_ASSIGN_OR_RETURN(held.prefix, PrefixConfigFor(whole, *config.prefix));
  held.task_type = whole.encoder_decoder() != nullptr ? "SEQ_2_SEQ_LM" : "CAUSAL_LM";
  std::map<std::string, Tensor> values;
  for (nn::Parameter* p : prefix.parameters) {
    if (p->tied_to != nullptr) continue;
    TESSERA_ASSIGN_OR_RETURN(const Tensor found, WholeOf(*p, options));
    // A dry run takes every rank for the one that writes.
    if (options.write || found.device().is_meta()) values[p->name] = found;
  }
  if (values.empty()) return OkStatus();
  const Tensor numbers = CollectPrefix(prefix, *held.prefix, values);
  if (!options.write) return OkStatus();
  const Shape& shape = numbers.shape();
  return WriteFolder(
      folder, held.ToJson(/*fan_in_fan_out=*/false),
      {{std::string(kPrefixEntry), numbers.dtype(), {shape.begin(), shape.end()}}},
      [&](size_t) -> StatusOr<Tensor> { return numbers; }, options);
}

}  // namespace

Status SaveAdapter(Model& model, const AdapterConfig& config, const AttachedAdapter& adapter,
                   const std::string& folder, const SaveAdapterOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const auto whole, WholeShape(model));
  if (config.prefix) return SavePrefix(*whole, config, adapter.prefix, folder, options);
  TESSERA_ASSIGN_OR_RETURN(const AdapterPlan plan, PlanOf(*whole, config, adapter.version));
  const std::vector<SavedParameter> parameters = SavedParametersOf(adapter, plan);
  if (!options.write) {
    for (const SavedParameter& p : parameters) {
      TESSERA_RETURN_IF_ERROR(ValuesOf(p, options).status());
    }
    return OkStatus();
  }
  AdapterConfig saved = config.StartsFromWeights() ? config.OfWholeWeights() : config;
  if (saved.task_type.empty()) saved.task_type = TaskTypeOf(*whole);
  if (saved.target_modules.all_linear) {  // PEFT's own word for it leaves out other heads
    saved.target_modules = {};
    for (const auto& [path, term] : plan.terms) saved.target_modules.names.push_back(term.name);
  }
  std::vector<SafetensorsEntry> entries;
  for (const SavedParameter& p : parameters) {
    const Shape shape = p.shape();
    entries.push_back({std::string(kAdapterNamesBegin) + p.name,
                       p.own->tensor.dtype(),
                       {shape.begin(), shape.end()}});
  }
  return WriteFolder(
      folder, saved.ToJson(StandsInOut(plan)), entries,
      [&](size_t i) { return ValuesOf(parameters[i], options); }, options);
}

}  // namespace tessera::models
