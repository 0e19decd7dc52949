#include "models/hub/adapter.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "autograd/autograd.h"
#include "core/file.h"
#include "core/safetensors.h"
#include "models/family.h"
#include "models/hub/match_entries.h"
#include "models/hub/weight_file.h"
#include "nlohmann/json.hpp"
#include "nn/embedding.h"
#include "ops/elementwise/elementwise.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

using nlohmann::json;

constexpr char kPrefix[] = "base_model.model.";
constexpr char kWeight[] = ".weight";
constexpr char kBias[] = ".bias";

std::string WithoutEnd(const std::string& text, const std::string& end) {
  return text.substr(0, text.size() - end.size());
}

// The module that a parameter is of.
std::string ModuleOf(const std::string& parameter) {
  return parameter.substr(0, std::min(parameter.rfind('.'), parameter.size()));
}

const Family& FamilyOfModel(const Model& model) { return **FamilyOf(model.config()); }

// A module's own name, then those that the Hub's files know it by.
std::vector<std::string> NamesOf(const Model& model, const std::string& module) {
  std::vector<std::string> names = {module};
  const Family& family = FamilyOfModel(model);
  if (family.other_names == nullptr) return names;
  for (const std::string& name : family.other_names(module + kWeight)) {
    names.push_back(WithoutEnd(name, kWeight));
  }
  return names;
}

bool IsHead(const Model& model, const nn::Module& layer) {
  const Family& family = FamilyOfModel(model);
  return dynamic_cast<const nn::VocabParallelHead*>(&layer) != nullptr ||
         (family.is_head != nullptr && family.is_head(layer.path() + kWeight));
}

// Whatever comes of `model`, whichever blocks it has, without memory.
StatusOr<std::unique_ptr<Model>> WholeShape(const Model& model) {
  nn::BuildContext dry;
  dry.dtype = model.build().dtype;
  dry.device = Device::Meta();
  dry.initialise = false;
  return BuildModel(model.config(), dry);
}

// The terms that are wanted of each layer, by the layer's path, of the whole model.
using Wanted = std::map<std::string, nn::LowRankConfig>;

StatusOr<Wanted> WantedTerms(Model& whole, const AdapterConfig& given) {
  Wanted wanted;
  AdapterConfig config = given;
  if (config.target_modules.empty()) {
    config.target_modules.names = FamilyOfModel(whole).adapter_targets;
  }
  std::vector<std::string> layers;
  whole.VisitModules([&](nn::Module& layer) {
    if (!nn::LayoutOf(layer)) return;
    layers.push_back(layer.path());
    const std::vector<std::string> names = NamesOf(whole, layer.path());
    const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
      return config.Targets(name, !IsHead(whole, layer));
    });
    if (found == names.end()) return;
    const int64_t rank = config.RankOf(*found);
    wanted[layer.path()] = {
        .rank = rank,
        .scale = config.ScaleOf(*found),
        .dropout = config.lora_dropout,
        .magnitude = config.use_dora,
        .a_init = config.init == "gaussian" ? nn::Init::Normal(1.0 / static_cast<double>(rank))
                                            : nn::Init(),
        .b_init = config.init == "false"
                      ? nn::Init::Uniform(1.0 / std::sqrt(static_cast<double>(rank)))
                      : nn::Init(),
        .subtract_start = config.StartsFromWeights()};
  });
  if (wanted.empty()) {
    return InvalidArgument(
        "the adapter's target_modules name no linear layer of this model; it has ",
        QuotedNames(layers));
  }
  return wanted;
}

// Of modules_to_save, and the biases that train.
bool Replaces(const AdapterConfig& config, const Wanted& wanted, const nn::Parameter& p) {
  if (!p.can_train) return false;
  if (config.Saves(ModuleOf(p.name))) return true;
  if (!p.name.ends_with(kBias)) return false;
  return config.bias == "all" || (config.bias == "lora_only" && wanted.count(ModuleOf(p.name)) > 0);
}

Status CheckReplaced(Model& whole, const AdapterConfig& config, const Wanted& wanted, int adapter) {
  std::set<const nn::Parameter*> tied;
  bool any = false;
  Status status;
  whole.VisitParameters([&](nn::Parameter& p) {
    if (p.tied_to != nullptr) tied.insert({&p, p.tied_to});
  });
  whole.VisitParameters([&](nn::Parameter& p) {
    if (!Replaces(config, wanted, p)) return;
    any = true;
    if (tied.count(&p) > 0) {
      status.Update(InvalidArgument("the adapter's modules_to_save name '", ModuleOf(p.name),
                                    "', whose weight is tied to another module's; such a model "
                                    "cannot train one of them alone"));
    }
  });
  if (any && adapter > 0) {
    status.Update(
        InvalidArgument("the adapter has modules of its own (modules_to_save, bias); only "
                        "the first one of a model may"));
  }
  for (const std::string& name : config.modules_to_save) {
    bool found = false;
    whole.VisitModules([&](nn::Module& m) {
      found = found || m.path() == name || m.path().ends_with("." + name);
    });
    if (!found) {
      status.Update(InvalidArgument("the adapter's modules_to_save name '", name,
                                    "', which this model does not have"));
    }
  }
  return status;
}

AttachedAdapter Attach(Model& model, const AdapterConfig& config, const Wanted& wanted,
                       int adapter) {
  AttachedAdapter attached;
  std::vector<nn::Module*> layers;  // terms are children that come to them
  model.VisitModules([&](nn::Module& layer) {
    if (nn::LayoutOf(layer) && wanted.count(layer.path()) > 0) layers.push_back(&layer);
  });
  model.VisitParameters([&](nn::Parameter& p) {
    if (Replaces(config, wanted, p)) attached.replaced.push_back(&p);
  });
  for (nn::Module* layer : layers) {
    nn::LowRankTerm& term =
        nn::AdaptedWeight::Of(*layer).AddTerm(adapter, wanted.at(layer->path()));
    attached.terms.push_back({&term, layer->path()});
  }
  return attached;
}

// Bytes of its own, with which it can train, for a parameter that has a file's.
void MakeWritable(const Model& model, nn::Parameter* p) {
  if (!p->tensor.storage()->read_only()) return;
  p->tensor = CastCopy(p->tensor, p->tensor.dtype());
  nn::LetTrain(*p, model.build());
}

// --- Files ---------------------------------------------------------------------------------------

// What a parameter is called in the adapter's file.
std::string NameInFile(const nn::Parameter& p, const Wanted& wanted) {
  const std::string module = ModuleOf(p.name);
  const bool adapted = p.name.ends_with(kBias) && wanted.count(module) > 0;
  return kPrefix + (adapted ? module + ".base_layer.bias" : p.name);
}

// `lora_A.1.weight` of a second adapter is `lora_A.weight` in its file.
std::string WithoutNumber(const std::string& name, int adapter) {
  if (adapter == 0) return name;
  const std::string number = "." + std::to_string(adapter);
  const size_t at = name.rfind(number);
  return name.substr(0, at) + name.substr(at + number.size());
}

// The parameters of the whole model by the names that a file may have for them.
std::map<std::string, std::string> ParametersByNameInFile(Model& whole,
                                                          const AttachedAdapter& adapter,
                                                          const Wanted& wanted, int number) {
  std::map<std::string, std::string> by_name;
  for (nn::Parameter* p : ParametersOf(adapter)) {
    const std::string name =
        WithoutNumber(NameInFile(*p, wanted), number).substr(sizeof(kPrefix) - 1);
    by_name[name] = p->name;
    // The module's other names, in front of what comes behind it.
    for (const auto& term : adapter.terms) {
      if (!name.starts_with(term.module + ".")) continue;
      for (const std::string& other : NamesOf(whole, term.module)) {
        by_name.emplace(other + name.substr(term.module.size()), p->name);
      }
    }
  }
  return by_name;
}

// An entry for each of the parameters, and none left over.
StatusOr<std::map<std::string, std::string>> EntriesOf(
    const WeightFile& file, const std::map<std::string, std::string>& by_name,
    const std::string& source) {
  std::map<std::string, std::string> entry_of;
  std::vector<std::string> unknown, missing;
  for (const WeightEntry& entry : file.entries()) {
    std::string name = entry.name;
    if (name.starts_with(kPrefix)) name.erase(0, sizeof(kPrefix) - 1);
    // Beside all biases PEFT writes those of the modules that an adapter replaces, too.
    if (name.find(".original_module.") != std::string::npos) continue;
    const std::string wrapper = ".modules_to_save";
    const size_t wrapped = name.find(wrapper + ".");
    if (wrapped != std::string::npos) name.erase(wrapped, wrapper.size());
    const auto found = by_name.find(name);
    if (found == by_name.end()) {
      unknown.push_back(entry.name);
    } else {
      entry_of[found->second] = entry.name;
    }
  }
  for (const auto& [name, parameter] : by_name) {
    if (entry_of.count(parameter) == 0) missing.push_back(parameter);
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  if (!unknown.empty()) {
    return InvalidArgument(source, ": this model has no place for ", QuotedNames(unknown),
                           "; the adapter is for another one");
  }
  if (!missing.empty()) return InvalidArgument(source, ": missing are ", QuotedNames(missing));
  return entry_of;
}

void Write(const Model& model, nn::Parameter* p, const Tensor& whole) {
  MakeWritable(model, p);
  const auto write = [&] {
    const Tensor cast = CopyTo(CastCopy(whole, p->tensor.dtype()), p->tensor.device());
    CopyGlobalToLocal(p->placement, cast, p->tensor.Detach());
  };
  if (model.build().around_loading) {
    model.build().around_loading(*p, write);
  } else {
    write();
  }
}

Status CheckShape(const WeightFile& file, const std::string& entry, const nn::Parameter& p) {
  const WeightEntry& found = *file.Find(entry);
  const Shape& expected = p.placement.global_shape();
  const std::optional<DType> dtype = ParseSafetensorsDType(found.dtype);
  const bool same = found.shape == std::vector<int64_t>(expected.begin(), expected.end());
  if (same && dtype && IsFloating(*dtype)) return OkStatus();
  std::string shape;  // of any number of dimensions
  for (const int64_t size : found.shape) shape += Concat(shape.empty() ? "" : ", ", size);
  return InvalidArgument(file.path(), ": '", entry, "' is ", found.dtype, " [", shape,
                         "]; for this model it must be a floating ", expected);
}

// What a folder has of a parameter: itself, and behind it, along the rank, what a term began with
// that started from its weight, so that s (B A - B_0 A_0) is s [B, -B_0] [A; A_0].
struct SavedParameter {
  nn::Parameter* own;
  nn::Parameter* start = nullptr;
  int rank_dim = 0;

  Shape shape() const {
    Shape shape = own->placement.global_shape();
    if (start != nullptr) shape[rank_dim] *= 2;
    return shape;
  }
};

std::vector<SavedParameter> SavedParametersOf(const AttachedAdapter& adapter) {
  std::vector<SavedParameter> saved;
  for (nn::Parameter* p : ParametersOf(adapter)) {
    SavedParameter entry = {.own = p};
    for (const AttachedAdapter::Term& term : adapter.terms) {
      entry.start = term.term->StartOf(*p);
      if (entry.start != nullptr) break;
    }
    // `lora_A.weight` is [rank, in], `lora_B.weight` [out, rank].
    entry.rank_dim = p->name.find(".lora_B") == std::string::npos ? 0 : 1;
    saved.push_back(entry);
  }
  return saved;
}

// On the CPU and contiguous.
StatusOr<Tensor> WholeOf(nn::Parameter& p, const SaveAdapterOptions& options) {
  Tensor found = p.tensor.Detach();
  if (options.gather != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(found, options.gather(p));
  } else if (!p.placement.is_whole()) {
    return InvalidArgument("parameter '", p.name, "' is a shard: gathering a model is dist/'s");
  }
  return CopyTo(found, Device::Cpu()).ContiguousCopy();
}

StatusOr<Tensor> ValuesOf(const SavedParameter& p, const SaveAdapterOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const Tensor own, WholeOf(*p.own, options));
  if (p.start == nullptr) return own;
  TESSERA_ASSIGN_OR_RETURN(const Tensor start, WholeOf(*p.start, options));
  const NoGrad no_grad;
  return Cat({own, p.rank_dim == 0 ? start : Neg(start)}, p.rank_dim);
}

StatusOr<WeightFile> OpenWeights(const std::string& folder) {
  std::string path = JoinPath(folder, std::string(kAdapterWeightsName));
  if (!PathExists(path)) path = JoinPath(folder, "adapter_model.bin");
  if (!PathExists(path)) {
    return NotFound("'", folder, "' holds no weights of an adapter (", kAdapterWeightsName, ")");
  }
  return WeightFile::Open(path);
}

// A folder's numbers, whatever they came from when they were trained.
StatusOr<AttachedAdapter> LoadPrefix(Model& model, const std::string& folder,
                                     PrefixTuningConfig config, int adapter) {
  config.prefix_projection = false;
  TESSERA_ASSIGN_OR_RETURN(const auto whole, WholeShape(model));
  const auto held = PrefixConfigFor(*whole, config);
  if (!held.ok()) return Failure(held.status().code(), folder, ": ", Message(held.status()));
  TESSERA_ASSIGN_OR_RETURN(const WeightFile file, OpenWeights(folder));
  TESSERA_ASSIGN_OR_RETURN(const Tensor numbers, ReadPrefix(file, *held));
  AttachedAdapter attached;
  attached.prefix = AttachPrefix(model, *whole, *held, adapter);
  if (model.build().device.is_meta()) return attached;
  SpreadPrefix(numbers, attached.prefix,
               [&](nn::Parameter* p, const Tensor& values) { Write(model, p, values); });
  return attached;
}

bool StandsInOut(Model& model, const Wanted& wanted) {
  bool transposed = false;
  model.VisitModules([&](nn::Module& layer) {
    transposed = transposed ||
                 (wanted.count(layer.path()) > 0 && nn::LayoutOf(layer) == LinearLayout::kInOut);
  });
  return transposed;
}

}  // namespace

StatusOr<AttachedAdapter> AttachAdapter(Model& model, const AdapterConfig& config, int adapter,
                                        const WithElements& with_elements) {
  TESSERA_ASSIGN_OR_RETURN(const auto whole, WholeShape(model));
  if (config.prefix) {
    TESSERA_ASSIGN_OR_RETURN(const auto prefix, PrefixConfigFor(*whole, *config.prefix));
    AttachedAdapter attached;
    attached.prefix = AttachPrefix(model, *whole, prefix, adapter);
    return attached;
  }
  TESSERA_ASSIGN_OR_RETURN(const Wanted wanted, WantedTerms(*whole, config));
  TESSERA_RETURN_IF_ERROR(CheckReplaced(*whole, config, wanted, adapter));
  if (config.use_dora && model.build().around_loading && with_elements == nullptr) {
    return InvalidArgument(
        "use_dora begins with the norms of weights, which a model whose parameters are cut over "
        "ranks (zero 3) does not have in one place");
  }
  if (config.use_dora && config.StartsFromWeights()) {
    return InvalidArgument("init_lora_weights is ", config.init,
                           ", which does not go with use_dora");
  }
  AttachedAdapter attached = Attach(model, config, wanted, adapter);
  for (nn::Parameter* p : attached.replaced) MakeWritable(model, p);
  for (const AttachedAdapter::Term& term : attached.terms) {
    nn::Parameter* const weight = model.FindParameter(term.module + kWeight);
    const auto begin = [&] { term.term->Begin(*weight); };
    if (!config.use_dora || with_elements == nullptr) {
      begin();
      continue;
    }
    // The factors, which are matrices; magnitudes are written, which cut ones are by themselves.
    std::vector<nn::Parameter*> read = {weight};
    for (const auto& p : term.term->own_parameters()) {
      if (p->placement.global_shape().ndim() == 2) read.push_back(p.get());
    }
    with_elements(read, begin);
  }
  return attached;
}

std::vector<nn::Parameter*> ParametersOf(const AttachedAdapter& adapter) {
  std::vector<nn::Parameter*> parameters;
  for (const auto& term : adapter.terms) {
    for (const auto& p : term.term->own_parameters()) {
      if (p->can_train) parameters.push_back(p.get());
    }
  }
  parameters.insert(parameters.end(), adapter.replaced.begin(), adapter.replaced.end());
  const std::vector<nn::Parameter*>& prefix = adapter.prefix.parameters;
  parameters.insert(parameters.end(), prefix.begin(), prefix.end());
  return parameters;
}

void TrainOnly(Model& model, const AttachedAdapter& adapter) {
  const std::vector<nn::Parameter*> own = ParametersOf(adapter);
  const std::set<nn::Parameter*> trains(own.begin(), own.end());
  model.VisitParameters([&](nn::Parameter& p) {
    if (trains.count(&p) == 0) DropGrad(p.tensor);
  });
}

StatusOr<AdapterFolder> AdapterFolder::Open(const std::string& folder, const Model& model,
                                            int adapter) {
  AdapterFolder opened;
  TESSERA_ASSIGN_OR_RETURN(opened.config_, AdapterConfig::Read(folder));
  if (opened.config_.prefix) {
    return InvalidArgument(folder,
                           ": prefix tuning changes no weight of the model, and cannot be "
                           "merged with it");
  }
  TESSERA_ASSIGN_OR_RETURN(WeightFile file, OpenWeights(folder));
  const std::string path = file.path();
  opened.file_ = std::make_shared<const WeightFile>(std::move(file));
  opened.suffix_ = adapter == 0 ? "" : Concat(".", adapter);
  // The whole model, so that every stage of a pipeline refuses what one of them would.
  TESSERA_ASSIGN_OR_RETURN(const auto whole, WholeShape(model));
  auto wanted = WantedTerms(*whole, opened.config_);
  if (wanted.ok()) {
    const Status replaced = CheckReplaced(*whole, opened.config_, *wanted, adapter);
    if (!replaced.ok()) wanted = replaced;
  }
  if (!wanted.ok()) {
    return Failure(wanted.status().code(), folder, ": ", Message(wanted.status()));
  }
  whole->VisitModules([&](nn::Module& layer) {
    const auto found = wanted->find(layer.path());
    if (found == wanted->end() || !nn::LayoutOf(layer)) return;
    opened.terms_[layer.path()] = {*nn::LayoutOf(layer), found->second};
  });
  const AttachedAdapter shapes = Attach(*whole, opened.config_, *wanted, adapter);
  TESSERA_ASSIGN_OR_RETURN(
      opened.entry_of_,
      EntriesOf(*opened.file_, ParametersByNameInFile(*whole, shapes, *wanted, adapter), path));
  for (const nn::Parameter* p : ParametersOf(shapes)) {
    TESSERA_RETURN_IF_ERROR(CheckShape(*opened.file_, opened.entry_of_.at(p->name), *p));
  }
  return opened;
}

bool AdapterFolder::Changes(const std::string& parameter) const {
  return entry_of_.count(parameter) > 0 ||
         (parameter.ends_with(kWeight) && terms_.count(ModuleOf(parameter)) > 0);
}

StatusOr<Tensor> AdapterFolder::Read(const std::string& parameter) const {
  std::vector<std::byte> made;
  TESSERA_ASSIGN_OR_RETURN(const TensorView view, file_->Get(entry_of_.at(parameter), &made));
  const Tensor whole = Empty(Shape(view.shape), view.dtype);
  std::copy_n(view.data, view.nbytes, static_cast<std::byte*>(whole.raw_data()));
  return whole;
}

StatusOr<Tensor> AdapterFolder::Merged(const nn::Parameter& parameter, const Tensor& whole) const {
  if (entry_of_.count(parameter.name) > 0) return Read(parameter.name);
  const std::string layer = ModuleOf(parameter.name);
  const auto term = terms_.find(layer);
  if (term == terms_.end() || parameter.name != layer + kWeight) return whole;
  TESSERA_ASSIGN_OR_RETURN(const Tensor a, Read(layer + ".lora_A" + suffix_ + kWeight));
  TESSERA_ASSIGN_OR_RETURN(const Tensor b, Read(layer + ".lora_B" + suffix_ + kWeight));
  Tensor magnitude;
  if (term->second.config.magnitude) {
    TESSERA_ASSIGN_OR_RETURN(magnitude, Read(layer + ".lora_magnitude_vector" + suffix_));
  }
  return nn::MergedWeight(whole, term->second.layout, a, b, term->second.config.scale, magnitude);
}

StatusOr<AttachedAdapter> LoadAdapter(Model& model, const std::string& folder, int adapter) {
  TESSERA_ASSIGN_OR_RETURN(const AdapterConfig config, AdapterConfig::Read(folder));
  if (config.prefix) return LoadPrefix(model, folder, *config.prefix, adapter);
  TESSERA_ASSIGN_OR_RETURN(const AdapterFolder opened, AdapterFolder::Open(folder, model, adapter));
  Wanted wanted;
  for (const auto& [layer, term] : opened.terms_) wanted[layer] = term.config;
  AttachedAdapter attached = Attach(model, opened.config_, wanted, adapter);
  if (model.build().device.is_meta()) return attached;
  for (nn::Parameter* p : ParametersOf(attached)) {
    TESSERA_ASSIGN_OR_RETURN(const Tensor whole, opened.Read(p->name));
    Write(model, p, whole);
  }
  return attached;
}

namespace {

// The adapter's adapter_config.json, then the entries, whose numbers `tensor_of` gives one by one,
// on the CPU and contiguous.
Status WriteFolder(const std::string& folder, const nlohmann::ordered_json& config,
                   const std::vector<SafetensorsEntry>& entries,
                   const std::function<StatusOr<Tensor>(size_t)>& tensor_of,
                   const SaveAdapterOptions& options) {
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

Status SavePrefix(Model& whole, const AdapterConfig& config, const AttachedPrefix& prefix,
                  const std::string& folder, const SaveAdapterOptions& options) {
  AdapterConfig held = config;
  TESSERA_ASSIGN_OR_RETURN(held.prefix, PrefixConfigFor(whole, *config.prefix));
  // PEFT picks its model's class by it.
  held.task_type = whole.encoder_decoder() != nullptr ? "SEQ_2_SEQ_LM" : "CAUSAL_LM";
  std::map<std::string, Tensor> values;
  for (nn::Parameter* p : prefix.parameters) {
    if (p->tied_to != nullptr) continue;
    TESSERA_ASSIGN_OR_RETURN(const Tensor found, WholeOf(*p, options));
    if (options.write) values[p->name] = found;
  }
  if (!options.write) return OkStatus();
  const Tensor numbers = CollectPrefix(prefix, *held.prefix, values);
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
  TESSERA_ASSIGN_OR_RETURN(const Wanted wanted, WantedTerms(*whole, config));
  const std::vector<SavedParameter> parameters = SavedParametersOf(adapter);
  if (!options.write) {
    for (const SavedParameter& p : parameters) {
      TESSERA_RETURN_IF_ERROR(ValuesOf(p, options).status());
    }
    return OkStatus();
  }
  const AdapterConfig saved = config.StartsFromWeights() ? config.OfWholeWeights() : config;
  std::vector<SafetensorsEntry> entries;
  for (const SavedParameter& p : parameters) {
    const Shape shape = p.shape();
    entries.push_back(
        {NameInFile(*p.own, wanted), p.own->tensor.dtype(), {shape.begin(), shape.end()}});
  }
  return WriteFolder(
      folder, saved.ToJson(StandsInOut(*whole, wanted)), entries,
      [&](size_t i) { return ValuesOf(parameters[i], options); }, options);
}

}  // namespace tessera::models
